"""Messages over a frame link, in two lanes: long ones in pieces, and urgent ones before bulk ones.

A frame::

     0      1       2          4                8
    +------+-------+----------+----------------+---------
    | lane | first | reserved | remaining      | piece ...
    +------+-------+----------+----------------+---------

`lane` is 0 for urgent messages and 1 for bulk messages. `first` is 1 in the first frame of a message, else 0.
`remaining` is the number of bytes of the message from this piece on, the piece included; it is little endian, and
`reserved` is 0. The frames of one message come in order; frames of the other lane may come between them.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sized

    from ipcbus.recovery.frame_link import FrameLink

_HEADER = struct.Struct("<BBHI")

FRAME_HEADER = _HEADER.size
"""Bytes of a frame before its piece."""

FRAMES_MAX = 256
"""Most frames that one call of `ControlChannel.receive` takes, so that the other side can keep no caller busy."""

MESSAGE_MAX = (1 << 32) - 1
"""Longest message that a frame can describe, in bytes."""

_MESSAGE_COST = 64
"""Bytes that a waiting message costs in addition to its own, so that empty ones fill the queue too."""


class ControlChannel:
    """Messages both ways over one link.

    It has no clock and does not wait. Its user holds a lock, or uses it from one thread only, and calls:

    * `send`, then `flush`, for each message;
    * `flush` again, while it returns True, when the link may have room again: in each turn of the event loop, or after
      a wake-up by the link;
    * `receive` until it returns None, when the link may have frames; and in the next turn again while `behind` is True;
    * `broken` after these calls: a broken channel keeps no messages, and is closed and dropped.
    """

    def __init__(
        self,
        link: FrameLink,
        *,
        queue_max: int,
        message_max: int,
        acknowledged: Callable[[], int] | None = None,
    ) -> None:
        """Makes a channel over a link, which may still be opening.

        Args:
            link: carries the frames; the channel closes it.
            queue_max: most bytes that may wait in each lane; a lane always takes one message, whatever its length.
            message_max: longest message in bytes, both ways.
            acknowledged: returns how many frames have certainly come to the other side; None for a link that loses no
                frame when it breaks.

        Raises:
            ValueError: the frames of the link are too short, or the messages too long.
        """
        if link.frame_max <= FRAME_HEADER:
            raise ValueError(f"the link has frames of {link.frame_max} bytes; use at least {FRAME_HEADER + 1}")
        if not 0 <= message_max <= MESSAGE_MAX:
            raise ValueError(f"message_max = {message_max}, but it must be 0 to {MESSAGE_MAX}; lower it")
        self._link = link
        self._message_max = message_max
        self._sending = (_SendLane(0, queue_max), _SendLane(1, queue_max))
        self._receiving = (_ReceiveLane(), _ReceiveLane())
        self.malformed = 0
        """Frames that contradict themselves or the frames before them; they are dropped."""
        self._acknowledged = acknowledged
        self._frames = 0
        self._underway: deque[tuple[int, bytes]] = deque()
        self.doubtful: list[tuple[int, bytes]] = []
        """The urgent messages that were sent when the channel broke or was closed, and of which it is not known whether
        they have come, in order; each with the number of its last frame."""
        self.unsent: list[bytes] = []
        """The urgent messages that were not sent completely when the channel broke or was closed, in order."""
        self.behind = False
        """Whether `receive` stopped although frames may wait; call it again in the next turn of the event loop."""

    @property
    def broken(self) -> str:
        """The reason why the channel cannot be used any more; empty while it can be used."""
        return self._link.broken

    @property
    def frame_max(self) -> int:
        """The length of the longest frame with a whole message that the other side takes, in bytes."""
        return min(self._link.frame_max, FRAME_HEADER + self._message_max)

    @property
    def queued(self) -> int:
        """The number of bytes of messages that wait and are not sent completely."""
        return sum(lane.bytes for lane in self._sending)

    def send(self, message: bytes, *, bulk: bool = False) -> bool:
        """Appends a message to its lane; `flush` sends it.

        Args:
            message: up to `message_max` bytes; an empty message is valid.
            bulk: whether the message gives way to messages that are not bulk, between two frames.

        Returns:
            False when the lane is full or the channel broken: nothing was taken.

        Raises:
            ValueError: the message is too long.
        """
        if len(message) > self._message_max:
            raise ValueError(
                f"a control message of {len(message)} bytes is longer than the limit of {self._message_max}; send less "
                "at a time, or raise the limit on both sides"
            )
        return not self._link.broken and self._sending[bulk].append(message)

    def resume(self, messages: Iterable[bytes]) -> None:
        """Begins with the urgent messages of a channel before this one, whatever their length; `flush` sends them."""
        self._sending[0].take_over(messages)

    @property
    def urgent(self) -> Sized:
        """The urgent messages that wait; frames that do not come through this channel give way to them."""
        return self._sending[0].messages

    def send_now(self, message: bytes) -> bool:
        """Sends an urgent message at once, if no other one waits and one frame has room for it.

        Returns:
            False when that is not possible: nothing was taken, and `send` may take it.
        """
        link, length = self._link, len(message)
        if self._sending[0].messages or length > self.frame_max - FRAME_HEADER:
            return False
        is_taken = link.put(_HEADER.pack(0, 1, 0, length) + message)
        if is_taken:
            link.push()
            if self._acknowledged is not None:
                self._note_frame(message)
        return is_taken

    def send_alone(self, message: bytes) -> bool:
        """Sends an urgent message at once, if no other one waits and one frame has room for it.

        Any thread may call this, if no other one calls it at the same time.

        Returns:
            False when that is not possible: nothing was taken, and `send` may take it.
        """
        link, length = self._link, len(message)
        if length > self.frame_max - FRAME_HEADER:
            return False
        return link.put_alone(_HEADER.pack(0, 1, 0, length) + message, self._sending[0].messages)

    def flush(self) -> bool:
        """Sends what waits while the link has room; returns whether frames still wait."""
        waits = self._put_frames()
        self._link.push()
        return waits

    def _put_frames(self) -> bool:
        link = self._link
        for lane in self._sending:
            while lane.messages:
                if link.put(lane.frame(link.frame_max)):
                    sent = lane.advance()
                    if self._acknowledged is not None:
                        self._note_frame(sent if lane is self._sending[0] else None)
                elif link.broken:
                    self._drop()
                    return False
                else:
                    return True
        return False

    def _note_frame(self, sent: bytes | None) -> None:
        """Takes note of a frame that was put, and of the urgent message that was sent with it."""
        if sent is not None:
            self._forget_acknowledged()
            self._underway.append((self._frames, sent))
        self._frames += 1

    def _forget_acknowledged(self) -> None:
        acknowledged = self._acknowledged() if self._acknowledged is not None else 0
        while self._underway and self._underway[0][0] < acknowledged:
            self._underway.popleft()

    def receive(self) -> bytes | None:
        """Returns the next whole message; None when there is no whole message now (see `behind`)."""
        link = self._link
        for _ in range(FRAMES_MAX):
            frame = link.take()
            if frame is None:
                self.behind = False
                if link.broken:
                    self._drop()
                return None
            message = self._accept(frame)
            if message is not None:
                return message
        self.behind = True
        return None

    def close(self) -> None:
        """Closes the link; messages that wait are not sent any more."""
        self._link.close()
        self._drop()

    def _accept(self, frame: bytes) -> bytes | None:
        """Returns the message that a frame completes."""
        if len(frame) < FRAME_HEADER:
            self.malformed += 1
            return None
        lane, first, reserved, remaining = _HEADER.unpack_from(frame)
        length = len(frame) - FRAME_HEADER
        if lane >= len(self._receiving) or first > 1 or reserved:
            self.malformed += 1
            return None
        receiving = self._receiving[lane]
        if first:
            self.malformed += receiving.open is not None
            receiving.open, receiving.remaining = None, remaining
        expected = first or receiving.open is not None
        fits = remaining == receiving.remaining and remaining <= self._message_max and length <= remaining
        if not expected or not fits or (length == 0 and remaining):
            self.malformed += 1
            receiving.open = None
            return None
        if first and length == remaining:
            return frame[FRAME_HEADER:]
        return receiving.append(memoryview(frame)[FRAME_HEADER:])

    def _drop(self) -> None:
        self._forget_acknowledged()
        self.doubtful += self._underway
        self._underway.clear()
        self.unsent += self._sending[0].messages
        for lane in self._sending:
            lane.clear()
        for receiving in self._receiving:
            receiving.open = None


class _SendLane:
    """The messages of one lane that wait, and how far the first one is sent."""

    def __init__(self, number: int, queue_max: int) -> None:
        self._number, self._queue_max = number, queue_max
        self.messages: deque[bytes] = deque()
        self._sent = 0
        self._frame = b""
        self.bytes = 0

    def append(self, message: bytes) -> bool:
        cost = len(message) + _MESSAGE_COST
        if self.messages and self.bytes + (len(self.messages) * _MESSAGE_COST) + cost > self._queue_max:
            return False
        self.messages.append(message)
        self.bytes += len(message)
        return True

    def frame(self, frame_max: int) -> bytes:
        """Returns the next frame of a lane with messages, until `advance` always this one."""
        if not self._frame:
            message = self.messages[0]
            header = _HEADER.pack(self._number, self._sent == 0, 0, len(message) - self._sent)
            self._frame = header + message[self._sent : self._sent + frame_max - FRAME_HEADER]
        return self._frame

    def take_over(self, messages: Iterable[bytes]) -> None:
        self.messages.extend(messages)
        self.bytes = sum(map(len, self.messages))

    def advance(self) -> bytes | None:
        """Steps to the next frame, because this one was sent; returns the message that it ends."""
        self._sent += len(self._frame) - FRAME_HEADER
        self._frame = b""
        if self._sent < len(self.messages[0]):
            return None
        message = self.messages.popleft()
        self.bytes -= len(message)
        self._sent = 0
        return message

    def clear(self) -> None:
        self.messages.clear()
        self._frame, self._sent, self.bytes = b"", 0, 0


class _ReceiveLane:
    """The message of one lane of which some frames have come."""

    def __init__(self) -> None:
        self.open: bytearray | None = None
        self.remaining = 0

    def append(self, piece: memoryview) -> bytes | None:
        """Returns the message when this piece is its last."""
        if self.open is None:
            self.open = bytearray()
        self.open += piece
        self.remaining -= len(piece)
        if self.remaining:
            return None
        message, self.open = bytes(self.open), None
        return message
