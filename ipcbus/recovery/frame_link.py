"""The interface of what carries the frames of a control channel between one receiving context and one session."""

from __future__ import annotations

from typing import Protocol


class FrameLink(Protocol):
    """A bounded two-way link: each frame arrives once, whole and in order, or the link breaks.

    No call waits. A link is not thread-safe: its user calls it from one thread at a time. Nothing that the other side
    does raises an exception.
    """

    @property
    def frame_max(self) -> int:
        """The length of the longest frame, in bytes; a link takes frames of 1 byte or more."""

    @property
    def broken(self) -> str:
        """The reason why the link cannot be used any more; empty while it can be used, also before it is open."""

    def put(self, frame: bytes) -> bool:
        """Sends a frame.

        Returns:
            False when there is no room now, when the link is not open yet, or when it is broken: nothing was sent.

        Raises:
            ValueError: the frame is empty, or longer than `frame_max`.
        """

    def take(self) -> bytes | None:
        """Returns the next frame; None when there is no frame now."""

    def close(self) -> None:
        """Ends the link for both sides; the other side finds that it is broken."""
