"""The control channels of a context to the sources of its joined sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.transport.ring.ring_receiver import RingReceiver

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.transport.datagram_source import DatagramSource
    from ipcbus.transport.receiving_session import ReceivingSession
    from ipcbus.transport.ring.pipe_link import ReceiverPipeLink

MESSAGE_MAX = 1 << 26
"""Longest message of a control channel in bytes."""
_QUEUE_MAX = 1 << 20
_RETRY_NS = 200_000
"""Time in ns after which a channel that opens or has no room is looked at again."""


class ReceiverChannels:
    """The channels of a context's receivers, one for each joined session that needs it. Runs on the driver.

    A channel is opened when it is first needed, and again after it broke.
    """

    def __init__(self, hurry: Callable[[], None]) -> None:
        """Begins without channels.

        Args:
            hurry: makes the event loop call `turn` soon.
        """
        self._hurry = hurry
        self._channels: dict[SessionAdvert, tuple[DatagramSource, ReceiverPipeLink, ControlChannel]] = {}

    def of(self, session: ReceivingSession) -> ControlChannel | None:
        """Returns the channel to the source of a session; None when there can be no channel now."""
        source = session.datagram_source
        known = self._channels.get(session.advert)
        if known is not None:
            if known[0] is source and not known[2].broken:
                return known[2]
            self.forget(session)
        if not isinstance(source, RingReceiver):
            return None
        link = source.control_link()
        link.request()
        channel = ControlChannel(link, queue_max=_QUEUE_MAX, message_max=MESSAGE_MAX)
        self._channels[session.advert] = source, link, channel
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
        if known is None or known[2].broken:
            return False
        return known[2].queued > 0 or known[1].is_unread

    def turn(self, now_ns: int) -> int:
        """Opens channels, and sends what waits for room; returns when to call again, ns of the monotonic clock."""
        waits = False
        for _, link, channel in list(self._channels.values()):
            link.attend()
            while channel.receive() is not None:
                pass  # sources send nothing yet that a receiver asked for
            waits |= channel.flush()
        return now_ns + _RETRY_NS if waits else FOREVER_NS

    def forget(self, session: ReceivingSession) -> None:
        """Closes the channel of a session that is left."""
        known = self._channels.pop(session.advert, None)
        if known is not None:
            known[2].close()

    def abandon(self) -> None:
        """Forgets the channels in the child of a fork; closing them would end those of the parent."""
        for _, link, _ in self._channels.values():
            link.abandon()
        self._channels.clear()
