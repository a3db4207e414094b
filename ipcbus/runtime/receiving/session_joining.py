"""Joining sessions, and remembering those that cannot be joined."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING

from ipcbus.errors import IpcBusError
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
        told: Callable[[int], None],
    ) -> None:
        """For a context.

        Args:
            domain: the bus domain.
            who: how the context introduces itself.
            options: of the context.
            network: joins what comes over UDP.
            budget: what its delivery controllers may hold together.
            failed: told of exceptions in callbacks.
            told: told how many events and messages read by the way were given to receivers.
        """
        self._domain, self._who, self._options, self._network = domain, who, options, network
        self._budget, self._failed, self._told = budget, failed, told
        self.refused: dict[SessionAdvert, tuple[int, str]] = {}
        self._gone: dict[SessionAdvert, int] = {}

    def join(
        self, advert: SessionAdvert, registry: PeerRegistry | None, options: ReceiverOptions, pid: int
    ) -> ReceivingSession | None:
        """Joins a session.

        Args:
            advert: the session.
            registry: the one that offers it; None when it is offered over the network only.
            options: of the first receiver that wants it.
            pid: process that sends; 0 when that is not known.

        Returns:
            The session; None when it cannot be joined, with the reason in `refused`, or ends just now.
        """
        try:
            if advert.over_udp:
                return self._over_udp_from_now(advert, registry, options, pid)
            try:
                return self._made(advert, self.over_ring(advert, registry), options, pid)
            except SegmentGone as error:
                # The source closes just now, and its registry will say so; or somebody has removed the ring.
                if self._gone.setdefault(advert, time.monotonic_ns()) > time.monotonic_ns() - _GONE_NS:
                    self.refused[advert] = (pid, str(error))
                    return None
                return self._fall_back(advert, registry, options, pid, error)
            except RingError as error:
                return self._fall_back(advert, registry, options, pid, error)
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
    ) -> ReceivingSession:
        """Joins the twin of a ring that cannot be joined, or raises why that cannot be."""
        if not can_fall_back(advert, options):
            raise error
        log.warning("%s is received over UDP: %s", advert.source_string, error)
        return self._over_udp_from_now(advert, registry, options, pid, str(error))

    def _over_udp_from_now(
        self,
        advert: SessionAdvert,
        registry: PeerRegistry | None,
        options: ReceiverOptions,
        pid: int,
        reason: str = "",
    ) -> ReceivingSession:
        udp_receiver = self.over_udp(advert, options)
        if registry is not None:
            # How far its source has come is known then, however the session ends. It may not be mapped to be read.
            with contextlib.suppress(RingError, OSError):
                self._check_uid(registry)
                udp_receiver.lines = topic_lines.find(self._domain, advert, registry.uid)
        return self._made(advert, udp_receiver, options, pid, reason)

    def over_ring(self, advert: SessionAdvert, registry: PeerRegistry | None) -> RingReceiver:
        """Joins a session by its ring.

        Raises:
            ringbuf.ring_errors.RingError: it cannot be mapped, or has no slot.
        """
        if registry is None:
            raise SegmentRefused(
                f"the memory of {advert.source_string} cannot be mapped: its source is on another host, or in another "
                "container"
            )
        self._check_uid(registry)
        every = self._options.latency_sampling_interval
        return RingReceiver(self._domain, advert, self._who, owner_uid=registry.uid, sample_every=every)

    def over_udp(self, advert: SessionAdvert, options: ReceiverOptions, *, resume: bool = False) -> UdpReceiver:
        """Joins a session, or the twin of one over a ring, over UDP.

        Raises:
            IpcBusError, ringbuf.ring_errors.RingError: as `UdpEndpoints.join`.
        """
        return self._network.join(advert, options, resume=resume)

    def _made(
        self,
        advert: SessionAdvert,
        datagram_source: DatagramSource,
        options: ReceiverOptions,
        pid: int,
        reason: str = "",
    ) -> ReceivingSession:
        self.refused.pop(advert, None)
        self._gone.pop(advert, None)
        return ReceivingSession(
            advert,
            datagram_source,
            owner_pid=datagram_source.owner_pid or pid,
            begun=datagram_source.begun,
            budget=self._budget,
            failed=self._failed,
            delivered=self._told,
            activity_timeout_ns=_activity_timeout_ns(advert, options),
            options=options,
            reason=reason,
        )

    def bury(
        self, sessions: Iterable[ReceivingSession], registry_of: Callable[[SessionAdvert], PeerRegistry | None]
    ) -> None:
        """By timer: the sources of sessions over UDP that died on this host are known to be dead.

        Over the network nothing says so, and nobody takes their registries away for a while.
        """
        for session in sessions:
            if isinstance(session.datagram_source, UdpReceiver):
                registry = registry_of(session.advert)
                if registry is not None and not registry.alive():
                    self._network.read()  # what had been sent before is there
                    session.datagram_source.note_withdrawn(died=True)

    def hears(self, session: ReceivingSession) -> bool:
        """Returns whether a source that seems dead is heard after all: a slow callback may have kept us from it."""
        if isinstance(session.datagram_source, UdpReceiver):
            self._network.read()
        return not session.owner_died()

    def keep(self, offered: Collection[SessionAdvert]) -> None:
        """Forgets sessions that are not offered any more."""
        for advert in [advert for advert in self.refused if advert not in offered]:
            del self.refused[advert]
            self._gone.pop(advert, None)

    def _check_uid(self, registry: PeerRegistry) -> None:
        """Refuses the memory of another user, who could cut it short under us, unless a group was agreed on.

        Raises:
            SegmentRefused: another user's, and no group.
        """
        if registry.uid != os.geteuid() and not self._options.shared_memory_group:
            raise SegmentRefused(
                f"no permission to map the sessions of {registry.name}: owner uid {registry.uid}, this process uid "
                f"{os.geteuid()}; "
                "run both sides as one user, or set shared_memory_group to a group of both, here and there"
            )


def can_fall_back(advert: SessionAdvert, options: ReceiverOptions) -> bool:
    """Returns whether a session over a ring has a way over UDP that its receivers want."""
    return advert.endpoint is not None and options.use_udp_fallback


def _activity_timeout_ns(advert: SessionAdvert, options: ReceiverOptions) -> int:
    ms = {
        TRANSPORT_LBTIPC: options.transport_lbtipc_activity_timeout,
        TRANSPORT_LBTSMX: options.transport_lbtsmx_activity_timeout,
    }
    # Over UDP the receiver's end has it, which knows packets.
    return ms[advert.transport] * 1_000_000 if advert.transport in ms else FOREVER_NS
