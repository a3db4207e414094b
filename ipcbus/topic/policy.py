"""What the source-side topic layer asks of the layer above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ipcbus.topic.batch import TopicSource


class Policy(Protocol):
    """What the batch writer asks the layer above, all off the message path."""

    def full(self, need: int, block: bool, source: TopicSource) -> bool:
        """The ring has no `need` bytes; returns when to try again and whether that took waiting, or raises."""

    def reserved(self, block: bool) -> None:
        """Another thread writes in place; returns when to try again, or raises."""

    def released(self) -> None:
        """A reservation ended."""

    def parked(self, mask: int) -> None:
        """A record was published and these readers sleep."""

    def opened(self) -> None:
        """A batch was opened while nobody watched the batching interval."""
