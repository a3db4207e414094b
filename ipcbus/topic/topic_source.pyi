"""Puts messages into the open datagram: numbers, fragments, writing in place; one compiled call for each message."""

from collections.abc import Iterable
from types import TracebackType

from ipcbus.errors import ClosedError
from ipcbus.topic.batch import BatchWriter
from ipcbus.topic.message_retention import Retention
from ipcbus.topic.message_saver import MessageSaver
from ipcbus.wire.properties import Buffer, Headers

class TopicSource:
    """The sending handle of one topic.

    `message_max` is the length in bytes of the longest message in one piece; on LBT-SMX of the longest message at all.
    """

    topic: str
    message_max: int
    _guaranteed_numbers: int
    """How many sequence numbers its guaranteed messages have."""

    def __init__(self, batch: BatchWriter, topic: str, topic_number: int, message_max: int = 0) -> None:
        """Begins without messages; with a `message_max` of 0 the datagram limits the messages."""

    @property
    def _batch(self) -> BatchWriter:
        """The open datagram of its session."""

    @property
    def sequence_number(self) -> int:
        """The sequence number of the last message; -1 before the first message."""

    @property
    def closed(self) -> bool:
        """Whether the source, or its context, is closed."""

    def send(
        self,
        data: Buffer,
        *,
        headers: Headers | None = None,
        flush: bool = False,
        start_batch: bool = False,
        end_batch: bool = False,
        block: bool = True,
        delivery_mode: str | None = None,
        delivery_timeout: float | None = None,
    ) -> None:
        """Sends one message; the source has copied the bytes before the call returns.

        A message longer than `message_max`, headers included, is sent in fragments, each with a number of its own.

        Args:
            data: bytes-like and contiguous; may be empty.
            headers: names and bytes-like values that go with the message, as a mapping or as pairs; a name may come
                more than once. A name has 1 to 255 bytes of UTF-8. The names and values of a message, 3 bytes for each
                header and 2 bytes for all of them are limited to 65535 bytes, and count as bytes of the message.
            flush: publish the message at once, with the batch before it (intelligent batching).
            start_batch: begin an explicit batch: the messages of the session wait for its end, for a full datagram, for
                a `flush`, or for `explicit_batching_interval`; on LBT-SMX none waits. The receiver sees the flag.
            end_batch: end the explicit batch with this message; the batch then leaves by size and age, or at once with
                `flush`. The receiver sees the flag.
            block: wait while a receiver-paced ring is full. If false, raise `WouldBlock` then.
            delivery_mode: `best_effort`, `ordered`, `some` or `all`; None takes that of the source (option
                delivery_mode). The last two need option `gmd_name`: a copy of the message is in the GMD area when the
                call returns, until one expected receiver (`some`) or each of them (`all`) has acknowledged it.
            delivery_timeout: seconds after which a `some` or `all` message that was not acknowledged is a failure
                (event GMD_FAILURE); 0: never; None takes that of the source (option delivery_timeout).

        Raises:
            ipcbus.MessageTooLarge: the message with its headers is longer than 2**31 - 1 bytes, or on LBT-SMX than
                `message_max`; the headers take more than 65535 bytes; a message in fragments must not wait (`block` is
                false, or the caller is inside a message callback) and is longer than a receiver-paced window; or a
                share has had a member, and the message takes more than `retransmit_retention_size_limit` bytes.
            ipcbus.WouldBlock: the ring is full, and `block` is false or the caller is inside a message callback.
            ipcbus.ClosedError, ipcbus.WrongProcess: the source is closed, or belongs to the parent of a fork.
            ipcbus.ReservationError: this thread is inside an `acquire` block of the session.
            ipcbus.SegmentDamaged: another program has cut the shared memory of the session short.
            TypeError, BufferError: `data` is not bytes-like and contiguous, or a header is not a text and bytes.
            ValueError: the name of a header is empty, too long, or not valid in UTF-8; or the timeout is negative.
            ipcbus.ConfigError: there is no such delivery mode, or a `some` or `all` message needs a `gmd_name`; or a
                message that is not guaranteed has a timeout.
            ipcbus.GmdAreaFull, ipcbus.GmdError: the GMD area has no room, or cannot be written. A message whose send
                raises is not sent, and no copy of it is kept.
        """

    def _send_request(self, data: Buffer, number: int, headers: Headers | None = None, block: bool = True) -> None:
        """Sends a request, and publishes it with its batch; `Source.request` and its relatives use it.

        Args:
            data: as in `send`.
            number: the number of the request, 64 bits, with which the responses come back.
            headers: as in `send`.
            block: as in `send`.

        Raises:
            ipcbus.IpcBusError, TypeError, BufferError, ValueError: as in `send`.
        """

    def send_many(
        self,
        messages: Buffer | Iterable[Buffer],
        *,
        flush: bool = False,
        block: bool = True,
        delivery_mode: str | None = None,
        delivery_timeout: float | None = None,
    ) -> int:
        """Sends many messages in one call, and returns how many were sent.

        Args:
            messages: an iterable of bytes-like objects; or a C-contiguous array, of which each row is a message: a 2-D
                array of uint8, or a 1-D array of structured or other items.
            flush: publish the last batch at the end of the call. LBT-SMX always does.
            block: as in `send`. After `WouldBlock`, `sequence_number` shows how far the call came.
            delivery_mode: of each message, as in `send`.
            delivery_timeout: of each message, as in `send`.

        Raises:
            TypeError: an item is not bytes-like (the text names its index; those before it were sent), or the array
                has another shape, or holds references to objects.
            ipcbus.IpcBusError: as in `send`.
        """

    def acquire(
        self, length: int, *, delivery_mode: str | None = None, delivery_timeout: float | None = None
    ) -> Reservation:
        """Reserves `length` bytes in the ring, in which the caller writes a message without a copy.

        Use it as `with src.acquire(n) as buf:`. `buf` is a writable memoryview; overwrite all of its old bytes. The end
        of the block publishes the message; an exception cancels it. After the block `buf` is released, and using it
        raises ValueError. An array made from `buf` may be kept: after the block it has memory of its own.

        If another thread closes the source or the context during the block, that thread waits for
        `acquire_close_timeout` (ms). After this time the message is not sent, and the block ends with `ClosedError`. So
        does a block in which the source or the context is closed.

        Args:
            length: bytes of the message, 0 to `message_max`, or 8 less for a guaranteed message.
            delivery_mode: as in `send`. A guaranteed message is copied into the GMD area at the end of the block, which
                raises the errors of that copy; the message is then not sent.
            delivery_timeout: as in `send`.

        Raises:
            ipcbus.MessageTooLarge: `length` exceeds `message_max`; a message that is written in place has no fragments.
            TypeError, ValueError: `length` is not a whole number, or is negative.
            ipcbus.IpcBusError: as in `send`, when the block begins.
        """

    def flush(self) -> None:
        """Publishes the open batch of the session, which all its sources share; raises errors as `send` does."""

    def _guarantee(self, saver: MessageSaver | None, mode: int, timeout_ns: int) -> None:
        """Lets it send guaranteed messages from now on; with None, none.

        Args:
            saver: keeps their copies.
            mode: the mode of messages that give none.
            timeout_ns: the timeout of messages that give none, in ns; 0 for none.
        """

    def _is_guaranteeing(self) -> bool:
        """Returns whether a thread sends a guaranteed message now."""

    def _retain(self, retention: Retention | None) -> None:
        """Retains each message from now on there; with None it retains none."""

    def _feed_shares(self) -> None:
        """Refuses from now on messages that are longer than all that it retains; it retains what it sends already."""

    def _hold(self, holds: bool) -> None:
        """Makes sends wait, or lets them go on."""

    def _is_shut(self) -> bool:
        """Returns whether sends wait, for members of a share or for a thread that sends fragments, or are refused."""

    def _closed_error(self) -> ClosedError:
        """Returns the error that a use of the closed source raises."""

    def _refuse_sends(self) -> None:
        """Refuses sends from now on."""

    def _idle_ns(self, now_ticks: int) -> int | None:
        """Returns the ns since its last message; None before the first."""

    def _ns_since_info(self, now_ticks: int) -> int:
        """Returns the ns since its last message or topic sequence number info, whichever was later."""

    def _put_info(self) -> bool:
        """Puts topic sequence number info into the open datagram; returns False when there is no room.

        `BatchWriter.send_infos` calls it and publishes the datagram.
        """

class Reservation:
    """A place in the ring for one message; a context manager that gives a writable memoryview."""

    def __enter__(self) -> memoryview: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
