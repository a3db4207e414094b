"""The control channels of a context to the sources of its joined sessions."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.transport.ring.pipe_link import ReceiverPipeLink
from ipcbus.transport.ring.ring_receiver import RingReceiver
from ipcbus.transport.udp.udp_link import UdpLink
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.wire import control_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.config import ContextOptions
    from ipcbus.delivery.pump import Pump
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.transport.datagram_source import DatagramSource
    from ipcbus.transport.receiving_session import ReceivingSession
    from ipcbus.transport.ring.response_frames import ResponseWriter
    from ipcbus.wire.control_front import FrameTaker
    from ringbuf.shared_words import WatchedWord

log = logging.getLogger("ipcbus")

_SLICE_NS = 200_000
"""Time in ns after which a channel gives way to live messages."""
_YIELD_NS = 50_000
"""Time in ns after which a channel gives way to other processes on this processor."""
_RETRY_NS = 200_000
"""Time in ns after which a pipe that opens or has no room is looked at again; a link over UDP calls."""
_OPEN_AGAIN_NS = 100_000_000
"""Least time in ns between two links over UDP to one source."""


class _Taken(Protocol):
    """Gets the messages of the sources."""

    def __call__(self, session: ReceivingSession, message: bytes, now_ns: int, *, epoch: bool) -> object:
        """Takes a message; `epoch` says whether its send times are ns since the epoch, as they are over UDP."""


@dataclass(slots=True)
class _Open:
    session: ReceivingSession
    source: DatagramSource
    link: ReceiverPipeLink | UdpLink
    channel: ControlChannel
    opened_ns: int
    word: WatchedWord | None = None
    """Changes when the source sends something; None before the channel is open, and over UDP."""

    def responses(self) -> list[bytes]:
        """Returns the responses that may not have come, after the end of the channel, in the form for another channel.

        Recoveries and guaranteed delivery ask again over another channel; no thread would send a response again.
        """
        found = list(filter(control_messages.is_response, self.channel.unsent))
        if not isinstance(self.link, UdpLink):
            return found
        epoch, doubtful = self.link.window.epoch, self.channel.doubtful
        return [
            control_messages.resent(epoch, frame, message)
            for frame, message in doubtful
            if control_messages.is_response(message)
        ] + found

    def keep(self, message: bytes, bytes_max: int) -> bool:
        """Keeps a response for the next channel, if the link over UDP is broken and it has room."""
        if not self._has_lost_link() or not control_messages.is_response(message):
            return False
        if sum(map(len, self.channel.unsent)) + len(message) > bytes_max:
            return False
        self.channel.unsent.append(message)
        return True

    def waits_for_link(self) -> bool:
        """Returns whether its link over UDP is broken, and responses may not have come."""
        return self._has_lost_link() and bool(self.responses())

    def _has_lost_link(self) -> bool:
        if not isinstance(self.link, UdpLink) or not self.channel.broken:
            return False
        self.channel.close()  # from now on it says what was not sent
        return True


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
        self.take: _Taken = lambda session, message, now_ns, *, epoch: None
        self.changes = 0
        """Changes whenever `words` does."""
        self._channels: dict[SessionAdvert, _Open] = {}
        self._takers: list[FrameTaker | None] = [None] * 256
        self.responses_lost = 0
        """Responses that may not have come, and that are not sent again."""

    def hand(self, kind: int, taker: FrameTaker) -> None:
        """Hands messages of a kind that come through pipes to a taker, with their session as the peer."""
        self._takers[kind] = taker

    def of(self, session: ReceivingSession) -> ControlChannel | None:
        """Returns the channel to the source of a session; None when there can be no channel now."""
        source, now_ns = session.datagram_source, time.monotonic_ns()
        known = self._channels.get(session.advert)
        if known is not None and known.source is source:
            if not known.channel.broken:
                return known.channel
            if isinstance(source, UdpReceiver) and now_ns < known.opened_ns + _OPEN_AGAIN_NS:
                return None
        responses = self._close(session)
        link = self._link(source)
        if link is None:
            self._count_lost(session, len(responses))
            return None
        channel = ControlChannel(
            link,
            queue_max=self._queue_max,
            message_max=self._message_max,
            acknowledged=(lambda: link.window.acknowledged) if isinstance(link, UdpLink) else None,
        )
        again = [each for each in responses if not control_messages.is_sent_too_often(each)]
        self._count_lost(session, len(responses) - len(again))
        channel.resume(again)
        self._channels[session.advert] = _Open(session, source, link, channel, now_ns)
        return channel

    def may_open(self, session: ReceivingSession) -> bool:
        """Returns whether there is a channel to the source of a session, or will be one again."""
        return self.of(session) is not None or session.advert in self._channels

    def _link(self, source: DatagramSource) -> ReceiverPipeLink | UdpLink | None:
        """Opens a link to the source of a session; returns None when the session has ended here."""
        if isinstance(source, RingReceiver):
            pipe_link = source.control_link()
            pipe_link.request()
            return pipe_link
        if isinstance(source, UdpReceiver) and not source.closed:
            source.on_links = self._hurry
            return source.open_link()
        return None

    def send(self, session: ReceivingSession, message: bytes) -> bool:
        """Sends a message to the source of a session; returns False when that is not possible now."""
        channel = self.of(session)
        if channel is None:
            known = self._channels.get(session.advert)
            kept = known is not None and known.keep(message, self._queue_max)
            if kept:
                self._hurry()
            return kept
        sent = channel.send_now(message) or channel.send(message)
        if channel.flush():
            self._hurry()
        return sent

    def response_writer(self, session: ReceivingSession, pump: Pump) -> ResponseWriter | None:
        """Returns the short way for responses to the source of a session; None without an open pipe.

        Args:
            session: the session.
            pump: says which thread drives the context.
        """
        known = self._channels.get(session.advert)
        if known is None or known.channel.broken or not isinstance(known.link, ReceiverPipeLink):
            return None
        return known.link.response_writer(known.channel, pump)

    def is_unread(self, session: ReceivingSession) -> bool:
        """Returns whether the source of a session has not taken all messages yet."""
        known = self._channels.get(session.advert)
        if known is None:
            return False
        return known.channel.queued > 0 or known.link.is_unread or known.waits_for_link()

    def has_left(self, session: ReceivingSession) -> Callable[[], bool]:
        """Returns a function that says whether the messages to the source of a session have left this context.

        They stay here while the link does not open, or has no room. It may be called after the session has ended.
        """
        known = self._channels.get(session.advert)
        if known is None:
            return lambda: True
        return lambda: known.link.is_open and not known.channel.queued

    def turn(self, now_ns: int) -> int:
        """Opens channels, takes what sources sent, and sends what waits for room.

        Returns:
            When to call again, in ns of the monotonic clock.
        """
        return min((self._turn(known, now_ns) for known in list(self._channels.values())), default=FOREVER_NS)

    def _turn(self, known: _Open, now_ns: int) -> int:
        pipe_link = known.link if isinstance(known.link, ReceiverPipeLink) else None
        if pipe_link is not None:
            self._attend(known, pipe_link)
        began_ns = yielded_ns = time.monotonic_ns()
        while (message := known.channel.receive()) is not None:
            self.take(known.session, message, now_ns, epoch=pipe_link is None)
            if time.monotonic_ns() - yielded_ns > _YIELD_NS:
                os.sched_yield()
                yielded_ns = time.monotonic_ns()
                if yielded_ns - began_ns > _SLICE_NS:
                    return now_ns
        if known.channel.flush() and pipe_link is not None:
            return now_ns + _RETRY_NS
        if known.waits_for_link():
            self.of(known.session)
            return max(now_ns, known.opened_ns + _OPEN_AGAIN_NS)
        return now_ns if known.channel.behind else FOREVER_NS

    def _attend(self, known: _Open, link: ReceiverPipeLink) -> None:
        """Maps a pipe that was made, and watches it."""
        if known.word is None and link.attend():
            known.word = link.inlet(self._takers, known.session)
            self.changes += 1
        elif known.channel.broken:
            known.word = None
            self.changes += 1

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
        self._count_lost(session, len(self._close(session)))

    def _close(self, session: ReceivingSession) -> list[bytes]:
        """Closes the channel of a session, if there is one; returns the responses that may not have come."""
        known = self._channels.pop(session.advert, None)
        if known is None:
            return []
        known.channel.close()
        self.changes += 1
        return known.responses()

    def _count_lost(self, session: ReceivingSession, count: int) -> None:
        if count:
            log.warning(
                "%s: responses that may not have come: %d. The session ended, was silent, or was left before the "
                "asking context had taken them, or links over UDP broke too often; they are not sent again",
                session.source_string,
                count,
            )
            self.responses_lost += count  # last: who sees the count finds the warning

    def abandon(self) -> None:
        """Forgets the channels in the child of a fork; closing them would end those of the parent."""
        for known in self._channels.values():
            if isinstance(known.link, ReceiverPipeLink):
                known.link.abandon()
        self._channels.clear()
