"""Sessions that lose their ring and go on over UDP, and come back, without losing or doubling a message."""

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
"""So long a session stays where it is before it goes back to its ring."""
_SOON_NS = 2_000_000


@dataclass(slots=True)
class _Return:
    """A session on its way back: its ring is joined and not read yet, until what was sent before has come over UDP."""

    ring: RingReceiver
    is_through: Callable[[], bool]
    published: dict[int, int]


class Failover:
    """Those of one context. Runs on the driver."""

    def __init__(self, joiner: SessionJoiner) -> None:
        """Nobody moves."""
        self._joiner = joiner
        self._since_ns: dict[SessionAdvert, int] = {}
        self._returning: dict[SessionAdvert, _Return] = {}

    def to_udp(self, session: ReceivingSession, options: ReceiverOptions, reason: str) -> bool:
        """Goes on over UDP with a session whose ring is lost; False when there is no such way.

        Args:
            session: it; no datagram is in hand.
            options: of its receivers.
            reason: why its ring is lost.
        """
        if not can_fall_back(session.advert, options):
            return False
        try:
            udp_receiver = self._joiner.over_udp(session.advert, options, resume=True)
        except (IpcBusError, RingError, OSError) as error:
            log.warning("%s cannot be received over UDP either: %s", session.source_string, error)
            return False
        log.warning("%s goes on over UDP: %s", session.source_string, reason)
        self._since_ns[session.advert] = time.monotonic_ns()
        udp_receiver.lines = session.datagram_source.lines  # the ring is mapped still
        session.switch(udp_receiver, reason)
        return True

    def to_rings(
        self, sessions: Iterable[ReceivingSession], registry_of: Callable[[SessionAdvert], PeerRegistry | None]
    ) -> bool:
        """By timer: begins to bring sessions back to their rings, where that is possible; says whether any is."""
        now_ns = time.monotonic_ns()
        for session in sessions:
            advert, udp_receiver = session.advert, session.datagram_source
            rests = now_ns - self._since_ns.setdefault(advert, now_ns) < _REST_NS
            if not session.reason or not isinstance(udp_receiver, UdpReceiver) or advert in self._returning or rests:
                continue
            behind = bool(udp_receiver.reliable_receiver.missing or udp_receiver.reliable_receiver.catches_up)
            if session.demux.blocked or (behind and advert.source_paced):
                continue  # it would be overtaken, or hold up its source for nothing
            try:
                ring = self._joiner.over_ring(advert, registry_of(advert))
            except (RingError, OSError) as error:
                session.reason = str(error)
                continue
            if behind and ring.evicts:
                ring.leave()  # it would be evicted again
                continue
            # Who is behind a source that waits for its receivers has it wait: over UDP he might never get up to it.
            numbers = [each.topic_number for each in session.topics()]
            for number in numbers:
                ring.join_topic(number)
            # Read after joining: what is published later stands in the ring for this context.
            published = {number: ring.published(number) for number in numbers}
            self._returning[advert] = _Return(ring, udp_receiver.mark(), published)
        return bool(self._returning)

    def arrive(self, sessions: Iterable[ReceivingSession]) -> list[ReceivingSession]:
        """Finishes what `to_rings` has begun; returns the sessions that are back."""
        back = []
        for session in sessions:
            returning = self._returning.get(session.advert)
            if returning is not None and returning.ring.reader.evicted:
                # Over UDP everything still comes. Who leaves UDP now is waited for no longer than since the eviction.
                self._returning.pop(session.advert).ring.leave()
                self._since_ns[session.advert] = time.monotonic_ns()
                session.evictions += 1
                continue
            if returning is None or session.demux.holds or not returning.is_through():
                continue
            if session.has_all(returning.published):
                del self._returning[session.advert]
                log.info("%s is received from its ring again", session.source_string)
                session.switch(returning.ring, "")
                back.append(session)
        return back

    def next_ns(self, now_ns: int) -> int | None:
        """Returns when to call `arrive`; None when nobody is on the way."""
        return now_ns + _SOON_NS if self._returning else None

    def keep(self, sessions: Iterable[ReceivingSession]) -> None:
        """Forgets sessions that are not joined any more."""
        kept = {session.advert for session in sessions}
        for advert in [advert for advert in self._returning if advert not in kept]:
            self._returning.pop(advert).ring.leave()
        for advert in [advert for advert in self._since_ns if advert not in kept]:
            del self._since_ns[advert]

    def abandon(self) -> None:
        """For a child after a fork."""
        for returning in self._returning.values():
            returning.ring.abandon()
