"""The clients that a source follows: the slowest, the slowest of those with a tag, or the fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipcbus.reliability.clients import Client

SLOWEST: Final = "slowest"
TAGGED: Final = "tagged"
FASTEST: Final = "fastest"


class Following:
    """The choice of one session; the source overtakes all others."""

    def __init__(self, follows: str = SLOWEST, tag: str = "") -> None:
        """Makes the choice.

        Args:
            follows: SLOWEST, TAGGED or FASTEST.
            tag: the text with which the names of the contexts begin that are tagged.
        """
        self._tagged, self.fastest, self._tag = follows == TAGGED, follows == FASTEST, tag

    def includes(self, client: Client) -> bool:
        """Returns whether the source may wait for a client."""
        return not client.evicted and (not self._tagged or client.name.startswith(self._tag))

    def prefers(self, value: int, other: int) -> bool:
        """Returns whether a client with `value` decides, and not one with `other`: a position, or a rate."""
        return value > other if self.fastest else value < other

    @property
    def worst(self) -> int:
        """A value to which every client is preferred, if there is one."""
        return -1 if self.fastest else 1 << 62
