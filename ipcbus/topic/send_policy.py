"""The calls of the source-side topic layer to the layer above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.topic.topic_source import TopicSource


class SendPolicy(Protocol):
    """What the batch writer asks of the layer above, never on the fast path of a message."""

    def ring_full(self, need: int, block: bool, source: TopicSource) -> bool:
        """Handles a ring without room for `need` bytes: returns when the source may try again, or raises.

        Returns:
            Whether it waited.
        """

    def begin_fragments(self, need: int, block: bool, source: TopicSource) -> bool:
        """Permits a message in several datagrams, of `need` bytes with all headers, or raises.

        Returns:
            Whether no other thread may send until the message is complete: it must not wait, and there is room now.
        """

    def wait_for_release(self, block: bool, is_shut: Callable[[], bool]) -> None:
        """Waits while another thread writes in place or sends a fragmented message; may return early, or raises.

        Args:
            block: whether the send may wait.
            is_shut: returns whether there still is something to wait for.
        """

    def released(self) -> None:
        """Wakes threads that wait in `wait_for_release`: a reservation or a fragmented message ended."""

    def batch_opened(self) -> None:
        """Makes the timer of batches look: it did not run, or it would look too late at a datagram of a burst."""
