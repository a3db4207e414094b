"""Reads and changes single words of a mapping atomically from Python, off the message path."""

from ringbuf.memory import Mapping

class SharedWords:
    """Atomic access to the 32- and 64-bit words of one mapping.

    Offsets are bytes from the beginning of the mapping and must be aligned to the word. `load` is an acquire load,
    `store` a release store; the others are sequentially consistent.
    """

    def __init__(self, mapping: Mapping) -> None: ...
    def load32(self, offset: int) -> int: ...
    def load64(self, offset: int) -> int: ...
    def store32(self, offset: int, value: int) -> None: ...
    def store64(self, offset: int, value: int) -> None: ...
    def cas32(self, offset: int, old: int, new: int) -> bool:
        """Sets the word to `new` if it is `old`; returns whether it did."""

    def cas64(self, offset: int, old: int, new: int) -> bool:
        """Sets the word to `new` if it is `old`; returns whether it did."""

    def exchange32(self, offset: int, value: int) -> int:
        """Sets the word and returns its old value."""

    def or32(self, offset: int, bits: int) -> int:
        """Sets bits and returns the old value."""

    def or64(self, offset: int, bits: int) -> int:
        """Sets bits and returns the old value."""

    def and64(self, offset: int, bits: int) -> int:
        """Clears all but the given bits and returns the old value."""

    def fence(self) -> None:
        """Executes a full fence."""

    def equal32(self, offset: int, stride: int, count: int, value: int) -> int:
        """Returns a mask of the words that have a value: bit i for the word at `offset + i * stride`, 1 to 64 words."""

    def watched(self, offset: int) -> WatchedWord:
        """Returns a 64-bit word to be watched until it is not 0."""

class WatchedWord:
    """A 64-bit word of a mapping at which a spinning context looks (`Poller.watch`).

    A compiled class that inherits from this one may handle a change in compiled code: its `take` does so, returns the
    number of messages that the application got, and sets `stuck` if something is left for Python. The driver calls
    `take` when the word has changed, and holds the interpreter lock. Here, all is left for Python.
    """

    def changed(self) -> bool:
        """Returns whether there is something to do: the word differs from its value when it was looked at last."""
