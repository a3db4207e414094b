"""Takes messages for a thread that pulls."""

from ipcbus.delivery.pump import Pump
from ipcbus.delivery.received_message import Message
from ipcbus.delivery.sink import Sink

class Puller:
    """The compiled part of a receiver that is pulled from: takes from its queue, and drives the context to fill it."""

    error: BaseException | None
    """An error that the next call has to raise; Python does that."""

    def __init__(self, pump: Pump, sink: Sink) -> None: ...
    def take(self, timeout: object) -> Message | float | None:
        """Returns the next message or event.

        Args:
            timeout: seconds to wait; 0, or less, does not wait, None waits for ever.

        Returns:
            The message; None when the time ran out; the seconds that are left when Python has to go on, which is NaN
            when Python has to check the receiver and the timeout first.
        """

    def take_many(self, limit: int, timeout: object) -> list[Message] | float:
        """Returns the messages and events that are there, `limit` at most, after a wait for the first one.

        Args:
            limit: the most messages and events.
            timeout: seconds to wait for the first; otherwise as in `take`.

        Returns:
            The messages; an empty list when the time ran out; the seconds that are left as in `take`.
        """
