"""Checks many readers for records without the GIL."""

from collections.abc import Sequence

from ringbuf.ring import RingReader
from ringbuf.shared_words import WatchedWord

class Poller:
    """Checks many readers for records, ends and overruns, without the GIL."""

    def __init__(self) -> None: ...
    def watch(self, readers: Sequence[RingReader], words: Sequence[WatchedWord] = ()) -> None:
        """Sets the readers and the words to check. A word that has changed ends a wait, as `poke` does."""

    def poke(self) -> None:
        """Ends the wait of another thread, or the next wait."""

    def spin(self, loops: int, timeout_ns: int) -> bool:
        """Checks the readers up to `loops` times, for `timeout_ns` at most; returns whether a reader is ready."""
