"""Messages and events as an application gets them."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ipcbus.delivery.message_types import FragmentInfo, MessageType
from ipcbus.delivery.slow_path import Responder
from ipcbus.wire.array_form import Shape
from ipcbus.wire.properties import Buffer

class QuickResponder:
    """Takes the responses to the requests of a session (`Responder`); a compiled subclass takes `bytes` at once.

    Its `respond_now` gets the number of the request and the response; it returns False, and has done nothing, when
    `respond` has to take the response.
    """

class Origin:
    """A topic of a session, from which messages come."""

    topic: str
    source: str
    number: int
    """The number of the topic in its session, which gives no number twice; -1 where it does not matter."""
    responder: Responder | None
    """What takes the responses to its requests; None where requests cannot be answered."""
    gmd_sender: str | None
    gmd_incarnation: int

    def __init__(self, topic: str, source: str, number: int = -1) -> None: ...
    def set_sender(self, sender: str, incarnation: int) -> None:
        """Takes note who sends the guaranteed messages."""

class Message:
    """A message or an event of one source.

    Inside a callback a message looks into the ring. A message that the application keeps gets its own copy of the
    bytes when the callback returns.

    Attributes:
        flags: bits of `MessageFlag`, in 32 bits: 0x1 marks the first and 0x2 the last message of an explicit batch, 0x8
            a message that late join brought, 0x2000 one that off-transport recovery brought, 0x10000 one that
            guaranteed delivery sent again, 0x40000 one of a share, and 0x20000 one that another member had before. With
            `ordered_delivery` 0 also 0x10, for each fragment of a message with headers: the bytes of these fragments,
            put together, begin with a header block, which `ipcbus.wire.properties` takes apart; 0x40 for each fragment
            of a request, which cannot be answered; and 0x80 for each fragment of a guaranteed message. The bytes of the
            fragments of a request, or of a guaranteed message, begin with the number of the request or with the GMD
            number, which has 8 bytes.
    """

    flags: int

    @property
    def type(self) -> MessageType:
        """The kind of the message: `DATA`, or the kind of the event."""

    @property
    def data(self) -> bytes:
        """The payload as a copy of its own; empty for an event."""

    @property
    def view(self) -> memoryview:
        """The payload, read-only.

        Inside a callback on a receiver-paced session the view lies in the ring, without a copy, until the callback
        returns. Then the view is released, and using it raises ValueError. An array made from the view, such as
        `numpy.frombuffer(message.view)`, may be kept. When the callback returns, the array gets memory of its own with
        the same bytes at the same address, and never shows a later message. That costs more than a copy, so that some
        of the views that follow are copies. The counter `views_kept` counts the messages of which an array was kept,
        and the first one of a session is logged. Do not keep an object that remembers the address without holding the
        buffer, as tensors of some libraries do.

        Everywhere else the view is of the message's own bytes and stays valid: in every other form of receiving, on
        sessions that are source-paced or evict, and for a message with headers or in fragments.
        """

    def array(self, shape: Shape, dtype: DTypeLike) -> np.ndarray[Any, Any]:
        """The payload as a read-only array of numpy, without a copy.

        Inside a callback on a receiver-paced session the array lies in the ring. It may be kept, as arrays of `view`:
        when the callback returns, it gets memory of its own with the same bytes. Everywhere else it is of the message's
        own bytes.

        Args:
            shape: the lengths of the array, a whole number or a sequence of them.
            dtype: the type of its items; not with references to objects.

        Raises:
            TypeError, ValueError: there is no such array, or it has another length than the message.
        """

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Name and value of each header, in the order in which they were sent; empty without headers and for an event.

        Headers are not part of `data`, `view` and the length.
        """

    @property
    def properties_block(self) -> bytes:
        """The headers in the form in which they were sent, for `ipcbus.wire.properties`; empty without headers."""

    @property
    def topic(self) -> str:
        """The name of the topic."""

    @property
    def source(self) -> str:
        """The source string of the session, for example `LBT-IPC:6481f8d4:20001`."""

    @property
    def sequence_number(self) -> int:
        """The topic sequence number; of a loss, the last lost number; -1 for BOS and EOS.

        A guaranteed message that an earlier session of its source sent has -1, too: `gmd_sequence_number` numbers it.
        """

    @property
    def first_sequence_number(self) -> int:
        """The first number that the message or the loss spans."""

    @property
    def gmd_sequence_number(self) -> int:
        """The GMD number of a guaranteed message, from 1 on; 0 for other messages."""

    @property
    def first_gmd_sequence_number(self) -> int:
        """With GMD_FAILURE the first of the GMD numbers that it spans; else `gmd_sequence_number`."""

    @property
    def gmd_sender(self) -> str | None:
        """The `gmd_name` of the source of a guaranteed message; None for other messages.

        It is None, and `gmd_incarnation` is 0, in a receiver without a `gmd_name`, too. Together with `gmd_incarnation`
        and `gmd_sequence_number` it names one message of a topic, also when the message is sent again.
        """

    @property
    def gmd_incarnation(self) -> int:
        """The random number of 64 bits that the area of `gmd_sender` got when it was made; 0 where there is no sender.

        It may have the highest bit, which integers of many databases lack. `ipcbus gmd` shows 16 hexadecimal digits.
        """

    @property
    def send_time_ns(self) -> int:
        """The send time in ns since the Unix epoch, by the clock of the source's host; 0 for an event.

        A message in fragments has the send time of its first fragment. A message of one `send_many` on LBT-SMX has the
        time at which its datagram was begun.
        """

    @property
    def fragment_info(self) -> FragmentInfo | None:
        """Which bytes of which message these are; None for a message that was sent in one piece.

        A reassembled message has the first number of its fragments, offset 0 and its length. With `ordered_delivery` 0
        a fragment has its own offset and the length of the whole message. Headers count in both.
        """

    def respond(self, data: Buffer) -> None:
        """Answers a request; the response goes straight back to the context that asked.

        A request may be answered several times, inside the callback or later, and from any thread. The asking side
        drops a response that comes too late. Inside a callback the call never waits.

        Args:
            data: bytes-like and contiguous; may be empty.

        Raises:
            ipcbus.WouldBlock: the caller is inside a callback, and the channel to the asking context is full.
            ipcbus.SessionGone: the session of the request, or the context that asked, has ended.
            ipcbus.MessageTooLarge: the response is longer than the channel to the asking context takes.
            ipcbus.ClosedError, ipcbus.WrongProcess: the context is closed, or belongs to the parent of a fork.
            ipcbus.IpcBusError: the message is not a request.
            TypeError, BufferError: `data` is not bytes-like and contiguous.
        """

    @property
    def return_address(self) -> bytes:
        """The way back to the context that sent a request, for `Context.respond`; empty for other messages."""

    def ack(self) -> None:
        """Acknowledges a guaranteed message, or one of a share; does nothing for others, and none the second time.

        Call it where option ipc_gmd_auto_ack is false, or before the message would be acknowledged by itself. Any
        thread may call it, also after the callback. A message that its receiver has not acknowledged when it is closed,
        or killed, comes again when a receiver of the same `gmd_name` is made; one of a share goes to another member.
        """

    def nack(self, delay: float = 0) -> None:
        """Refuses a message: it is delivered again; does nothing for a message that is acknowledged.

        A guaranteed message comes with flag GMD_RESEND, and messages behind it may come before it. After
        `gmd_max_deliveries` deliveries the receiver gives it up instead, so that the source gets a failure. A message
        of a share goes to any member, with flag UMQ_REASSIGNED.

        Args:
            delay: seconds until it is delivered again; 0 is a backoff that grows with each delivery.

        Raises:
            ValueError: `delay` is negative or not a number of seconds.
        """

    def _refuse(self, delay_ns: int | None) -> None:
        """Refuses the message; None takes a backoff as delay."""

    def __bool__(self) -> bool:
        """Returns True, also for an empty message and for an event, so that only the absence of a message is false."""

    def __len__(self) -> int:
        """Returns the bytes of the payload, without headers."""

