"""Messages into the open datagram: numbering, fragments, writing in place; one compiled call a message."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any

from ipcbus.errors import ClosedError
from ipcbus.topic.batch import BatchWriter
from ipcbus.wire.properties import Headers

Buffer = Any
"""bytes, bytearray, memoryview, or an array: anything with a contiguous buffer."""

class TopicSource:
    """The sending handle of one topic."""

    topic: str
    closed: bool
    message_max: int
    """Longest message in bytes that goes in one piece; on LBT-SMX the longest of all."""

    def __init__(self, batch: BatchWriter, topic: str, topic_number: int) -> None: ...
    @property
    def _batch(self) -> BatchWriter:
        """The open datagram of its session."""

    @property
    def sequence_number(self) -> int:
        """Number of the last message; -1 before the first."""

    def send(
        self,
        data: Buffer,
        *,
        headers: Headers | None = None,
        flush: bool = False,
        start_batch: bool = False,
        end_batch: bool = False,
        block: bool = True,
    ) -> None:
        """Sends one message; its bytes are copied before the call returns.

        A message longer than `message_max`, its headers counted, is sent in fragments, each with a number of its own.

        Args:
            data: bytes-like, contiguous; empty is valid.
            headers: names and bytes-like values that go with the message, as a mapping or as pairs: `Message.headers`
                has them in their order, and a name may come more than once. Names are 1 to 255 bytes of UTF-8; all of
                it, with 3 bytes more a header and 2 more a message, takes at most 65535 bytes. They count as bytes of
                the message in limits and statistics. None, or none in it, costs nothing.
            flush: publish at once, with whatever is batched before it (intelligent batching).
            start_batch: the first message of an explicit batch; nothing is published for its size or age until its
                end. The receiver sees the flag.
            end_batch: the last message of an explicit batch. The receiver sees the flag.
            block: wait while a receiver-paced ring is full.

        Raises:
            ipcbus.MessageTooLarge: longer than 2**31 - 1 bytes, on LBT-SMX than `message_max`; or longer than the
                window holds, where it must not wait; or the headers take more than 65535 bytes.
            ipcbus.WouldBlock: the ring is full and `block` is false, or the caller is inside a message callback.
            ipcbus.ClosedError: the source or its context is closed.
            ipcbus.ReservationError: this thread is inside an `acquire` block of the session.
            ipcbus.WrongProcess: the context was made before a fork, in the parent.
            BufferError, TypeError: `data` is not bytes-like or not contiguous; headers are no texts and bytes.
            ValueError: the name of a header is empty, too long, or has no form in UTF-8.
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

        Used as `with src.acquire(n) as buf:`. `buf` is a writable memoryview of old bytes, to be overwritten. At the
        block's end the message is published; an exception cancels it, and its number is not used. Then `buf` is
        released, and using it raises ValueError. An array made from `buf` may be kept, but what is written to it after
        the block does not reach the ring: at the block's end the array gets memory of its own with the same bytes.

        When another thread closes the source or the context meanwhile, closing waits for the block for
        `acquire_close_timeout`; after that the message is not sent, and the block ends with ClosedError.

        Raises:
            ipcbus.MessageTooLarge: `length` exceeds `message_max`: what is written in place is not fragmented.
            TypeError, ValueError: `length` is not a whole number, or negative.
            Otherwise as `send`; on entering the block.
        """

    def flush(self) -> None:
        """Publishes what is batched on the whole session."""

    def _closed_error(self) -> ClosedError:
        """Returns what a use of the closed source raises."""

    def _drop(self) -> None:
        """Refuses sends from now on."""

    def _idle_ns(self, now_ticks: int) -> int | None:
        """Time since its last message; None before the first."""

    def _uninformed_ns(self, now_ticks: int) -> int:
        """Time since its last message or topic sequence number info, whichever was later."""

    def _put_info(self) -> bool:
        """Puts topic sequence number info into the open datagram; False when there is no room.

        Not published by this: `BatchWriter.inform` does both.
        """

class Reservation:
    """A place in the ring; a context manager that gives a writable memoryview."""

    def __enter__(self) -> memoryview: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
