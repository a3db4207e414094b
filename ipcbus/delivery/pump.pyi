"""The loop over the sessions of a context."""

from collections.abc import Callable, Sequence

from ipcbus.delivery.demux import Demux
from ringbuf.poller import Poller
from ringbuf.shared_words import WatchedWord

class Pump:
    """Reads the rings of a context's sessions in turn, and waits for their next records."""

    poller: Poller
    owner: int
    """The ident of the driver thread, or 0."""
    attention: bool
    """Whether a session needs attention: it ended, broke, has a full receiver, or its source waits for an event."""
    quick_allowed: bool
    """Whether `quick` may drive: between its calls the context has nothing to do but to deliver messages."""
    pending_error: BaseException | None
    """A BaseException of a callback that is not an Exception; nothing is delivered until the driver has raised it."""
    look: Callable[[], int] | None
    """Handles the watched words that have changed, in `quick`; returns the number of messages and events."""
    driver_waiting: bool
    """Whether another thread waits to be the driver; then `quick` does nothing, so that the caller lets it."""

    def __init__(self) -> None: ...
    def set_timer(self, delay_ns: int) -> None:
        """Stops `quick` from driving after this delay, so that timers run."""

    def quick(self, timeout: float, loops: int) -> int:
        """Drives for 0.2 ms at most without running Python code but callbacks and `look`.

        Args:
            timeout: seconds to wait for the first message.
            loops: most passes in a row that find nothing.

        Returns:
            Messages delivered; 0 also when it may not drive, or when timers or sessions need attention.

        Raises:
            BaseException: a callback raised it, and it is not an Exception.
        """

    def watch(self, demuxes: Sequence[Demux], words: Sequence[WatchedWord] = ()) -> None:
        """Sets the sessions to read, and words whose change ends a wait and every call of `run` and `quick`."""

    def word_changed(self) -> bool:
        """Returns whether one of the watched words has changed."""

    def run(self, timeout_ns: int, loops: int, once: bool) -> int:
        """Delivers messages until a limit is reached.

        Args:
            timeout_ns: return after this time.
            loops: return after this number of passes in a row that found nothing.
            once: return as soon as a message was delivered.

        Returns:
            Messages delivered. Returns early when a session needs attention, or when the poller was poked.
        """
