"""From records to receivers: the demux of a session and its delivery controllers.

In order, with nothing missing, everything here is compiled. A gap, a beginning or an end goes to the `Rare` beside it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ipcbus.delivery.message import Message, Origin
from ipcbus.delivery.rare import Rare
from ringbuf.memory import Mapping
from ringbuf.ring import RingReader

class Sink:
    """Where the messages of one receiver go: a callback, or a queue that is pulled from."""

    owner: Any
    queue: deque[Message]
    pulls: bool
    closed: bool
    delivered: int
    bytes_delivered: int
    lost: int
    events: int
    callback_errors: int

    def __init__(self, callback: Callable[[Message], object] | None, queue_max: int) -> None:
        """A sink.

        Args:
            callback: called with each message, or None for a queue.
            queue_max: most messages in the queue; when it is full its sessions are not read on.
        """

    def count_into(self, mapping: Mapping, offset: int) -> None:
        """Keeps the counters also in the registry entry at this byte."""

    def stop_counting(self) -> None:
        """Keeps the counters here only."""

    def is_full_now(self) -> bool:
        """Whether one more message has no place now."""

    def event(self, message: Message, rare: Rare) -> None:
        """Delivers an event."""

    def rows_from(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """Sends payloads straight into the rows of a writable 2-D uint8 or 1-D array; returns how many rows it has.

        Raises:
            TypeError, BufferError: not such an array.
        """

    def rows_filled(self) -> int:
        """How many rows were filled since `rows_from`."""

    def rows_done(self) -> None:
        """Ends `rows_from`."""

    def row_accepts(self, message: Message) -> bool:
        """Copies a queued message into the next row; False when it is an event, has another length, or none is left."""

    def row_queue_taken(self) -> None:
        """Lets payloads go straight into the rows if the queue is empty; only for who drives the context."""

class Controller:
    """Delivery controller of one topic on one session: numbers in, order and loss out."""

    origin: Origin
    topic_number: int
    expected: int
    floor: int
    started: bool
    duplicates: int
    sinks: list[Sink]

    def __init__(self, origin: Origin, topic_number: int, floor: int) -> None:
        """A controller.

        Args:
            origin: topic and source string.
            topic_number: the session's number of the topic.
            floor: messages with this number and above were sent after the receiver had joined; a lower one that is
                missing before the first delivery is not a loss.
        """

    def set_sinks(self, sinks: Sequence[Sink]) -> None:
        """Who gets the messages, in this order."""

    def missing_until(self, published: int) -> int:
        """How many messages below `published` have neither come nor been reported, supposing none is on its way."""

    def skip_to(self, sequence: int) -> None:
        """Takes everything below `sequence` as dealt with."""

class Demux:
    """Takes a session's records apart and gives each message to its topic's controller."""

    ring: RingReader
    begun: bool
    attention: bool
    blocked: bool
    wakes_writer: bool
    left: bool
    """The slot was given back: nothing is read or shown any more."""
    watched: bool
    """Whether the poller looks at its ring; not so while a receiver that pulls has no room."""
    stop: bool

    def __init__(self, ring: RingReader, topics_max: int, rare: Rare) -> None: ...
    def set_controller(self, controller: Controller) -> None: ...
    def controller(self, topic_number: int) -> Controller | None: ...
    def remove_controller(self, topic_number: int) -> Controller | None: ...
    def line_taken(self, topic_number: int) -> bool:
        """Whether another topic still uses this topic's line."""

    def controller_list(self) -> list[Controller]:
        """All controllers, by line."""

    def poll_once(self, limit: int) -> int:
        """Delivers up to `limit` messages; returns how many."""

    def count_lost(self, messages: int) -> None:
        """Counts lost messages in the slot."""

    def show(self) -> bool:
        """Publishes position and counters; True when the source waits for an event."""
