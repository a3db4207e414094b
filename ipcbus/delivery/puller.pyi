"""Takes messages for a thread that pulls."""

from collections.abc import Callable

from ipcbus.delivery.pump import Pump
from ipcbus.delivery.received_message import Message
from ipcbus.delivery.sink import Sink

class Puller:
    """The compiled part of a receiver that is pulled from: takes from its queue, and drives the context to fill it.

    Timeouts are in seconds; 0, or less, does not wait, None waits for ever.
    """

    error: BaseException | None
    """An error that the next call has to raise; Python does that."""

    def __init__(
        self,
        pump: Pump,
        sink: Sink,
        take_slowly: Callable[[float | None], Message | None],
        take_many_slowly: Callable[[int, float | None], list[Message]],
    ) -> None:
        """Begins without an error.

        Args:
            pump: the pump of the context.
            sink: the sink of the receiver.
            take_slowly: what `take` calls and returns when Python has to go on, with the seconds that are left, or with
                the timeout when Python has to check it and the receiver.
            take_many_slowly: what `take_many` calls and returns then, with its limit before the seconds.
        """

    def take(self, timeout: float | None) -> Message | None:
        """Returns the next message or event; None when the time ran out."""

    def take_many(self, limit: int, timeout: float | None) -> list[Message]:
        """Returns the messages and events that are there, `limit` at most, after a wait for the first one."""

    def wait(self, timeout: float | None) -> float:
        """Waits until the queue has a message or event.

        Returns:
            A number below 0 when the wait is over; the seconds that are left when Python has to run a turn, which is
            NaN when Python has to check the receiver and the timeout.
        """

    def take_queued(self) -> Message | None:
        """Returns the next message or event of the queue, and drives nothing.

        Returns:
            The message; None when the queue is empty, and about once in a millisecond, so that a task that takes
            messages in a loop lets other tasks run.
        """
