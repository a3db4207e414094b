"""What the source-side topic layer asks of the layer above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ipcbus.topic.topic_source import TopicSource


class SessionPolicy(Protocol):
    """What the batch writer asks the layer above, all off the message path."""

    def full(self, need: int, block: bool, source: TopicSource) -> bool:
        """Returns the ring has no `need` bytes; returns when to try again and whether that took waiting, or raises."""

    def whole(self, need: int, block: bool, source: TopicSource) -> bool:
        """Returns a message in several datagrams, `need` bytes with all headers, is to begin; or raises.

        Returns:
            Whether nobody else may send until it is through, because it must not wait and there is room now.
        """

    def reserved(self, block: bool) -> None:
        """Another thread writes in place, or sends a message in pieces; returns when to try again, or raises."""

    def released(self) -> None:
        """A reservation, or a message in pieces, ended."""

    def opened(self) -> None:
        """A batch was opened while nobody watched the batching interval."""
