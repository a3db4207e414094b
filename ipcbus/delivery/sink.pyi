"""Where the messages of one receiver go."""

from collections import deque
from collections.abc import Callable
from typing import Any

from ipcbus.delivery.received_message import Message
from ipcbus.delivery.slow_path import EventStore, Failures
from ringbuf.memory import Mapping

class Sink:
    """A callback, a queue that is pulled from, or a callback that another thread calls from an event queue."""

    owner: Any
    queue: deque[Message]
    event_queue: EventStore | None
    pulls: bool
    """Whether messages are kept for later, so that there may be no room for one more."""
    closed: bool
    silent: bool
    """Whether not even what waits in its event queue is called back."""
    delivered: int
    """Messages; of one whose fragments are delivered raw, the last of them."""
    bytes_delivered: int
    fragments: int
    """Fragments of which these messages consisted; none of a message that came in one piece."""
    lost: int
    events: int
    callback_errors: int
    dropped: int
    """Messages and events that its event queue dropped."""

    def __init__(
        self, callback: Callable[[Message], object] | None, queue_max: int, event_queue: EventStore | None = None
    ) -> None:
        """A sink.

        Args:
            callback: called with each message, or None for a queue.
            queue_max: most messages in the queue; when it is full its sessions are not read on.
            event_queue: where messages wait for the thread that calls back.
        """

    def count_into(self, mapping: Mapping, offset: int) -> None:
        """Keeps the counters also in the registry entry at this byte."""

    def stop_counting(self) -> None:
        """Keeps the counters here only."""

    def is_full_now(self) -> bool:
        """Returns whether one more message has no place now."""

    def take(self, message: Message, rare: Failures) -> None:
        """Delivers a message that owns its bytes."""

    def event(self, message: Message, rare: Failures) -> None:
        """Delivers an event."""

    def call_back(self, message: Message, rare: Failures) -> None:
        """Calls the callback; an exception is counted and reported."""

    def fail(self, error: BaseException, rare: Failures) -> None:
        """Counts and reports what one of the receiver's callbacks raised."""

    def rows_from(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """Sends payloads straight into the rows of a writable 2-D uint8 or 1-D array; returns how many rows it has.

        Raises:
            TypeError, BufferError: not such an array.
        """

    def rows_filled(self) -> int:
        """Returns how many rows were filled since `rows_from`."""

    def rows_done(self) -> None:
        """Ends `rows_from`."""

    def row_accepts(self, message: Message) -> bool:
        """Copies a queued message into the next row; False when it is an event, has another length, or none is left."""

    def row_queue_taken(self) -> None:
        """Lets payloads go straight into the rows if the queue is empty; only for who drives the context."""
