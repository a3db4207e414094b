"""Reads datagrams and gives each message to its topic's receivers: the demux, and the fast half of its controllers.

Messages and fragments in order, with nothing missing, stay in compiled code. All others go to `Controller.take_slowly`.
"""

from collections.abc import Sequence

from ipcbus.delivery.assembly import Assembly, MemoryBudget
from ipcbus.delivery.leasing import RecordHolder
from ipcbus.delivery.received_message import Message, Origin
from ipcbus.delivery.sink import Sink
from ipcbus.delivery.slow_path import Failures, SlowPath, Upstream
from ringbuf.ring import RingReader

DROPPED: int
"""`Controller.take_slowly` returns this for a message whose number was delivered, or reported lost, before."""
IN_PLACE: int
"""`Controller.take_slowly` returns this when the message itself may go to the sinks from its place in the datagram."""

class Tally:
    """The counters of the delivery controllers of a session."""

    duplicates: int
    malformed: int
    msgs_reassembled: int
    reassembly_refused: int
    fragments_rcved: int
    views_kept: int
    lbm_reqs_rcved: int
    completed: int
    """Fragmented messages that are complete, or whose last fragment was delivered raw, and that `Demux.messages` does
    not count yet; `Demux.show_tally` adds them there."""
    order_map_entries: int
    reassembly_bytes: int

class Controller:
    """The delivery controller of one topic on one session: the part for messages in order."""

    origin: Origin
    topic_number: int
    expected: int
    """The number after the highest that has arrived or was announced."""
    fast_path: bool
    """Whether nothing is missing or incomplete, so that the message `expected` may go straight to the sinks."""
    skips_live: bool
    """Whether only the numbers of live messages are noted (`expected`), because a recovery is far behind them."""
    retransmitted_next: int
    """The first number that a recovery has to bring, when a retransmitted message may go straight to the sinks."""
    retransmitted_end: int
    """The number after the range of missing numbers that begins with `retransmitted_next`."""
    published_ticks: int
    """When the datagram of a `take_slowly` call was published."""
    reassembles: bool
    """Whether fragments in order are put together in compiled code; false where they are delivered as they are."""
    sinks: list[Sink]
    may_wait: int
    """How many of the next live messages, if plain, may go into the order map without a call of `take_slowly`."""
    _next: int
    _order_map: dict[int, tuple[int, bytes, tuple[int, int]]]
    _delivered: int
    _budget: MemoryBudget | None

    def __init__(self, origin: Origin, topic_number: int) -> None: ...
    def set_sinks(self, sinks: Sequence[Sink]) -> None:
        """Sets the sinks that get the messages, in this order."""

    def take_assembly(self) -> Assembly | None:
        """Returns the message of which compiled code has put some fragments, which is then the caller's.

        Its next fragment has the number `expected`, and `fast_path` is false. None without such a message.
        """

    def take_slowly(self, sequence: int, flags: int, payload: memoryview, send_ticks: int, now_ns: int) -> int:
        """Takes a message that is not complete or not in order.

        Args:
            sequence: its number, below 2**62.
            flags: flags of `wire.wire_layout`.
            payload: its bytes, valid only during the call.
            send_ticks: when it was sent.
            now_ns: the time.

        Returns:
            The number of messages that were delivered, or `DROPPED`, or `IN_PLACE`.
        """

    def deliver_waiting(self, unusual: int, shown: int, failures: Failures) -> None:
        """Delivers what waits in the order map from `_next` on, up to a missing message or one with an unusual flag.

        Args:
            unusual: the flags of messages that it leaves.
            shown: the flags that receivers see.
            failures: takes the exceptions of callbacks.
        """

    def deliver(self, message: Message, failures: Failures) -> None:
        """Gives a message that owns its bytes to every sink."""

class Demux(RecordHolder):
    """Reads the datagrams of a session and gives each message to the controller of its topic."""

    ring: RingReader
    """The ring that `poll_once` reads; None where datagrams are fed, and `poll_once` and `show` are not used."""
    now_ns: int
    begun: bool
    attention: bool
    blocked: bool
    watched: bool
    """Whether the poller looks at its ring; false while a receiver that pulls has no room."""
    stop: bool
    tally: Tally
    messages: int
    """Messages that arrived; a fragmented message counts when it is complete."""
    no_topic: int
    """Messages of topics without a controller; a fragmented message counts with its last fragment."""
    lost: int

    def __init__(self, ring: RingReader | None, topics_max: int, slow_path: SlowPath) -> None: ...
    def set_upstream(self, upstream: Upstream | None) -> None:
        """Sets what is known about the transport, by which impossible numbers are found; with None all are possible."""

    def count_damage(self) -> None:
        """Counts a damaged ring, in which an unknown number of messages was skipped."""

    def switch_ring(self, ring: RingReader, upstream: Upstream | None = None) -> None:
        """Continues with the records of another ring, for the same session and topics.

        Args:
            ring: the ring to read from now on.
            upstream: what is known about the transport that fills it.

        Raises:
            ValueError: a datagram of the previous ring is not finished (`holds_datagram`).
        """

    def before_fork(self) -> None:
        """Copies the current record for the child of a fork inside a callback; the parent may release it first."""

    def after_fork(self) -> None:
        """Drops that copy; for the parent."""

    def secure(self) -> None:
        """Gives the message of a running callback its own memory, before the slot is given back.

        Without this the source would overwrite what the callback still reads.
        """

    def set_controller(self, controller: Controller) -> None: ...
    def controller(self, topic_number: int) -> Controller | None: ...
    def remove_controller(self, topic_number: int) -> Controller | None: ...
    def line_in_use(self, topic_number: int) -> bool:
        """Returns whether another topic uses the line of this topic."""

    def controller_list(self) -> list[Controller]:
        """Returns all controllers in the order of their lines."""

    def poll_once(self, limit: int) -> int:
        """Delivers up to `limit` messages from the ring; returns the number delivered."""

    def feed(self, datagram: bytes, send_ticks: int, now_ns: int) -> int:
        """Delivers a datagram; returns the number of messages delivered.

        Raises:
            ValueError: the previous datagram is not finished (`holds_datagram`), because a receiver had no room.
        """

    def resume(self, now_ns: int) -> int:
        """Delivers the rest of the current datagram."""

    @property
    def holds_datagram(self) -> bool:
        """Whether a datagram is not finished."""

    def count_lost(self, messages: int) -> None:
        """Adds lost messages to the counter in the slot."""

    def show_tally(self) -> None:
        """Writes the tally into the slot."""

    def show(self) -> bool:
        """Publishes position and counters; returns True when the source waits for an event."""
