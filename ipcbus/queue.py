"""`ipcbus.Queue`: a queue of objects between processes, with the semantics of `multiprocessing.Queue`.

An item is encoded by `queue_items` in the caller's thread and stands in shared memory when `put` returns
(`ringbuf.item_ring`): there is no thread that feeds a pipe.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from multiprocessing import context, reduction
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ipcbus import queue_items
from ipcbus.errors import ConfigError, MessageTooLarge, QueueClosed
from ipcbus.runtime.error_mapping import as_ipcbus_error, typed
from ringbuf.item_layout import ITEM_CHUNK, ITEM_CHUNKS_MAX
from ringbuf.item_ring import ItemRing, create_item_ring
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

BYTES_MAX = (ITEM_CHUNKS_MAX - 1) * ITEM_CHUNK
"""Most bytes of the items in any queue: 64 GiB."""

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """What has happened in a queue since it was made, in all processes.

    Attributes:
        put: items that were put.
        taken: items that were taken off.
        cut_puts: items that a process was writing when it was killed; they never were in the queue.
        cut_gets: items that a process was reading when it was killed; another process got them.
        refused: items that were dropped because they were not signed with the key, or not encoded by a queue.
    """

    put: int
    taken: int
    cut_puts: int
    cut_gets: int
    refused: int


class Queue(Generic[T]):
    """A queue between processes, to be used in place of `multiprocessing.Queue`.

    Pass it to a process as an argument, with any start method: `Process(target=work, args=(queue,))`. Any number of
    processes and threads may put and get.

    `bytes`, `bytearray`, `str`, numbers, `None`, numpy arrays and `msgspec.Struct` objects go without pickle. All other
    objects are pickled and signed with a key that only child processes inherit; the signature is checked before
    anything is unpickled. Such objects go only between processes of one user.

    An item is in the queue when `put` returns, so items of several processes stay in the order in which their puts
    returned, and they outlive the process that put them, also when it is killed.

    One process puts at a time, and one gets. A call with a timeout, or with `block=False`, waits for its turn beyond
    its timeout, as a healthy process needs some microseconds only: up to 20 ms beside a call of another process that
    does not go on, because the process is stopped or copies a very long item, and up to 200 ms in all while others get
    their turns. Then it raises `Full` or `Empty`, though there may be room or an item.
    """

    def __init__(self, maxsize: int = 0, *, max_bytes: int | None = None) -> None:
        """Makes a queue.

        Args:
            maxsize: most items in the queue; 0 or less for no limit.
            max_bytes: most bytes of the items in the queue, each with 16 to 55 bytes beside its own; by default the
                memory of this host, at most 64 GiB. Bytes are counted in steps of 64 KiB: the limit is rounded up, and
                a full queue may hold 64 KiB more. Memory is used only for items that wait, and some for the next.

        Raises:
            ConfigError: a limit is not a whole number, or `max_bytes` is not between 1 and 64 GiB.
            TransportError: the system has no memory or no descriptor for the queue, or limits the size of files.
        """
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        most = min(memory, BYTES_MAX) if max_bytes is None else max_bytes
        limits: tuple[tuple[str, object], ...] = ("maxsize", maxsize), ("max_bytes", most)
        for name, value in limits:
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{name}={value!r} of the queue is not a whole number; give an int")
        if not 0 < most <= BYTES_MAX:
            raise ConfigError(f"max_bytes={most} of the queue is out of range; give 1 to {BYTES_MAX}")
        with typed("make a queue"):
            fd = create_item_ring(bytes_max=most, items_max=min(max(maxsize, 0), 2**63))
        self._attach(fd, os.urandom(_KEY_BYTES))

    def _attach(self, fd: int, key: bytes) -> None:
        self._closed = False
        self._key = key
        try:
            with typed("map a queue"):
                self._ring = ItemRing(fd, key)
        except BaseException:
            os.close(fd)
            raise
        self._put = self._ring.put
        self._get = self._ring.get

    def __reduce__(self) -> tuple[Callable[..., Queue[Any]], tuple[object, bytes]]:
        """Passes the queue to a process that is being started; refuses any other way, as it would give the key away."""
        context.assert_spawning(self)
        return _inherit, (reduction.DupFd(self._ring.fd), self._key)

    def put(self, obj: T, block: bool = True, timeout: float | None = None) -> None:
        """Puts an item into the queue; it is there when the call returns.

        Args:
            obj: the item. It is encoded at once, so that later changes of the object do not change the item; an error
                of pickle is raised here.
            block: whether to wait for room.
            timeout: most seconds to wait; None for ever. The call may wait 0.2 s longer for its turn, see the class.

        Raises:
            queue.Full: there is no room in time, or other processes put items all the time.
            QueueClosed: this process has closed the queue.
            MessageTooLarge: the item is longer than `max_bytes` of the queue.
            PermissionRefused: the item has to be pickled, and the queue belongs to another user.
            SharedMemoryFull: the system has no memory for the item.
        """
        if self._closed:
            raise _closed()
        kind, front, body = queue_items.encode(obj)
        try:
            done = self._put(kind, front, body, timeout if block else 0)
        except RingError as error:
            raise as_ipcbus_error(error) from error
        except ValueError as error:
            raise self._too_large(front, body) or error from error
        if not done:
            raise Full

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Takes the next item off the queue.

        Args:
            block: whether to wait for an item.
            timeout: most seconds to wait; None for ever. The call may wait 0.2 s longer for its turn, see the class.

        Returns:
            The item; arrays and bytearrays belong to the caller and may be changed.

        Raises:
            queue.Empty: there is no item in time, or other processes take items all the time.
            QueueClosed: this process has closed the queue.
            PermissionRefused: the next item is pickled, and the queue belongs to another user.
            SegmentDamaged: another program wrote into the memory of the queue.
        """
        while True:
            if self._closed:
                raise _closed()
            try:
                found = self._get(timeout if block else 0)
            except RingError as error:
                raise as_ipcbus_error(error) from error
            if found is None:
                raise Empty
            kind, data = found
            try:
                return queue_items.decode(kind, data)  # type: ignore[no-any-return]
            except queue_items.NotAnItemError:
                self._ring.refuse()

    def put_nowait(self, obj: T) -> None:
        """Puts an item without waiting for room; see the class for the wait for its turn.

        Args:
            obj: the item.

        Raises:
            queue.Full: there is no room now, or other processes put items all the time.
        """
        self.put(obj, False)

    def get_nowait(self) -> T:
        """Takes the next item off without waiting for one; see the class for the wait for its turn.

        Raises:
            queue.Empty: there is no item now, or other processes take items all the time.
        """
        return self.get(False)

    def qsize(self) -> int:
        """Returns the number of items in the queue; exact, if no other process uses it at the same time."""
        return self._ring.qsize()

    def empty(self) -> bool:
        """Returns whether the queue has no item now."""
        return self._ring.qsize() == 0

    def full(self) -> bool:
        """Returns whether the queue has `maxsize` items now."""
        return 0 < self._ring.items_max <= self._ring.qsize()

    def close(self) -> None:
        """Says that this process uses the queue no more; other processes go on, and get what it has put."""
        self._closed = True

    def join_thread(self) -> None:
        """Returns at once, as no thread holds items back; for programs written for `multiprocessing.Queue`.

        Raises:
            ValueError: the queue is not closed.
        """
        if not self._closed:
            raise ValueError(f"{self!r} is not closed; call close() before join_thread()")

    def cancel_join_thread(self) -> None:
        """Does nothing, as the end of a process waits for no thread; for programs for `multiprocessing.Queue`."""

    @property
    def counts(self) -> QueueCounts:
        """What has happened in the queue since it was made, in all processes."""
        return QueueCounts(*self._ring.counts())

    def __repr__(self) -> str:
        """Returns the number of items and the limit."""
        return f"<ipcbus.Queue with {self.qsize()} items, maxsize={self._ring.items_max}>"

    def _too_large(self, front: bytes, body: Any) -> MessageTooLarge | None:  # noqa: ANN401 - any buffer
        """Returns the error for an item that is longer than any that fits; None if that is not what is wrong."""
        size = len(front) + (memoryview(body).nbytes if body is not None else 0)
        if size <= self._ring.item_max:
            return None
        return MessageTooLarge(
            f"an item of {size} bytes does not fit into the queue, which takes {self._ring.item_max}; put it in parts, "
            f"or make the queue with a larger max_bytes, Queue(max_bytes={size + 2 * ITEM_CHUNK})"
        )


def _closed() -> QueueClosed:
    return QueueClosed("Queue is closed: this process has called close(); make a new queue")


def _inherit(wrapped: Any, key: bytes) -> Queue[Any]:  # noqa: ANN401 - what multiprocessing makes of a descriptor
    """Maps the queue in a process that got it as an argument."""
    fd = wrapped.detach()
    with contextlib.suppress(OSError):
        os.set_inheritable(fd, False)
    queue: Queue[Any] = Queue.__new__(Queue)
    queue._attach(fd, key)
    return queue
