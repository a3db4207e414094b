"""The control channels of the sessions that a context sends: what receivers ask, and what they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.transport.ring.session_pipes import SessionPipes
from ipcbus.wire import control_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.recovery.frame_link import FrameLink
    from ipcbus.transport.sending_session import SendingSession
    from ringbuf.shared_words import WatchedWord

MESSAGE_MAX = 1 << 26
"""Longest message of a control channel in bytes."""
PIPE_BYTES = 1 << 18
"""Size of each of the two queues of a pipe, in bytes."""

_QUEUE_MAX = 1 << 20
_MESSAGES_A_TURN = 64


class SessionChannels:
    """The control channels of one session."""

    def __init__(self, session: SendingSession, group: str, respond: Callable[[int, memoryview], object]) -> None:
        """Begins without channels."""
        self.pipes = SessionPipes(session, queue_bytes=PIPE_BYTES, group=group)
        self._respond = respond
        self._channels: dict[FrameLink, ControlChannel] = {}
        self.malformed = 0

    @property
    def any(self) -> bool:
        """Whether a receiver has a channel."""
        return bool(self._channels)

    def look(self) -> bool:
        """Takes the messages of the receivers that called; returns whether more of them wait."""
        behind = False
        for link in self.pipes.look():
            channel = self._channels.get(link)
            if channel is None:
                channel = ControlChannel(link, queue_max=_QUEUE_MAX, message_max=MESSAGE_MAX)
                if not self._channels:
                    self.pipes.arm(sleeps=False)  # from now on, the context looks without being woken
                self._channels[link] = channel
            behind |= self._take_all(channel)
        return behind

    def look_again(self) -> bool:
        """Takes messages of all receivers; returns whether more of them wait."""
        behind = False
        for channel in list(self._channels.values()):
            behind |= self._take_all(channel)
        return behind

    def check(self) -> None:
        """Frees the channels of receivers that have gone."""
        for link in self.pipes.check():
            self._channels.pop(link, None)

    def close(self) -> None:
        """Ends all channels."""
        self.pipes.close()
        self._channels.clear()

    def _take_all(self, channel: ControlChannel) -> bool:
        for _ in range(_MESSAGES_A_TURN):
            message = channel.receive()
            if message is None:
                return channel.behind
            found = control_messages.decode_response(message)
            if found is not None:
                self._respond(*found)
            else:
                self.malformed += control_messages.decode(message) is None
        return True


class ControlChannels:
    """The control channels of all ring sessions of a context. Runs on the driver, but for `add` and `forget`."""

    def __init__(self, group: str, respond: Callable[[int, memoryview], object]) -> None:
        """Begins without sessions.

        Args:
            group: system group that may use the channels too, or empty.
            respond: gets the number of a request and each response to it.
        """
        self._group, self._respond = group, respond
        self._sessions: dict[SendingSession, SessionChannels] = {}
        self._behind = False
        self.changes = 0
        """Changes whenever `words` does."""

    def add(self, session: SendingSession) -> None:
        """Serves a session from now on."""
        self._sessions[session] = SessionChannels(session, self._group, self._respond)
        self.changes += 1

    def forget(self, session: SendingSession) -> None:
        """Ends the channels of a session that ends."""
        served = self._sessions.pop(session, None)
        if served is not None:
            served.close()
            self.changes += 1

    def words(self) -> list[WatchedWord]:
        """Returns the words that are not 0 while receivers call."""
        return [served.pipes.watched() for served in self._served()]

    def look(self) -> None:
        """Handles the calls of receivers."""
        for served in self._served():
            self._behind |= served.look()

    def turn(self, now_ns: int) -> int:
        """Handles what `look` left; returns when to call again, in ns of the monotonic clock."""
        if not self._behind:
            return FOREVER_NS
        self._behind = any([served.look_again() for served in self._served()])
        return now_ns if self._behind else FOREVER_NS

    def arm(self, *, sleeps: bool) -> bool:
        """Shows receivers whether this context sleeps; returns whether none of them calls.

        A session without channels always counts as asleep, so that its first call rings the doorbell.
        """
        return all([served.pipes.arm(sleeps=sleeps) for served in self._served() if served.any]) and not self._behind

    def check(self) -> None:
        """Frees the channels of receivers that have gone, by timer."""
        for served in self._served():
            served.check()

    def abandon(self) -> None:
        """Gives the channels up in the child of a fork."""
        for served in self._served():
            served.pipes.abandon()

    def _served(self) -> list[SessionChannels]:
        return list(self._sessions.values())
