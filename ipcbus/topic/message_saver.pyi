"""What keeps the copies of a source's guaranteed messages, as far as each message needs it: compiled."""

from collections.abc import Callable
from contextlib import AbstractContextManager

class MessageSaver:
    """Saves each guaranteed message before it is sent.

    For each message the source saves a copy with the place in the topic that it expects, then sends the message; then
    it says which sequence numbers the message got, or has the copy taken back. The source keeps other guaranteed
    messages out of that time. A subclass does what is rare.
    """

    sends: bool
    """Whether the last message is saved, and not in the ring yet."""
    closes: bool
    """Whether the area is about to be closed: the next message calls `_change_terms`, which raises."""
    watches: bool
    """Whether `_after_send` need not be called after each message."""
    length_max: int
    """Bytes of the longest message, with its headers, that can be sent again; without a limit at first."""

    def __init__(
        self,
        area_save: Callable[[int, int, int, bytes, bytes], int],
        lock: AbstractContextManager[bool],
        mode: int = 0,
        timeout_ns: int = 0,
    ) -> None:
        """Begins without messages.

        Args:
            area_save: saves mode, place (`wire.topic_places`), send time in ns since the epoch, header block and value
                of a message, and returns its GMD number. It raises a `GmdError` if it saved nothing.
            lock: held while it is called.
            mode: mode of messages that need no call of `_change_terms`.
            timeout_ns: their timeout.
        """

    def _unsave(self, number: int) -> None:
        """Takes back the message that was saved last, as it was not sent."""

    def _change_terms(self, mode: int, timeout_ns: int) -> None:
        """Notes that the messages from the next one on have another mode or timeout; the lock is held."""

    def _correct_place(self, number: int, place: int) -> None:
        """Notes that the message just sent has another place than the one that was saved: another thread sent first."""

    def _after_send(self) -> None:
        """Notes that a message is in the open datagram."""
