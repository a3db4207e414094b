"""What the compiled delivery path hands to Python: everything that is not in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ipcbus.delivery.demux import Controller, Sink


class Rare(Protocol):
    """What the demux hands to Python."""

    def begin(self) -> None:
        """The session's first record is there."""

    def gap(self, controller: Controller, first: int, last: int) -> None:
        """Messages `first` to `last` of a topic are lost for good."""

    def failed(self, sink: Sink, error: Exception) -> None:
        """A callback raised."""
