"""From datagrams to receivers: the demux of a session, and of its delivery controllers the half for messages in order.

In order, with nothing missing, everything here is compiled. What is not goes to `Controller.odd`.
"""

from collections.abc import Sequence

from ipcbus.delivery.received_message import Message, Origin
from ipcbus.delivery.sink import Sink
from ipcbus.delivery.slow_path import Failures, SlowPath, Way
from ringbuf.ring import RingReader

DROPPED: int
"""What `Controller.odd` returns when a message is not delivered: its number has come, or was reported, before."""
IN_PLACE: int
"""What it returns when nothing was delivered yet and the message itself may go to the sinks from where it lies."""

class Tally:
    """What the delivery controllers of a session count."""

    duplicates: int
    malformed: int
    msgs_reassembled: int
    reassembly_refused: int
    fragments_rcved: int
    views_kept: int
    completed: int
    """Messages in fragments that became whole, or whose last fragment was delivered raw, and stand not in
    `Demux.messages` yet; `Demux.show_tally` adds them there."""
    order_map_entries: int
    reassembly_bytes: int

class Controller:
    """Delivery controller of one topic on one session, as far as messages in order need it."""

    origin: Origin
    topic_number: int
    expected: int
    """The number after the highest that has come or was told of."""
    plain: bool
    """Nothing is missing or half there: the message `expected` may go straight to the sinks."""
    published_ticks: int
    """When the datagram was published that `odd` is about."""
    sinks: list[Sink]

    def __init__(self, origin: Origin, topic_number: int) -> None: ...
    def set_sinks(self, sinks: Sequence[Sink]) -> None:
        """Who gets the messages, in this order."""

    def odd(self, sequence: int, flags: int, payload: memoryview, send_ticks: int, now_ns: int) -> int:
        """Takes what is not a whole message in order.

        Args:
            sequence: its number, below 2**62.
            flags: of `wire.layout`.
            payload: valid during the call only.
            send_ticks: when it was sent.
            now_ns: the time.

        Returns:
            How many messages were delivered, or `DROPPED`, or `IN_PLACE`.
        """

    def deliver(self, message: Message, rare: Failures) -> None:
        """Gives a message that owns its bytes to every sink."""

class Demux:
    """Takes a session's datagrams apart and gives each message to its topic's controller."""

    ring: RingReader
    """Where records are polled from; None where datagrams are fed, and `poll_once` and `show` are not used."""
    now_ns: int
    begun: bool
    attention: bool
    blocked: bool
    wakes_writer: bool
    left: bool
    """The slot was given back: nothing is read or shown any more."""
    watched: bool
    """Whether the poller looks at its ring; not so while a receiver that pulls has no room."""
    stop: bool
    tally: Tally
    messages: int
    """Messages taken in; one in fragments counts when it is whole."""
    no_topic: int
    """Messages of topics without a controller; one in fragments counts when its last fragment comes."""
    lost: int

    def __init__(self, ring: RingReader | None, topics_max: int, rare: SlowPath) -> None: ...
    def trust(self, way: Way | None) -> None:
        """Tells what is known of the way here, by which numbers that cannot be are found; without one all may be."""

    def damaged(self) -> None:
        """Counts a damaged ring: nobody knows how many messages were skipped in it."""

    def use(self, ring: RingReader, way: Way | None = None) -> None:
        """Goes on with the records of another ring, of the same session and topics.

        Args:
            ring: from here on.
            way: what is known of the way of its records.

        Raises:
            ValueError: a datagram of the ring before is in hand still (`holds`).
        """

    def before_fork(self) -> None:
        """A callback forks: notes the record in hand for the child, whose parent goes on before the child does."""

    def after_fork(self) -> None:
        """In the parent: forgets it again."""

    def secure(self) -> None:
        """Before the slot is given back inside a callback: what the callback still looks at gets memory of its own.

        Without this the source would write there next.
        """

    def set_controller(self, controller: Controller) -> None: ...
    def controller(self, topic_number: int) -> Controller | None: ...
    def remove_controller(self, topic_number: int) -> Controller | None: ...
    def line_taken(self, topic_number: int) -> bool:
        """Returns whether another topic still uses this topic's line."""

    def controller_list(self) -> list[Controller]:
        """Returns all controllers, by line."""

    def poll_once(self, limit: int) -> int:
        """Delivers up to `limit` messages from the ring; returns how many."""

    def feed(self, datagram: bytes, send_ticks: int, now_ns: int) -> int:
        """Delivers a datagram; returns how many messages that gave.

        Raises:
            ValueError: the one before is in hand still (`holds`), because a receiver had no room.
        """

    def go_on(self, now_ns: int) -> int:
        """Delivers the rest of the datagram in hand."""

    @property
    def holds(self) -> bool:
        """Whether a datagram is in hand."""

    def count_lost(self, messages: int) -> None:
        """Counts lost messages in the slot."""

    def show_tally(self) -> None:
        """Puts the tally into the slot."""

    def show(self) -> bool:
        """Publishes position and counters; True when the source waits for an event."""
