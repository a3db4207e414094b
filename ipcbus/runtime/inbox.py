"""What a context receives: its receivers' topics and the sessions it has joined for them."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.delivery.budget import Budget
from ipcbus.resolution import names
from ipcbus.runtime.evicted import EvictedSessions
from ipcbus.runtime.info import sessions_of
from ipcbus.runtime.peers import Peers
from ipcbus.transport.receiving import ReceivingSession
from ringbuf.doorbell import CALL, BellRope
from ringbuf.errors import RingError, SegmentGone, SegmentRefused
from ringbuf.slots import Identity

if TYPE_CHECKING:
    from ipcbus.config import ContextOptions, ReceiverOptions
    from ipcbus.delivery.sink import Sink
    from ipcbus.resolution.adverts import SessionAdvert, SourceAdvert
    from ipcbus.resolution.registry import PeerRegistry
    from ipcbus.runtime.driver import Driver
    from ipcbus.runtime.info import SessionInfo

log = logging.getLogger("ipcbus")


@dataclass(slots=True)
class Interest:
    """A receiver's wish: a topic, where its messages go, and how."""

    topic: str
    sink: Sink
    options: ReceiverOptions


class Inbox:
    """The receiving sessions of a context. Everything here runs on the driver."""

    def __init__(self, domain: str, context_id: int, options: ContextOptions, driver: Driver) -> None:
        """An inbox without receivers."""
        self._domain, self._options, self._driver = domain, options, driver
        self._who = Identity(os.getpid(), os.geteuid(), context_id, options.context_name)
        self._budget = Budget(
            options.delivery_control_maximum_total_map_entries, options.delivery_control_maximum_reassembly_bytes
        )
        self._interests: list[Interest] = []
        self._peers = Peers(domain)
        self._sessions: dict[SessionAdvert, ReceivingSession] = {}
        self._refused: dict[SessionAdvert, tuple[int, str]] = {}
        self._ended: set[SessionAdvert] = set()
        self._evicted = EvictedSessions()
        self._errors_told: set[tuple[int, str]] = set()
        self._told = 0
        self._unsettled = False
        self._owes = False
        self.blocked = False

    def take_told(self) -> int:
        """Events, and messages read outside of the pump, that were given to receivers since the last call."""
        told, self._told = self._told, 0
        return told

    def _count_told(self, told: int) -> None:
        self._told += told

    def sessions(self) -> list[ReceivingSession]:
        """The joined sessions."""
        return list(self._sessions.values())

    def add(self, interest: Interest) -> None:
        """Receives one more topic."""
        self._interests.append(interest)
        self._unsettled = True
        self.scan()

    def remove(self, interest: Interest) -> None:
        """Stops receiving for one receiver."""
        interest.sink.closed = True
        if interest in self._interests:
            self._interests.remove(interest)
            self._reconcile()

    # ------------------------------------------------------------------ resolution

    def scan(self) -> None:
        """Looks for new and vanished registries, then as `refresh`."""
        if not self._interests:
            self._unsettled |= self._peers.forget_all()
            return
        self._unsettled |= self._peers.scan()
        self.refresh()

    def refresh(self) -> None:
        """Reads the registries that changed and joins or leaves accordingly."""
        if self._peers.refresh() or self._unsettled:
            self._reconcile()

    def _reconcile(self) -> None:
        self._unsettled = False
        wanted: dict[str, list[Sink]] = {}
        for interest in self._interests:
            wanted.setdefault(interest.topic, []).append(interest.sink)
        offered = self._peers.offers()
        for advert, sources in offered.items():
            mine = [source for source in sources.values() if source.topic in wanted]
            if mine and advert not in self._ended:
                self._take(advert, mine, wanted)
        if self._evicted.sessions():
            self._unsettled |= self._owe() or self._evicted.settle(offered, wanted, self._peers.contexts())
        for advert, joined in list(self._sessions.items()):
            self._prune(joined, offered.get(advert), wanted)
        self._ended &= offered.keys()
        for advert in self._refused.keys() - offered.keys():
            del self._refused[advert]

    def _take(self, advert: SessionAdvert, sources: list[SourceAdvert], wanted: dict[str, list[Sink]]) -> None:
        session = self._sessions.get(advert)
        if session is None and not (advert in self._evicted and (self._owe() or self._evicted.must_wait(advert))):
            session = self._join(advert)
            if session is not None:
                self._evicted.joined_again(session, {source.topic_number for source in sources})
        if session is None or not self._has(session):
            return
        for source in sources:
            sinks = [sink for sink in wanted[source.topic] if not sink.closed]
            if not sinks:
                continue  # closed by a callback of this very round
            known = session.demux.controller(source.topic_number)
            if known is not None and known.sinks == sinks:
                continue
            if session.can_receive(source):
                session.receive(source, sinks, self._options_of(source.topic), tell=not self._driver.quiet)
                self._owe()
                self.ring(advert.context_id)
            else:
                # The line is free once the topic that had it before is read to its end.
                self._unsettled = True

    def _options_of(self, topic: str) -> ReceiverOptions:
        """Those of the topic's first receiver."""
        return next(interest.options for interest in self._interests if interest.topic == topic)

    def _join(self, advert: SessionAdvert) -> ReceivingSession | None:
        registry = self._peers.registry_of(advert)
        try:
            self._check_uid(registry)
            session = ReceivingSession(
                self._domain,
                advert,
                self._who,
                owner_uid=registry.uid,
                sample_every=self._options.latency_sampling_interval,
                budget=self._budget,
                failed=self.failed,
                told=self._count_told,
            )
        except SegmentGone:
            # The source closes just now; its registry will say so.
            return None
        except (RingError, OSError) as error:
            if self._refused.get(advert, (0, ""))[1] != str(error):
                log.warning("%s cannot be joined: %s", advert.source_string, error)
            self._refused[advert] = (registry.pid, str(error))
            return None
        self._refused.pop(advert, None)
        self._sessions[advert] = session
        self._driver.watch(self.sessions())
        return session

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

    def _prune(
        self, session: ReceivingSession, offered: dict[int, SourceAdvert] | None, wanted: dict[str, list[Sink]]
    ) -> None:
        for controller in session.topics():
            # Only who had its beginning gets the rest: a receiver made after the source has ended does not.
            wanting = wanted.get(controller.origin.topic, ())
            sinks = [sink for sink in controller.sinks if sink in wanting]
            if not sinks:
                session.stop_topic(controller.topic_number, drain=False)
                continue
            if controller.sinks != sinks:
                controller.set_sinks(sinks)
            # A session that is no longer offered has been closed: its own end mark says when it is read out.
            if offered is not None and controller.topic_number not in offered:
                session.stop_topic(controller.topic_number, drain=True)
        if not self._driver.quiet:
            session.settle()
        if not session.topics():
            self._leave(session)

    def _leave(self, session: ReceivingSession) -> None:
        if self._drop(session):
            session.leave()
            self.ring(session.advert.context_id)

    def _has(self, session: ReceivingSession) -> bool:
        """Whether it is still joined; the callbacks of an event may have closed its last receiver."""
        return self._sessions.get(session.advert) is session

    def _drop(self, session: ReceivingSession) -> bool:
        """Reads a session no more; False when that is done already."""
        if not self._has(session):
            return False
        del self._sessions[session.advert]
        self._driver.watch(self.sessions())
        return True

    def ring(self, context_id: int) -> None:
        """Wakes another context."""
        with contextlib.suppress(OSError, RingError):
            rope = BellRope(names.bell(self._domain, context_id))
            rope.ring(CALL)
            rope.close()

    # ------------------------------------------------------------------ looking after sessions

    def attend(self) -> bool:
        """Looks after sessions that ended, broke, have a full receiver, or whose source wants an event.

        Returns:
            Whether a session still waits for room in a receiver's queue.
        """
        if self._owes:
            self._owes = False
            for session in filter(self._has, self.sessions()):
                session.tell_begin()
            self.check()
        for session in filter(self._has, self.sessions()):
            demux = session.demux
            if demux.wakes_writer:
                self.ring(session.advert.context_id)
            if demux.blocked and not any(
                sink.pulls and not sink.closed and sink.is_full_now()
                for each in session.topics()
                for sink in each.sinks
            ):
                demux.blocked = False
            attention = demux.attention
            demux.attention = demux.wakes_writer = False
            if demux.ring.evicted:
                self._cut_off(session)
            elif attention and demux.ring.broken:
                log.error(
                    "%s (pid %d) holds a record that no source writes; it is left",
                    session.source_string,
                    session.owner_pid,
                )
                self._end(session)
            elif attention and demux.ring.ended and not demux.blocked:
                self._end(session)
        self.blocked = any(session.demux.blocked for session in self.sessions())
        if any(session.demux.blocked == session.demux.watched for session in self.sessions()):
            self._driver.watch(self.sessions())
        return self.blocked

    def _cut_off(self, session: ReceivingSession) -> None:
        """The source has evicted this context: leaves, and joins again as soon as that can be."""
        self._leave(session)
        self._evicted.add(session)
        self._reconcile()

    def check(self) -> None:
        """By timer: sources that died, losses with nothing behind them, topics that are drained."""
        if self._owe():
            return
        for session in filter(self._has, self.sessions()):
            if session.owner_died():
                if session.drain():
                    self._end(session)
                continue
            session.check(time.monotonic_ns())
            if session.settle() and not session.topics():
                self._leave(session)
        self._evicted.tell_lost()
        if self._unsettled:
            self._reconcile()

    def _owe(self) -> bool:
        """Leaves what would call receivers back to the next `attend`, as long as the driver is quiet."""
        if self._driver.quiet:
            self._owes = self._driver.pump.attention = True
        return self._driver.quiet

    def retry(self) -> None:
        """Tries again to join what was refused."""
        if self._refused:
            self._reconcile()

    def _end(self, session: ReceivingSession) -> None:
        self._ended.add(session.advert)
        if self._drop(session):
            session.finish()
            session.leave()

    def failed(self, sink: Sink, error: Exception) -> None:
        """A callback raised: logged once a kind and receiver, counted always."""
        key = (id(sink), type(error).__name__)
        if key not in self._errors_told:
            self._errors_told.add(key)
            log.error(
                "callback of the receiver of %r raised %r; delivery goes on, more of this kind are only counted",
                getattr(sink.owner, "topic", "?"),
                error,
                exc_info=error,
            )

    def info(self, topic: str) -> list[SessionInfo]:
        """The sessions that carry a topic: joined, evicted from, and refused."""
        offered = [source for sources in self._peers.offers().values() for source in sources.values()]
        return sessions_of(topic, self.sessions(), self._evicted.sessions(), self._refused, offered)

    def close(self) -> None:
        """Leaves everything."""
        for session in self.sessions():
            self._leave(session)
        self._evicted.close()
        self._peers.forget_all()

    def abandon(self) -> None:
        """For a child after a fork."""
        for session in self._sessions.values():
            session.abandon()
        self._peers.forget_all()
