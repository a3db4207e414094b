"""Failover of sessions from their ring to UDP, and back, without a lost or doubled message."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.errors import IpcBusError
from ipcbus.runtime.receiving.session_joining import can_fall_back
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipcbus.config import ReceiverOptions
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.resolution.local.registry import PeerRegistry
    from ipcbus.runtime.receiving.session_joining import SessionJoiner
    from ipcbus.transport.receiving_session import ReceivingSession
    from ipcbus.transport.ring.ring_receiver import RingReceiver

log = logging.getLogger("ipcbus")

_REST_NS = 1_000_000_000
"""Time in ns for which a session stays on UDP before it goes back to its ring."""
_SOON_NS = 2_000_000


@dataclass(slots=True)
class _Return:
    """A session on its way back: its ring is joined, but not read until all earlier messages have come over UDP."""

    ring: RingReceiver
    is_through: Callable[[], bool]
    published: dict[int, int]


class Failover:
    """The failovers of one context. Runs on the driver."""

    def __init__(self, joiner: SessionJoiner) -> None:
        """Begins without failovers.

        Args:
            joiner: joins sessions.
        """
        self._joiner = joiner
        self._moved_ns: dict[SessionAdvert, int] = {}
        self._returning: dict[SessionAdvert, _Return] = {}

    def to_udp(self, session: ReceivingSession, options: ReceiverOptions, reason: str) -> bool:
        """Continues a session over UDP after the loss of its ring; returns False when that is not possible.

        Args:
            session: the session; it holds no datagram.
            options: the options of its receivers.
            reason: why the ring is lost.
        """
        if not can_fall_back(session.advert, options):
            return False
        try:
            udp_receiver = self._joiner.over_udp(session.advert, options, resume_at=0)
        except (IpcBusError, RingError, OSError) as error:
            log.warning("%s cannot be received over UDP either: %s", session.source_string, error)
            return False
        log.warning("%s goes on over %s: %s", session.source_string, udp_receiver.layer, reason)
        self._moved_ns[session.advert] = time.monotonic_ns()
        udp_receiver.lines = session.datagram_source.lines  # the ring is mapped still
        session.switch(udp_receiver, reason)
        return True

    def begin_returns(
        self, sessions: Iterable[ReceivingSession], registry_of: Callable[[SessionAdvert], PeerRegistry | None]
    ) -> bool:
        """Begins, by timer, to bring sessions back to their rings; returns whether any is on its way."""
        now_ns = time.monotonic_ns()
        for session in sessions:
            advert, udp_receiver = session.advert, session.datagram_source
            rests = now_ns - self._moved_ns.setdefault(advert, now_ns) < _REST_NS
            if advert.over_udp or not session.reason or not isinstance(udp_receiver, UdpReceiver):
                continue
            if advert in self._returning or rests:
                continue
            behind = bool(udp_receiver.reliable_receiver.missing or udp_receiver.reliable_receiver.catches_up)
            if session.demux.blocked or (behind and advert.source_paced):
                continue  # the source would overtake this context, or wait for it for nothing
            try:
                ring = self._joiner.over_ring(advert, registry_of(advert))
            except (RingError, OSError) as error:
                session.reason = str(error)
                continue
            if behind and ring.evicts:
                ring.leave()  # the source would evict this context again
                continue
            # A receiver-paced source waits for a context that is behind, which might never catch up over UDP.
            numbers = [each.topic_number for each in session.topics()]
            for number in numbers:
                ring.join_topic(number)
            # Read after the join: messages that are published later stay in the ring for this context.
            published = {number: ring.published(number) for number in numbers}
            self._returning[advert] = _Return(ring, udp_receiver.mark(), published)
        return bool(self._returning)

    def finish_returns(self, sessions: Iterable[ReceivingSession]) -> list[ReceivingSession]:
        """Finishes the returns that `begin_returns` has begun; returns the sessions that are back on their rings."""
        back = []
        for session in sessions:
            returning = self._returning.get(session.advert)
            if returning is not None and returning.ring.reader.evicted:
                # Evicted again. All messages still come over UDP, so the session stays there.
                self._returning.pop(session.advert).ring.leave()
                self._moved_ns[session.advert] = time.monotonic_ns()
                session.evictions += 1
                continue
            if returning is None or session.demux.holds_datagram or not returning.is_through():
                continue
            if session.has_all(returning.published):
                del self._returning[session.advert]
                log.info("%s is received from its ring again", session.source_string)
                session.switch(returning.ring, "")
                back.append(session)
        return back

    def next_ns(self, now_ns: int) -> int | None:
        """Returns when to call `finish_returns`; None when no session is on its way."""
        return now_ns + _SOON_NS if self._returning else None

    def keep(self, sessions: Iterable[ReceivingSession]) -> None:
        """Forgets sessions that are no longer joined."""
        kept = {session.advert for session in sessions}
        for advert in [advert for advert in self._returning if advert not in kept]:
            self._returning.pop(advert).ring.leave()
        for advert in [advert for advert in self._moved_ns if advert not in kept]:
            del self._moved_ns[advert]

    def abandon(self) -> None:
        """Gives up the rings in the child of a fork."""
        for returning in self._returning.values():
            returning.ring.abandon()
