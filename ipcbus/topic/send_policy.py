"""The calls of the source-side topic layer to the layer above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ipcbus.topic.topic_source import TopicSource


class MessageSaver(Protocol):
    """What keeps copies of guaranteed messages until they are acknowledged. Calls come from one thread at a time."""

    def save(self, mode: int, timeout_ns: int, send_time_ns: int, block: bytes, data: bytes) -> int:
        """Saves a message that is about to be sent, and returns its GMD number; nothing is saved when it raises.

        Args:
            mode: 1: until one receiver has acknowledged it; 2: until all have.
            timeout_ns: time in ns until it counts as a failure; 0 for never.
            send_time_ns: the time since the epoch in ns.
            block: the header block; empty without headers.
            data: the value.

        Raises:
            ipcbus.GmdError: the area is full, or cannot be written.
        """

    def unsave(self, number: int) -> None:
        """Takes back the message that was saved last, as it was not sent."""

    def sent(self, number: int, first: int, last: int) -> None:
        """Notes the sequence numbers of the message that was saved last, which is in the open datagram."""


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

    def wait_for_release(self, block: bool) -> None:
        """Waits while another thread writes in place or sends a fragmented message; may return early, or raises."""

    def released(self) -> None:
        """Wakes threads that wait in `wait_for_release`: a reservation or a fragmented message ended."""

    def batch_opened(self) -> None:
        """Starts the timer of the batching interval; a batch was opened while the timer did not run."""
