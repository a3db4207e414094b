"""What an application gets: a message or an event."""

from ipcbus.delivery.message_types import FragmentInfo, MessageType

class Origin:
    """Where messages come from: a topic of a session."""

    topic: str
    source: str
    def __init__(self, topic: str, source: str) -> None: ...

class Message:
    """A message or an event of one source.

    Inside a callback it looks into the ring; who keeps it longer gets its own copy of the bytes without asking.
    """

    flags: int
    """Bits: 0x1 first, 0x2 last message of an explicit batch.

    With `ordered_delivery` 0 also 0x10, of each fragment of a message with headers: its bytes, put together, begin with
    a header block, which `ipcbus.wire.properties` takes apart.
    """

    @property
    def type(self) -> MessageType:
        """`DATA`, or the kind of event."""

    @property
    def data(self) -> bytes:
        """The payload as a copy of its own; empty for an event."""

    @property
    def view(self) -> memoryview:
        """The payload, read-only.

        Inside a callback on a receiver-paced session the view lies in the ring, without a copy, until the callback
        returns. Then the view is released, and using it raises ValueError. An array made from the view, such as
        `numpy.frombuffer(message.view)`, may be kept: when the callback returns, the array gets memory of its own with
        the same bytes at the same address, and never shows a later message. That costs more than a copy, so that some
        of the views that follow are copies; it is counted (`views_kept`) and logged once a session. An object that
        remembers the address without holding the buffer, as the tensors of some libraries do, must not be kept.

        In every other form of receiving, on sessions that are source-paced or evict, and of a message with headers or
        in fragments, the view is of the message's own bytes and stays valid.
        """

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Name and value of each header, in the order in which they were sent; empty without any, and for an event.

        They are no part of `data`, `view` and the length.
        """

    @property
    def properties_block(self) -> bytes:
        """The headers as they came, for `ipcbus.wire.properties`; empty without any."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def source(self) -> str:
        """Source string of the session, for example `LBT-IPC:6481f8d4:20001`."""

    @property
    def sequence_number(self) -> int:
        """The topic sequence number; of a loss, the last lost one; -1 for BOS and EOS."""

    @property
    def first_sequence_number(self) -> int:
        """The first number that the message or the loss spans."""

    @property
    def send_time_ns(self) -> int:
        """When it was sent, ns since the Unix epoch by the clock of the source's host; 0 for an event.

        Of a message in fragments, when the first one was sent. Of messages of one `send_many` on LBT-SMX, when the
        datagram that carries them was begun.
        """

    @property
    def fragment_info(self) -> FragmentInfo | None:
        """Where its bytes belong, or None for a message that was sent in one piece.

        Of a reassembled message the first number of its fragments, offset 0 and its length; with `ordered_delivery` 0
        of a fragment its own offset and the length of the whole. Headers count in both.
        """

    def ack(self) -> None:
        """Acknowledges a guaranteed message. Other messages need none; for them it does nothing."""

    def __bool__(self) -> bool:
        """True, also for an empty message and for an event, so that only the absence of a message is false."""

    def __len__(self) -> int:
        """Bytes of the payload, without headers."""

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
) -> Message:
    """Returns a message of these bytes and this header block, which span the numbers `first` to `last`."""

def event(origin: Origin, kind: int, first: int, last: int, following: int = 0) -> Message:
    """Returns an event of a source.

    Args:
        origin: the source.
        kind: what happened.
        first: the first number that it spans; -1 where it has none.
        last: the last one.
        following: of an end, for compiled callbacks: the number that the next message would have had; 0 when that is
            not known.
    """