def whole_message(
    origin: Origin,
    own: bytes,
    first: int,
    last: int,
    flags: int,
    send_ticks: int,
    fragment: FragmentInfo | None,
    block: bytes | None = None,
    published_ticks: int = 0,
    request: int | None = None,
    gmd_number: int = 0,
) -> Message:
    """Returns a message of these bytes and this header block; it has the sequence numbers `first` to `last`.

    With `request` it is the request of this number, and with `gmd_number` the guaranteed message of this GMD number.
    """

def resent_message(
    origin: Origin,
    gmd_number: int,
    send_time_ns: int,
    topic_numbers: tuple[int, int] | None,
    block: bytes,
    data: bytes,
    flags: int = ...,
) -> Message:
    """Returns a guaranteed message that a source has sent again.

    Args:
        origin: the source.
        gmd_number: its GMD number.
        send_time_ns: when it was sent for the first time, in ns since the epoch.
        topic_numbers: the first and last sequence number that it had; None if another session sent it, then it has -1.
        block: its header block; empty without headers.
        data: its value.
        flags: bits of `MessageFlag`; GMD_RESEND by default.
    """

def response(origin: Origin, data: Any, request: int) -> Message:  # noqa: ANN401 - any bytes-like
    """Returns a response to the request of this number."""

def event(origin: Origin, kind: int, first: int, last: int, following: int = 0) -> Message:
    """Returns an event of a source.

    Args:
        origin: the source.
        kind: a `MessageType`.
        first: the first sequence number of a loss; -1 for other events.
        last: the last sequence number of a loss; -1 for other events.
        following: with an end, for compiled callbacks: the number that the next message would have had; 0 when that is
            not known.
    """

def given_up(origin: Origin, first: int, last: int) -> Message:
    """Returns a GMD_FAILURE: the source's application has deleted the messages of the GMD numbers first..last."""
