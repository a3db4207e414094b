"""The entries of a GMD_RESENT (`gmd_messages`), in the bytes that came: checked and taken apart by compiled code."""

from collections.abc import Iterator
from typing import NamedTuple

class Entry(NamedTuple):
    """A message that a source sends again."""

    number: int
    """GMD number."""
    send_time_ns: int
    """When it was sent for the first time, in ns since the epoch."""
    opening: int
    """The opening of the sender's area that sent it."""
    topic_numbers: tuple[int, int] | None
    """First and last number that it had in the topic then; None when that is not known."""
    block: bytes
    """The header block; empty without headers."""
    data: bytes
    """The value."""

class ResentEntries:
    """Entries, in the order of their numbers. They are taken from the front; what is said here is of those left."""

    first: int
    """The lowest number."""
    last: int
    """The highest number."""
    is_run: bool
    """Whether no number was missing between them."""
    size: int
    """Bytes of header blocks and values of all entries that came, also of those that are taken."""

    def __len__(self) -> int:
        """Returns the number of entries."""

    def __iter__(self) -> Iterator[Entry]:
        """Yields the entries, and leaves them there."""

    def __eq__(self, other: object) -> bool:
        """Compares the entries with others, which may be a list."""

    def pop(self) -> Entry:
        """Takes the first entry.

        Raises:
            IndexError: no entry is left.
        """

    def clear(self) -> None:
        """Gives all entries up."""

    def topic_ranges(self) -> list[tuple[int, int, int]]:
        """Returns the topic numbers of the messages as ranges: the opening that sent them, first and last number."""

def checked(message: bytes, at: int, first: int, following: int) -> ResentEntries | None:
    """Returns the entries of a GMD_RESENT.

    Args:
        message: the whole message.
        at: where its entries begin.
        first: the lowest number that they may have.
        following: the number behind the highest one.

    Returns:
        None if they contradict themselves or the numbers.
    """
