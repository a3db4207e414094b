"""Looking at many readers at once, without the GIL."""

from collections.abc import Sequence

from ringbuf.ring import RingReader

class Poller:
    """Looks at many readers at once, without the GIL."""

    def __init__(self) -> None: ...
    def watch(self, readers: Sequence[RingReader]) -> None:
        """Sets the readers to look at."""

    def poke(self) -> None:
        """Ends a wait that another thread is in, or the next one."""

    def spin(self, loops: int, timeout_ns: int) -> bool:
        """Looks until a reader has something to do, at most `loops` times and `timeout_ns`; says whether one has."""
