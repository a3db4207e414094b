"""The loop over the sessions of a context."""

from collections.abc import Sequence

from ipcbus.delivery.demux import Demux
from ringbuf.poller import Poller

class Pump:
    """The loop over the sessions of a context."""

    poller: Poller
    owner: int
    """Ident of the thread that drives, or 0."""
    attention: bool
    """Whether a session needs looking after: it ended, broke, has a full receiver, or its source wants an event."""
    open: bool
    """Whether `quick` may drive: nothing but messages is to be looked after between its calls."""
    pending: BaseException | None
    """What a callback raised that is no Exception: nothing is delivered until the thread that drives has raised it."""
    wanted: bool
    """Whether another thread waits to be the driver: `quick` leaves the work to the caller, so that it can."""

    def __init__(self) -> None: ...
    def set_timer(self, delay_ns: int) -> None:
        """From then on `quick` leaves the work to the caller, so that timers run."""

    def quick(self, timeout: float, loops: int) -> int:
        """Drives for a moment (0.2 ms at most) without any Python around it.

        Args:
            timeout: seconds to wait for the first message.
            loops: most looks in a row that find nothing.

        Returns:
            Messages delivered; 0 also when it may not drive, or when timers or sessions need looking after.

        Raises:
            BaseException: what a callback raised that is no Exception.
        """

    def watch(self, demuxes: Sequence[Demux]) -> None:
        """Sets the sessions to read."""

    def run(self, timeout_ns: int, loops: int, once: bool) -> int:
        """Delivers what comes.

        Args:
            timeout_ns: return after so long.
            loops: return after so many looks in a row that found nothing.
            once: return as soon as something was delivered.

        Returns:
            Messages delivered. Returns early when a session needs attention, or when poked.
        """
