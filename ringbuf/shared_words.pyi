"""Single words of a mapping, read and changed atomically from Python; for everything off the message path."""

from ringbuf.memory import Mapping

class SharedWords:
    """Atomic access to the 32- and 64-bit words of one mapping.

    Offsets are bytes from the mapping's beginning and must be aligned to the word. Reading is an acquire load,
    storing a release store, the rest is sequentially consistent.
    """

    def __init__(self, mapping: Mapping) -> None: ...
    def load32(self, offset: int) -> int: ...
    def load64(self, offset: int) -> int: ...
    def store32(self, offset: int, value: int) -> None: ...
    def store64(self, offset: int, value: int) -> None: ...
    def cas32(self, offset: int, old: int, new: int) -> bool:
        """Sets the word to `new` if it is `old`; says whether it did."""

    def cas64(self, offset: int, old: int, new: int) -> bool:
        """Sets the word to `new` if it is `old`; says whether it did."""

    def exchange32(self, offset: int, value: int) -> int:
        """Sets the word and returns what it was."""

    def or32(self, offset: int, bits: int) -> int:
        """Sets bits and returns what the word was."""

    def or64(self, offset: int, bits: int) -> int:
        """Sets bits and returns what the word was."""

    def and64(self, offset: int, bits: int) -> int:
        """Keeps only the given bits and returns what the word was."""

    def fence(self) -> None:
        """A full fence."""
