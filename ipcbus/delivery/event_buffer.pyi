"""The event buffer: messages of several receivers wait in it for the thread that calls back."""

from weakref import ReferenceType

from ipcbus.delivery.message_types import MessageType
from ipcbus.delivery.pump import Pump
from ipcbus.delivery.received_message import Message
from ipcbus.delivery.sink import QuickStore, Sink
from ipcbus.delivery.slow_path import BufferOwner

class EventBuffer(QuickStore):
    """Keeps messages and events in the order of their arrival, and calls back (delivery.slow_path.EventStore).

    Contexts put events while other threads call back. The methods of the owner are called outside of critical sections,
    and seldom: for a message only when a context waits for room, or a warning is due.
    """

    maximum: int
    closed: bool
    forked: bool
    """Whether this process is a child of the one that made the buffer; set from outside."""
    sleepers: int
    """Threads that sleep in `dispatch`."""
    total: int
    """Messages and events that arrived so far; each was dispatched, was dropped, or waits."""
    dropped: int
    dispatched: int

    def __init__(
        self,
        maximum: int,
        drops: bool,
        owner: BufferOwner,
        *,
        times_age: bool = True,
        times_service: bool = True,
        counts: bool = True,
        size_warning: int = 0,
        delay_warning_ns: int = 0,
        bytes_maximum: int = ...,
    ) -> None:
        """Makes an empty buffer.

        Args:
            maximum: most messages in it; at this number of messages, or of events, new events merge into old ones.
            drops: whether a full buffer drops its oldest message instead of making the contexts wait.
            owner: lets contexts continue, and gets warnings.
            times_age: measure how long messages and events wait.
            times_service: measure how long callbacks take.
            counts: count waiting messages and events by kind.
            size_warning: warn the owner when more than this number wait; 0 for never.
            delay_warning_ns: warn the owner when one waited longer than this; 0 for never.
            bytes_maximum: it is full too when its messages have as many bytes; an empty one takes any message.
        """

    def __len__(self) -> int:
        """Returns the number of waiting messages and events."""

    def is_full(self) -> bool:
        """Returns whether there is no room for another message; if so, `BufferOwner.room_available` follows later."""

    def put_pumps(self, pumps: tuple[ReferenceType[Pump], ...]) -> None:
        """Takes the pumps of the contexts that put events."""

    def put(self, sink: Sink, message: Message) -> None:
        """Keeps a message or event for the callback of a sink.

        There is always room for an event, beside the messages. A closed buffer drops everything.
        """

    def call_back(self, limit_ns: int) -> int:
        """Calls back with the messages and events that wait now, in the order of their arrival.

        Those that arrive meanwhile wait for the next call. Those of a silent sink are dropped.

        Args:
            limit_ns: only the first callback may begin after this time; -1 for no limit.

        Returns:
            The number of callbacks that ran.

        Raises:
            BaseException: a callback raised it, and it is not an Exception; the other messages stay.
        """

    def dispatch(self, timeout: float | None) -> int:
        """Sleeps until something waits, then calls back as `call_back` does, with the time that is left as the limit.

        Sleeping releases the interpreter lock; several threads may sleep, and each arrival wakes one.

        Args:
            timeout: seconds; 0 or less does not sleep and has no limit, None sleeps for ever.

        Returns:
            The number of callbacks that ran, 0 when the time ran out; below 0 when Python has to say what is wrong: the
            buffer is closed or belongs to the parent of a fork, the caller is inside a callback, or the timeout is not
            a plain number.

        Raises:
            BaseException: as `call_back`, or a signal handler raised it.
        """

    def is_inside(self, thread: int) -> bool:
        """Returns whether the thread is inside `dispatch`."""

    def close(self) -> None:
        """Drops what waits, and what arrives later; ends the sleep of threads. Closing twice does nothing."""

    def waiting_of(self, sink: Sink) -> list[Message]:
        """Returns the messages that wait for the callback of a sink."""

    def waiting_by_kind(self) -> dict[MessageType, int]:
        """Returns the number of waiting messages and events by kind."""

    def age(self) -> tuple[float, float, float] | None:
        """Returns the least, mean and greatest wait before a callback, in seconds; None before the first callback."""

    def service(self) -> tuple[float, float, float] | None:
        """Returns the least, mean and greatest duration of callbacks, in seconds; None before the first callback."""
