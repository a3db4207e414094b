"""Everything ipcbus raises, in one tree.

    IpcBusError
    |-- ConfigError
    |-- WouldBlock
    |-- ClosedError
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

An error says that the caller, the configuration or this host must change. What a peer or the medium does
wrong is no error: it is counted and dropped, and lost data is an event that carries its numbers. A wait that
ran out raises the built-in ``TimeoutError``, the use of a view after its release the built-in ``ValueError``.

Every text names the object, the values and the cure.
"""

from __future__ import annotations


class IpcBusError(Exception):
    """The root of the tree: catch it to catch everything below.

    Cure: that of the class actually raised; the text names it.
    """


class ConfigError(IpcBusError):
    """An option is unknown, of the wrong scope or type, out of range, or contradicts another one.

    Cure: change the value that the text names; it gives the limits and the nearest known name.
    """


class WouldBlock(IpcBusError):
    """A send found no room and was told not to wait, or runs in a callback, where waiting is never allowed.

    The message was not sent and took no sequence number. Cure: send it again after the source's ``WAKEUP``
    event, let the slowest receiver catch up, or make the transmission window larger. The event never comes before
    this exception is gone, so that a flag set in the ``except`` block is never set too late; who keeps the exception
    longer than 100 ms gets the event then. Wait for the event after the ``except`` block, not inside.
    """


class ClosedError(IpcBusError):
    """A context, source, receiver or event queue was used after its ``close()``.

    Cure: make a new handle; a closed one does not open again. Handles close with their context.
    """


class MessageTooLarge(IpcBusError):
    """A message or reservation is longer than its transport session can carry in one piece, or headers are too long.

    Cure: raise the datagram maximum of the session, which the text names, send the message in parts, or use a
    transport that fragments; send what is large as the message, not in its headers.
    """


class ReservationError(IpcBusError):
    """``acquire`` was misused: the thread that holds a session's open reservation used the session again.

    Cure: leave the ``with`` block (it publishes) before the next send or ``acquire`` on the same session.
    """


class WrongProcess(IpcBusError):
    """A handle made before a fork was used in the child.

    The rings, descriptors and threads behind it belong to the parent, which goes on undisturbed. Cure: make a
    new ``Context`` in the child.
    """


class WrongThread(IpcBusError):
    """Two threads used a context in sequential mode at the same time.

    Cure: drive the context from one thread, or make it with ``operational_mode="embedded"``.
    """


class TransportError(IpcBusError):
    """A transport session cannot be made or joined: the root of the five classes below.

    Cure: that of the class actually raised; the text names the session and what the system answered.
    """


class SharedMemoryFull(TransportError):
    """/dev/shm has no room for a segment, found out before any byte of it was used.

    Cure: the text gives the bytes needed and free; make the transmission window smaller, give the container
    more shared memory (``--shm-size``), or reclaim what dead processes left: ``ipcbus doctor --reclaim``.
    """


class LayoutMismatch(TransportError):
    """A segment was written by a release of ipcbus that describes its bytes differently.

    Cure: run the same release on both sides; the text names both.
    """


class PermissionRefused(TransportError):
    """The system refuses this user the segment of another one.

    Cure: run both sides as one user, or have the owner set ``shared_memory_group`` to a group that both are
    in.
    """


class SessionGone(TransportError):
    """The transport session ended, or its owner died, while it was being joined or used.

    Cure: none is needed for a receiver, which joins the next session of its topic; for an explicit join, look
    with ``ipcbus list`` for what exists now.
    """


class SegmentDamaged(TransportError):
    """The shared memory of a transport session was cut short while it was in use, so that parts of it are gone.

    Cure: close the sources of the session and make new ones; find out which program truncates files in /dev/shm.
    """


class GmdError(IpcBusError):
    """Guaranteed message delivery cannot keep its promise: the root of the three classes below.

    Cure: that of the class actually raised; the text names the GMD area and what the system answered.
    """


class GmdAreaFull(GmdError):
    """The GMD area holds as many unacknowledged bytes as it may; the message was not sent.

    Cure: let receivers acknowledge, raise the limit with ``gmd_set_max_size``, or give up messages with
    ``gmd_delete``.
    """


class GmdAreaDamaged(GmdError):
    """The files of a GMD area contradict their checksums in more than the unfinished last record.

    Cure: the text names file and offset; restore the directory, or start with an empty one and have the
    sender send again.
    """


class GmdAreaLocked(GmdError):
    """Another live process uses this GMD area.

    Cure: give each process its own ``gmd_name`` or directory; the text names the process that holds it.
    """


class StorageError(IpcBusError):
    """The system refuses to read or write a file: the root of the class below.

    Cure: the text names the file, what was to be done with it and what the system answered.
    """


class StorageFull(StorageError):
    """The disk, or the quota on it, has no room for what was to be written; nothing of it counts as written.

    Cure: the text names the file and the bytes; make room, keep less (``--retain-bytes``), or use another disk.
    """


class ArchiveError(IpcBusError):
    """An archive of recorded traffic cannot be used: the root of the four classes below.

    Cure: that of the class actually raised; the text names the archive and the log in it.
    """


class ArchiveMissing(ArchiveError):
    """There is no archive at a path, or another one than was asked for.

    Cure: give the directory that ``ipcbus record --to`` wrote. An archive lies on the host, or on the shared
    storage, of its recorder; the text names this host, and both ids where another archive was found.
    """


class ArchiveLocked(ArchiveError):
    """Another live process writes this log of the archive.

    Cure: give each recorder a ``--stream`` of its own; the text names the process.
    """


class ArchiveDamaged(ArchiveError):
    """The bytes of an archive contradict their checksums below the high-watermark.

    Cure: ``ipcbus archive verify`` names what is damaged, ``ipcbus archive repair`` takes it out and notes the
    loss.
    """


class OffsetsExpired(ArchiveError):
    """Offsets were asked for that the archive no longer has, or never will have.

    Cure: start from what there is (the text says which), keep data longer (``--retain-bytes``,
    ``--retain-hours``), or give the consumer a cursor that holds it.
    """


class SinkError(IpcBusError):
    """Spark's rows cannot be published: a row is no message, or a promise of the sink would be broken.

    Cure: the text names the row, or the query and the staging directory, and what has to change.
    """
