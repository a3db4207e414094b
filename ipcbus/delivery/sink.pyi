"""Takes the messages of one receiver."""

from collections.abc import Callable
from typing import Any, Literal

from ipcbus.delivery.message_queue import MessageQueue
from ipcbus.delivery.received_message import Message
from ipcbus.delivery.slow_path import EventStore, Failures
from ringbuf.memory import Mapping

class QuickStore:
    """A compiled `EventStore`, which the message path asks without Python."""

class Sink:
    """A callback, a queue that is pulled from, or a callback that another thread calls from an event queue."""

    owner: Any
    queue: MessageQueue
    event_queue: EventStore | None
    quick_store: QuickStore | None
    """The same where it is compiled."""
    pulls: bool
    """Whether messages wait in a queue or in rows, so that there may be no room for another one."""
    closed: bool
    silent: bool
    """Whether events that wait in its event queue are dropped."""
    delivered: int
    """Messages; a message whose fragments are delivered raw counts with its last fragment."""
    bytes_delivered: int
    fragments: int
    """Fragments of these messages; a message that was not fragmented has none."""
    lost: int
    events: int
    callback_errors: int
    on_unseen_loss: Callable[[Message], object] | None
    """Called with each loss that the application does not get as an event."""
    dropped: int
    """Messages and events that its event queue dropped."""

    def __init__(
        self,
        callback: Callable[[Any], object] | None,
        queue_max: int,
        event_queue: EventStore | None = None,
        *,
        queue_bytes_max: int = ...,
        takes: Literal["message", "data", "view"] = "message",
        events: bool = True,
    ) -> None:
        """Makes an open sink.

        Args:
            callback: gets each message; None for a queue.
            queue_max: most messages in the queue; while it is full, its sessions are not read.
            queue_bytes_max: with messages of as many bytes the queue is full too.
            event_queue: keeps messages for the thread that calls back.
            takes: what the callback gets of each message; with `data` and `view` it gets no events.
            events: whether a callback of messages, or a queue, gets events too.
        """

    def count_into(self, mapping: Mapping, offset: int) -> None:
        """Writes the counters also into the registry entry at this offset."""

    def stop_counting(self) -> None:
        """Stops writing the counters into the registry entry."""

    def is_full_now(self) -> bool:
        """Returns whether there is no room for another message."""

    def take(self, message: Message, failures: Failures) -> None:
        """Delivers a message that owns its bytes."""

    def event(self, message: Message, failures: Failures) -> None:
        """Delivers an event."""

    def call_back(self, message: Message, failures: Failures) -> None:
        """Calls the callback; counts and reports an exception."""

    def fail(self, error: BaseException, failures: Failures) -> None:
        """Counts and reports an exception of a callback of the receiver."""

    def start_rows(self, buffer: Any, filled: int = 0) -> int:  # noqa: ANN401 - any writable buffer
        """Puts payloads straight into the rows of a writable 2-D uint8 or 1-D array; returns its number of rows.

        Args:
            buffer: the array.
            filled: its rows that are filled already.

        Raises:
            TypeError, BufferError: `buffer` is not such an array.
        """

    def rows_filled(self) -> int:
        """Returns the number of rows that were filled of the array of the last `start_rows`."""

    def end_rows(self) -> None:
        """Releases the array of `start_rows`."""

    def put_row(self, message: Message) -> bool:
        """Copies a queued message into the next row.

        Returns:
            False when it is an event, has another length than a row, or no row is free.
        """

    def open_rows(self) -> None:
        """Lets payloads go straight into the rows if the queue is empty; only the driver may call this."""
