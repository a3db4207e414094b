"""All errors that ipcbus raises, in one tree.

    IpcBusError
    |-- ConfigError
    |-- WouldBlock
    |-- ClosedError
    |   `-- QueueClosed
    |-- MessageTooLarge
    |-- ReservationError
    |-- WrongProcess
    |-- WrongThread
    |-- TransportError
    |   |-- SharedMemoryFull
    |   |-- LayoutMismatch
    |   |-- PermissionRefused
    |   |-- SegmentDamaged
    |   `-- SessionGone
    |-- RequestTimeout
    |-- NoResponder
    |-- GmdError
    |   |-- GmdAreaFull
    |   |-- GmdAreaDamaged
    |   `-- GmdAreaLocked
    |-- StorageError
    |   `-- StorageFull
    |-- ArchiveError
    |   |-- ArchiveMissing
    |   |-- ArchiveLocked
    |   |-- ArchiveDamaged
    |   `-- OffsetsExpired
    `-- SinkError

An error says that the caller, the configuration or this host must change. Wrong packets of a peer or of the network
raise nothing: they are counted and dropped, and lost data is an event that carries its numbers. A wait that ran out
raises the built-in ``TimeoutError``, and the use of a view after its release the built-in ``ValueError``.

Every text names the object, the values and the cure.
"""

from __future__ import annotations


class IpcBusError(Exception):
    """The root of the tree: catch it to catch every error of ipcbus.

    Cure: that of the class that was raised; the text names it.
    """


class ConfigError(IpcBusError):
    """An option is unknown, has the wrong scope or type, is out of range, or contradicts another option.

    Cure: change the value that the text names; the text gives the limits and the nearest known name.
    """


class WouldBlock(IpcBusError):
    """A send found no room in the ring and may not wait, because of ``block=False`` or because it is in a callback.

    The message was not sent and took no sequence number. Cure: send it again after the source's ``WAKEUP``
    event, let the slowest receiver catch up, or make the transmission window larger. The event comes when this
    exception is gone, so that a flag that the ``except`` block clears is never cleared too late; an exception that the
    application keeps counts as gone after 100 ms. Wait for the event after the ``except`` block, not inside.
    """


class ClosedError(IpcBusError):
    """A context, source, receiver or event queue was used after its ``close()``.

    Cure: make a new handle; a closed handle does not open again. Sources and receivers close with their context.
    """


class QueueClosed(ClosedError, ValueError):
    """A ``Queue`` was used in a process that has closed it; as with multiprocessing, it is a ``ValueError`` too.

    Cure: close the queue when this process puts and gets no more, or make a new one. Other processes still use it.
    """


class MessageTooLarge(IpcBusError):
    """A message or reservation is longer than its transport session can carry, or its headers are too long.

    A ``Queue`` raises it for an item that is longer than the queue takes. Cure: make the source with a larger
    ``message_max``, or the queue with a larger ``max_bytes``, as the text says, send the message in parts, or use a
    transport that sends fragments.
    Put large values into the message, not into its headers.
    """


class ReservationError(IpcBusError):
    """The thread that is inside an ``acquire`` block of a session used the same session again.

    Cure: leave the ``with`` block, which publishes the message, before the next send or ``acquire`` on the session.
    """


class WrongProcess(IpcBusError):
    """A handle made before a fork was used in the child.

    The rings, descriptors and threads of the handle belong to the parent, which goes on undisturbed. Cure: make a
    new ``Context`` in the child.
    """


class WrongThread(IpcBusError):
    """A call cannot drive the context in this thread, for example because another thread drives it.

    Cure: drive a sequential context from one thread, or make it with ``operational_mode="embedded"``; do not wait
    inside a callback of the same context.
    """


class TransportError(IpcBusError):
    """A transport session cannot be made or joined: the root of five classes.

    Cure: that of the class that was raised; the text names the session and the answer of the system.
    """


class SharedMemoryFull(TransportError):
    """/dev/shm has no room for a shared object, which was not made.

    Cure: the text gives the bytes that are needed and free. Make the transmission window smaller, give the container
    more shared memory (``--shm-size``), or remove the objects of dead processes: ``ipcbus doctor --reclaim``.
    """


