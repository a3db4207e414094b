"""Messages into the open record: numbering and batching in place, one compiled call a message."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any

from ipcbus.topic.policy import Policy
from ringbuf.ring import RingWriter

Buffer = Any
"""bytes, bytearray, memoryview, or an array: anything with a contiguous buffer."""

class BatchWriter:
    """The open datagram of one session. Its sources share it.

    A message goes straight into the open record; publishing is one word. A record is published when it holds
    `minimum_length` bytes or more, when the next message would not fit into `datagram_max`, when asked to, or when
    the layer above finds it older than the batching interval. (Concepts guide, implicit batching.)
    """

    ring: RingWriter
    datagram_max: int
    gate: int
    held: int
    on_timer: bool
    """Whether somebody watches the batching interval; cleared by whoever stops watching."""

    def __init__(
        self,
        ring: RingWriter,
        policy: Policy,
        *,
        minimum_length: int,
        datagram_max: int,
        topics_max: int,
        topics_offset: int,
    ) -> None:
        """Over a ring of this process.

        Args:
            ring: the writing end.
            policy: see `Policy`.
            minimum_length: bytes of a datagram that publish it; 0 publishes each message.
            datagram_max: most bytes of a datagram, message headers included.
            topics_max: lines in the ring's user area; a power of two.
            topics_offset: where the lines begin in the ring object, in bytes.
        """

    def flush(self) -> bool:
        """Publishes the open record; says whether there was one. Waits for nothing."""

    def flush_older(self, now_ticks: int, age_ns: int) -> int:
        """Publishes the open record if it is that old; returns the ns left until it will be, or -1 without one."""

    def settle(self) -> None:
        """Waits until no other thread writes in place any more, and publishes what is open."""

    def close(self) -> None:
        """Refuses sends from now on; the open record must have been flushed."""

    def fork_child(self) -> None:
        """Refuses sends from now on because this process is the child of a fork."""

class TopicSource:
    """The sending handle of one topic."""

    batch: BatchWriter
    topic: str
    closed: bool
    message_max: int
    """Longest message in bytes."""

    def __init__(self, batch: BatchWriter, topic: str, topic_number: int) -> None: ...
    @property
    def sequence_number(self) -> int:
        """Number of the last message; -1 before the first."""

    def send(
        self,
        data: Buffer,
        *,
        flush: bool = False,
        start_batch: bool = False,
        end_batch: bool = False,
        block: bool = True,
    ) -> None:
        """Sends one message; its bytes are copied before the call returns.

        Args:
            data: bytes-like, contiguous; empty is valid.
            flush: publish at once, with whatever is batched before it (intelligent batching).
            start_batch: the first message of an explicit batch; nothing is published for its size or age until its
                end. The receiver sees the flag.
            end_batch: the last message of an explicit batch. The receiver sees the flag.
            block: wait while a receiver-paced ring is full.

        Raises:
            ipcbus.MessageTooLarge: longer than `message_max`.
            ipcbus.WouldBlock: the ring is full and `block` is false, or the caller is inside a message callback.
            ipcbus.ClosedError: the source or its context is closed.
            ipcbus.ReservationError: this thread is inside an `acquire` block of the session.
            ipcbus.WrongProcess: the context was made before a fork, in the parent.
            BufferError, TypeError: `data` is not bytes-like or not contiguous.
        """

    def send_many(self, messages: Buffer | Iterable[Buffer], *, flush: bool = False, block: bool = True) -> int:
        """Sends many messages in one call.

        Args:
            messages: a 2-D uint8 array or a 1-D array of structured or other items, a row a message, C-contiguous;
                or an iterable of bytes-like.
            flush: publish the last batch at the end; LBT-SMX always does.
            block: as in `send`; on `WouldBlock` `sequence_number` tells how far it came.

        Returns:
            How many messages were sent.

        Raises:
            As `send`.
        """

    def acquire(self, length: int) -> Reservation:
        """Reserves `length` bytes in the ring for writing in place.

        Used as `with src.acquire(n) as buf:`. At the block's end the message is published; an exception cancels it,
        and its number is not used.

        Raises:
            As `send`; on entering the block.
        """

    def flush(self) -> None:
        """Publishes what is batched on the whole session."""

    def drop(self) -> None:
        """Refuses sends from now on."""

class Reservation:
    """A place in the ring; a context manager that gives a writable memoryview."""

    def __enter__(self) -> memoryview: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
