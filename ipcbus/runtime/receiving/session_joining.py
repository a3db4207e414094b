"""Joins sessions, and remembers sessions that cannot be joined."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING

from ipcbus.errors import IpcBusError
from ipcbus.resolution.local.adverts import TRANSPORT_NAMES
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.transport.receiving_session import ReceivingSession
from ipcbus.transport.ring import topic_lines
from ipcbus.transport.ring.ring_receiver import RingReceiver
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.wire.wire_layout import TRANSPORT_LBTIPC, TRANSPORT_LBTSMX
from ringbuf.ring_errors import RingError, SegmentGone, SegmentRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ipcbus.config import ContextOptions, ReceiverOptions
    from ipcbus.delivery.reassembly_budget import ReassemblyBudget
    from ipcbus.delivery.sink import Sink
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.resolution.local.registry import PeerRegistry
    from ipcbus.runtime.loop.udp_endpoints import UdpEndpoints
    from ipcbus.transport.datagram_source import DatagramSource
    from ringbuf.slots import Identity

log = logging.getLogger("ipcbus")

_GONE_NS = 500_000_000


class SessionJoiner:
    """Joins sessions for one context."""

    def __init__(
        self,
        domain: str,
        who: Identity,
        options: ContextOptions,
        network: UdpEndpoints,
        budget: ReassemblyBudget,
        failed: Callable[[Sink, BaseException], None],
        count: Callable[[int], None],
    ) -> None:
        """Begins without refused sessions.

        Args:
            domain: the bus domain.
            who: the identity of the context.
            options: the options of the context.
            network: joins sessions over UDP.
            budget: limits the memory of the context's delivery controllers together.
            failed: gets errors of callbacks.
            count: counts events, and messages read outside of the pump, that receivers got.
        """
        self._domain, self._who, self._options, self._network = domain, who, options, network
        self._budget, self._failed, self._count = budget, failed, count
        self.refused: dict[SessionAdvert, tuple[int, str]] = {}
        self._missing_since: dict[SessionAdvert, int] = {}

    def join(
        self,
        advert: SessionAdvert,
        registry: PeerRegistry | None,
        options: ReceiverOptions,
        pid: int,
        resume_at: int | None = None,
    ) -> ReceivingSession | None:
        """Joins a session.

        Args:
            advert: the session.
            registry: the registry that offers the session; None when only the network offers it.
            options: the options of the first receiver of the session.
            pid: process id of the source; 0 when that is not known.
            resume_at: for a session over UDP, the number of the first datagram to receive (`ReliableReceiver`).

        Returns:
            The session; None when it cannot be joined, with the reason in `refused`, or when it is ending.
        """
        if resume_at is not None and registry is not None and not registry.alive():
            return None  # the connection broke because its source died; the ring may have a free slot by now
        try:
            if advert.over_udp:
                return self._over_udp(advert, registry, options, pid, resume_at=resume_at)
            try:
                return self._make_session(advert, self.over_ring(advert, registry), options, pid)
            except SegmentGone as error:
                # The source is closing, and its registry will show that; or a user has removed the ring.
                if self._missing_since.setdefault(advert, time.monotonic_ns()) > time.monotonic_ns() - _GONE_NS:
                    self.refused[advert] = (pid, str(error))
                    return None
                return self._fall_back(advert, registry, options, pid, error, resume_at)
            except RingError as error:
                return self._fall_back(advert, registry, options, pid, error, resume_at)
        except (RingError, OSError, IpcBusError) as error:
            if self.refused.get(advert, (0, ""))[1] != str(error):
                log.warning("%s cannot be joined: %s", advert.source_string, error)
            self.refused[advert] = (pid, str(error))
            return None

    def _fall_back(
        self,
        advert: SessionAdvert,
        registry: PeerRegistry | None,
        options: ReceiverOptions,
        pid: int,
        error: RingError,
        resume_at: int | None,
    ) -> ReceivingSession:
        """Joins the UDP twin of a ring that cannot be joined, or raises the reason."""
        if not can_fall_back(advert, options):
            raise error
        log.warning("%s is received over %s: %s", advert.source_string, TRANSPORT_NAMES[advert.over_network], error)
        return self._over_udp(advert, registry, options, pid, str(error), resume_at)

    def _over_udp(
        self,
        advert: SessionAdvert,
        registry: PeerRegistry | None,
        options: ReceiverOptions,
        pid: int,
        reason: str = "",
        resume_at: int | None = None,
    ) -> ReceivingSession:
        udp_receiver = self.over_udp(advert, options, resume_at)
        if registry is not None:
            # The lines show the last numbers of the source, however the session ends. Not every ring can be mapped.
            with contextlib.suppress(RingError, OSError):
                self._check_uid(registry)
                udp_receiver.lines = topic_lines.find(self._domain, advert, registry.uid)
        return self._make_session(advert, udp_receiver, options, pid, reason)

    def over_ring(self, advert: SessionAdvert, registry: PeerRegistry | None) -> RingReceiver:
        """Joins a session by its ring.

        Raises:
            ringbuf.ring_errors.RingError: the ring cannot be mapped, or has no free slot.
        """
        if registry is None:
            raise SegmentRefused(
                f"this context cannot map the memory of {advert.source_string}: the source has just ended, or it is "
                "on another host or in another container; then send over lbtru or lbtrm, or share /dev/shm"
            )
        self._check_uid(registry)
        every = self._options.latency_sampling_interval
        receiver = RingReceiver(self._domain, advert, self._who, owner_uid=registry.uid, sample_every=every)
        receiver.touch(self._options.shared_memory_touch_maximum)
        return receiver

    def over_udp(self, advert: SessionAdvert, options: ReceiverOptions, resume_at: int | None = None) -> UdpReceiver:
        """Joins a session, or the UDP twin of a ring session, over UDP.

        Raises:
            IpcBusError, ringbuf.ring_errors.RingError: as in `UdpEndpoints.join`.
        """
        return self._network.join(advert, options, resume_at=resume_at)

    def _make_session(
        self,
        advert: SessionAdvert,
        datagram_source: DatagramSource,
        options: ReceiverOptions,
        pid: int,
        reason: str = "",
    ) -> ReceivingSession:
        self.refused.pop(advert, None)
        self._missing_since.pop(advert, None)
        return ReceivingSession(
            advert,
            datagram_source,
            owner_pid=datagram_source.owner_pid or pid,
            begun=datagram_source.begun,
            budget=self._budget,
            failed=self._failed,
            delivered=self._count,
            activity_timeout_ns=_activity_timeout_ns(advert, options),
            options=options,
            reason=reason,
        )

    def withdraw_dead(
        self, sessions: Iterable[ReceivingSession], registry_of: Callable[[SessionAdvert], PeerRegistry | None]
    ) -> None:
        """Ends, by timer, sessions over UDP whose sources died on this host.

        No packet shows that a source is dead, and its registry stays for a while.
        """
        for session in sessions:
            if isinstance(session.datagram_source, UdpReceiver):
                registry = registry_of(session.advert)
                if registry is not None and not registry.alive():
                    self._network.read()  # first, the packets that the source sent before its death
                    session.datagram_source.note_withdrawn(died=True)

    def hears(self, session: ReceivingSession) -> bool:
        """Returns whether a source that seems dead is heard after all: a slow callback may have kept us from it."""
        if isinstance(session.datagram_source, UdpReceiver):
            self._network.read()
        return not session.owner_died()

    def keep(self, offered: Collection[SessionAdvert]) -> None:
        """Forgets sessions that are no longer offered."""
        for advert in [advert for advert in self.refused if advert not in offered]:
            del self.refused[advert]
            self._missing_since.pop(advert, None)

    def _check_uid(self, registry: PeerRegistry) -> None:
        """Checks the owner of shared memory: another user could cut the memory short while this process uses it.

        Raises:
            SegmentRefused: another user owns the memory, and option shared_memory_group is not set.
        """
        if registry.uid != os.geteuid() and not self._options.shared_memory_group:
            raise SegmentRefused(
                f"no permission to map the sessions of {registry.name}: owner uid {registry.uid}, this process uid "
                f"{os.geteuid()}; run both sides as one user, or set shared_memory_group to a group of both users on "
                "both sides"
            )


def can_fall_back(advert: SessionAdvert, options: ReceiverOptions) -> bool:
    """Returns whether a ring session has a UDP twin that its receivers may use."""
    return advert.endpoint is not None and options.use_udp_fallback


def _activity_timeout_ns(advert: SessionAdvert, options: ReceiverOptions) -> int:
    ms = {
        TRANSPORT_LBTIPC: options.transport_lbtipc_activity_timeout,
        TRANSPORT_LBTSMX: options.transport_lbtsmx_activity_timeout,
    }
    # Over UDP the UDP receiver has this timeout, because it sees packets.
    return ms[advert.transport] * 1_000_000 if advert.transport in ms else FOREVER_NS
