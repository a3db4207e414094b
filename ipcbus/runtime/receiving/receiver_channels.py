"""The control channels of a context to the sources of its joined sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.transport.ring.ring_receiver import RingReceiver

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.config import ContextOptions
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.transport.datagram_source import DatagramSource
    from ipcbus.transport.receiving_session import ReceivingSession
    from ipcbus.transport.ring.pipe_link import ReceiverPipeLink
    from ringbuf.shared_words import WatchedWord

_MESSAGES_A_TURN = 16
_RETRY_NS = 200_000
"""Time in ns after which a channel that opens or has no room is looked at again."""


@dataclass(slots=True)
class _Open:
    session: ReceivingSession
    source: DatagramSource
    link: ReceiverPipeLink
    channel: ControlChannel
    word: WatchedWord | None = None
    """Changes when the source sends something; None before the channel is open."""


class ReceiverChannels:
    """The channels of a context's receivers, one for each joined session that needs it. Runs on the driver.

    A channel is opened when it is first needed, and again after it broke.
    """

    def __init__(self, options: ContextOptions, hurry: Callable[[], None]) -> None:
        """Begins without channels.

        Args:
            options: the options of the context.
            hurry: makes the event loop call `turn` soon.
        """
        self._queue_max = options.control_channel_queue_maximum
        self._message_max = options.control_channel_message_maximum
        self._hurry = hurry
        self.take: Callable[[ReceivingSession, bytes, int], object] = lambda *_: None
        """Gets the messages of the sources, each with its session and the time."""
        self.changes = 0
        """Changes whenever `words` does."""
        self._channels: dict[SessionAdvert, _Open] = {}

    def of(self, session: ReceivingSession) -> ControlChannel | None:
        """Returns the channel to the source of a session; None when there can be no channel now."""
        source = session.datagram_source
        known = self._channels.get(session.advert)
        if known is not None:
            if known.source is source and not known.channel.broken:
                return known.channel
            self.forget(session)
        if not isinstance(source, RingReceiver):
            return None
        link = source.control_link()
        link.request()
        channel = ControlChannel(link, queue_max=self._queue_max, message_max=self._message_max)
        self._channels[session.advert] = _Open(session, source, link, channel)
        return channel

    def send(self, session: ReceivingSession, message: bytes) -> bool:
        """Sends a message to the source of a session; returns False when that is not possible now."""
        channel = self.of(session)
        if channel is None:
            return False
        sent = channel.send_now(message) or channel.send(message)
        if channel.flush():
            self._hurry()
        return sent

    def is_unread(self, session: ReceivingSession) -> bool:
        """Returns whether the source of a session has not taken all messages yet."""
        known = self._channels.get(session.advert)
        if known is None or known.channel.broken:
            return False
        return known.channel.queued > 0 or known.link.is_unread

    def turn(self, now_ns: int) -> int:
        """Opens channels, takes what sources sent, and sends what waits for room.

        Returns:
            When to call again, in ns of the monotonic clock.
        """
        return min((self._turn(known, now_ns) for known in list(self._channels.values())), default=FOREVER_NS)

    def _turn(self, known: _Open, now_ns: int) -> int:
        if known.word is None and known.link.attend():
            known.word = known.link.watched()
            self.changes += 1
        elif known.channel.broken:
            known.word = None
            self.changes += 1
        for _ in range(_MESSAGES_A_TURN):
            message = known.channel.receive()
            if message is None:
                break
            self.take(known.session, message, now_ns)
        else:
            return now_ns
        if known.channel.flush():
            return now_ns + _RETRY_NS
        return now_ns if known.channel.behind else FOREVER_NS

    def drain(self, session: ReceivingSession, now_ns: int) -> None:
        """Takes all that the source of a session has sent, before the session is left."""
        known = self._channels.get(session.advert)
        while known is not None and self._turn(known, now_ns) <= now_ns:
            pass

    def words(self) -> list[WatchedWord]:
        """Returns the words that change when sources send something."""
        return [known.word for known in self._channels.values() if known.word is not None]

    def is_readable(self) -> bool:
        """Returns whether a source has sent something."""
        return any(known.word is not None and known.word.changed() for known in self._channels.values())

    def forget(self, session: ReceivingSession) -> None:
        """Closes the channel of a session that is left."""
        known = self._channels.pop(session.advert, None)
        if known is not None:
            known.channel.close()
            self.changes += 1

    def abandon(self) -> None:
        """Forgets the channels in the child of a fork; closing them would end those of the parent."""
        for known in self._channels.values():
            known.link.abandon()
        self._channels.clear()
