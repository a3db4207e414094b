"""The interface of what carries the frames of a control channel between one receiving context and one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sized


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
        """Takes a frame to send; it is on its way after the next `push` at the latest.

        Returns:
            False when there is no room now, when the link is not open yet, or when it is broken: nothing was sent.

        Raises:
            ValueError: the frame is empty, or longer than `frame_max`.
        """

    def put_alone(self, frame: bytes, waiting: Sized) -> bool:
        """Sends a frame at once if nothing waits; any thread may call this.

        Args:
            frame: a whole message.
            waiting: the messages of its lane that the user of the link puts; the first one while it is put.

        Returns:
            False when that is not possible, as on a link whose `put` may have to wait for another thread.
        """

    def push(self) -> None:
        """Sends the frames that were put; one call for many frames costs less than one for each."""

    def take(self) -> bytes | None:
        """Returns the next frame; None when there is no frame now."""

    def close(self) -> None:
        """Ends the link for both sides; the other side finds that it is broken."""