class LayoutMismatch(TransportError):
    """A shared object was written by a release of ipcbus with another layout.

    Cure: run the same release on both sides; the text names both releases.
    """


class PermissionRefused(TransportError):
    """The system does not let this user open the shared object of another user.

    Cure: run both sides as one user, or let the owner set ``shared_memory_group`` to a group of both users.
    """


class SessionGone(TransportError):
    """The transport session ended, or its owner died, while a context joined or used it.

    Cure: a receiver needs none, because it joins the next session of its topic; otherwise, look with ``ipcbus list``
    which sessions exist now.
    """


class SegmentDamaged(TransportError):
    """Another program has cut the shared memory of a transport session short while the session was in use.

    Cure: close the sources of the session and make new ones; find out which program truncates files in /dev/shm.
    """


class RequestTimeout(IpcBusError, TimeoutError):
    """A request was sent, and no response came in time; it is a ``TimeoutError`` too.

    Cure: give the request more time, or look why the receivers of the topic do not answer: they may be busy, or may not
    call ``respond``. A response that comes later is counted and dropped.
    """


class NoResponder(IpcBusError):
    """There is no receiver that could answer a request: none has joined the topic, or all have gone.

    Cure: start a receiver of the topic that answers, in the same domain; ``ipcbus list`` shows the receivers.
    """


class GmdError(IpcBusError):
    """Guaranteed message delivery is not possible: the root of three classes.

    Cure: that of the class that was raised; the text names the GMD area and the answer of the system.
    """


class GmdAreaFull(GmdError):
    """The GMD area holds the maximum of unacknowledged bytes; the message was not sent.

    Cure: let receivers acknowledge messages, raise the limit with ``gmd_set_max_size``, or delete messages with
    ``gmd_delete``.
    """


class GmdAreaDamaged(GmdError):
    """The files of a GMD area contradict their checksums in more than the unfinished last record.

    Cure: the text names file and offset. ``ipcbus gmd repair`` keeps the good records and names the messages that are
    missing. Or restore the directory, or start with an empty directory and send the messages again.
    """


class GmdAreaLocked(GmdError):
    """Another live process uses this GMD area.

    Cure: give each process its own ``gmd_name`` or directory; the text names the process that uses the area.
    """


class StorageError(IpcBusError):
    """The system refuses to read or write a file: the root of one class.

    Cure: the text names the file, the operation and the answer of the system.
    """


class StorageFull(StorageError):
    """The disk, or the quota on it, has no room for a write; no byte of the write counts as written.

    Cure: the text names the file and the bytes; make room, or use another disk; an archive keeps less with
    ``--retain-bytes``.
    """


class ArchiveError(IpcBusError):
    """An archive of recorded traffic cannot be used: the root of four classes.

    Cure: that of the class that was raised; the text names the archive and the log in it.
    """


class ArchiveMissing(ArchiveError):
    """There is no archive at a path, or another archive than the expected one.

    Cure: give the directory that ``ipcbus record --to`` wrote. An archive lies on the host, or on the shared
    storage, of its recorder; the text names this host, and both ids if there is another archive.
    """


class ArchiveLocked(ArchiveError):
    """Another live process writes this log of the archive.

    Cure: give each recorder a ``--stream`` of its own; the text names the process.
    """


class ArchiveDamaged(ArchiveError):
    """The bytes of an archive contradict their checksums below the high-watermark.

    Cure: ``ipcbus archive verify`` names the damaged rows, ``ipcbus archive repair`` takes them out and notes the
    loss.
    """


class OffsetsExpired(ArchiveError):
    """A reader asks for offsets that the archive no longer has, or never will have.

    Cure: start from the offsets that the text names, keep data longer (``--retain-bytes``, ``--retain-hours``), or
    give the consumer a cursor that holds the data.
    """


class SinkError(IpcBusError):
    """Spark's rows cannot be published: a row is not a valid message, or a promise of the sink would be broken.

    Cure: the text names the row, or the query and the staging directory, and the change to make.
    """
