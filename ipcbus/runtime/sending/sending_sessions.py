"""The sending sessions of a context, and the choice of a session for each source."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from typing import TYPE_CHECKING, cast

from ipcbus.config.message_sizes import HEADERS
from ipcbus.config.options.option_limits import MAX_ID
from ipcbus.errors import ClosedError, ConfigError, TransportError
from ipcbus.resolution.local.adverts import SourceAdvert
from ipcbus.runtime.error_mapping import as_ipcbus_error
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.runtime.sending.backpressure import Backpressure
from ipcbus.runtime.sending.control_channels import ControlChannels
from ipcbus.runtime.sending.expected_receivers import ExpectedReceivers
from ipcbus.runtime.sending.guaranteed_sources import GuaranteedSources
from ipcbus.runtime.sending.pending_wakeups import PendingWakeups
from ipcbus.runtime.sending.requests import Requests
from ipcbus.runtime.sending.retentions import Retentions
from ipcbus.runtime.sending.shared_sources import SharedSources
from ipcbus.topic.batch_timer import publish_old
from ipcbus.transport.ring.lbtipc import LBTIPC
from ipcbus.transport.ring.lbtsmx import LBTSMX
from ipcbus.transport.sending_session import SendingSession
from ipcbus.transport.tcp.lbttcp import LBTTCP
from ipcbus.transport.udp.lbtrm import LBTRM
from ipcbus.transport.udp.lbtru import LBTRU
from ringbuf import clock
from ringbuf.channel import touch
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.config import ContextOptions, SourceOptions
    from ipcbus.resolution.local.registry import Registry
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.runtime.loop.udp_endpoints import UdpEndpoints
    from ipcbus.runtime.sending.shared_sources import SharedSource
    from ipcbus.topic.topic_source import TopicSource
    from ipcbus.transport.transport_kinds import SessionPlan, Transport
    from ipcbus.transport.udp.session_socket import SessionSocket
    from ipcbus.transport.udp.udp_sender import UdpSender

log = logging.getLogger("ipcbus")

TRANSPORTS = {kind.option: kind for kind in (LBTIPC, LBTSMX, LBTRU, LBTRM, LBTTCP)}


class SendingSessions:
    """The sending sessions of a context."""

    def __init__(
        self,
        domain: str,
        context_id: int,
        options: ContextOptions,
        registry: Registry,
        event_loop: EventLoop,
        network: UdpEndpoints,
        announce: Callable[[], None],
        called: Callable[[], None],
    ) -> None:
        """Begins without sessions.

        Args:
            domain: the bus domain.
            context_id: id of the context.
            options: the options of the context.
            registry: offers sessions and sources to other contexts.
            event_loop: the event loop of the context.
            network: takes care of sessions over UDP.
            announce: notifies the other contexts of a change of the registry.
            called: makes the loop notify the sources soon of changes on their sessions.
        """
        self._domain, self._context_id, self._options = domain, context_id, options
        self._registry = registry
        self._event_loop, self._network = event_loop, network
        self._announce, self._notify_soon = announce, called
        self._lock = threading.Lock()
        self._closed = False
        self._inform_at_ns = FOREVER_NS
        self._infos_changed = False
        self._sessions: dict[tuple[int, int], SendingSession] = {}
        self._entries: dict[SendingSession, int] = {}
        self._locals = itertools.count()
        self._pool_turns = dict.fromkeys(TRANSPORTS, 0)
        self.liveness_ns = options.liveness_check_interval * 1_000_000
        self.pending_wakeups = PendingWakeups(self._schedule_notifications)
        self.requests = Requests(
            event_loop,
            maximum=options.requests_outstanding_maximum,
            expected=lambda topic: (
                network.resolution.offers(topic) or bool(ExpectedReceivers(domain, (), topic).of(topic))
            ),
            reclaim=self.reclaim,
        )
        self.guaranteed = GuaranteedSources(domain, self._serve_soon, options, event_loop.request_attention)
        self.retentions = Retentions()
        self.shares = SharedSources(domain, self._serve_soon, options, self.retentions, self._released)
        self.control_channels = ControlChannels(
            options, self.requests, self._serve_soon, self.guaranteed, self.shares, event_loop.count_messages
        )

    def sessions(self) -> list[SendingSession]:
        return list(self._sessions.values())

    def _released(self, session: SendingSession) -> None:
        """Lets sends go on that waited for members of shares."""
        session.policy.released()
        self.pending_wakeups.released(session)

    def open_topic(self, topic: str, options: SourceOptions) -> tuple[SendingSession, int, int]:
        """Chooses or makes the session of a new source.

        Returns:
            The session, the number of the topic on the session, and the entry of the source in the registry.

        Raises:
            ConfigError: no session can have these options.
            ClosedError: the context was closed meanwhile.
            ipcbus.TransportError: the session cannot be made.
        """
        if topic == options.umq_ulb_dead_letter_topic:
            raise ConfigError(
                f"topic {topic!r}: umq_ulb_dead_letter_topic = {topic!r}, so that what it gives up would come "
                "again for ever; name another topic"
            )
        kind = TRANSPORTS[options.transport]
        plan = kind.plan(self._options, options)
        with self._lock:
            if self._closed:
                raise ClosedError(f"topic {topic!r}: its context is closed; make a new Context")
            session = self._choose(kind, plan, options)
            number = session.add_topic()
            if options.message_max:
                session.batch.go_back(options.message_max + HEADERS, options.messages_in_flight)
            if options.gmd_name:
                self.guaranteed.expect(session, number)
            try:
                entry = self._registry.add_source(session.local, topic, number, retains=options.late_join)
            except RingError as error:
                self._remove_topic(session, number)
                raise as_ipcbus_error(error) from error
        self._announce()
        self._network.resolution.offer(SourceAdvert(session.advert, topic, number, options.late_join))
        return session, number, entry

    def retain(self, source: TopicSource, session: SendingSession, number: int, options: SourceOptions) -> None:
        """Lets a new source keep what it sends, if its options ask for that, and answers receivers that ask for it."""
        retention = self.retentions.add(source, options)
        retransmitter = self.control_channels.retransmitter(session)
        if retention is not None and retransmitter is not None:
            retransmitter.add_topic(number, retention)
        self.shares.add(cast("SharedSource", source), session, number, options)

    def close_topic(self, session: SendingSession, topic: str, number: int, entry: int) -> None:
        """Removes a source, and its session after the last source."""
        with self._lock:
            if session not in self._entries:
                return  # the context is being closed, and its sessions are gone already
            self._registry.remove(entry)
            tell_end = self._remove_topic(session, number)
        tell_end()
        if session.udp_sender is not None and session not in self._entries:
            self._network.push_out(session.udp_sender)
        self._network.resolution.withdraw(SourceAdvert(session.advert, topic, number))
        self._announce()

    def _remove_topic(self, session: SendingSession, number: int) -> Callable[[], None]:
        """Removes a topic; returns what tells the application about the messages of its shares."""
        session.remove_topic(number)
        tell_end = self.shares.close(session, number)
        retransmitter = self.control_channels.retransmitter(session)
        if retransmitter is not None:
            retransmitter.remove_topic(number)
        if session.sources == 0:
            self._drop(session)
        return tell_end

    def _choose(self, kind: Transport, plan: SessionPlan, options: SourceOptions) -> SendingSession:
        explicit = kind.explicit_id(options)
        if explicit:
            session = self._sessions.get((kind.code, explicit))
            if session is None:
                return self._make(kind, explicit, plan)
            if session.plan != kind.placed(plan, explicit):
                raise ConfigError(_disagreement(kind, explicit, session.plan, plan))
            if not session.has_line():
                raise ConfigError(
                    f"session {session.source_string} carries {session.topics_max} topics already; choose another "
                    f"{kind.prefix}_{kind.id_option} or raise "
                    f"{kind.prefix}_maximum_topics_per_transport"
                )
            return session
        pool = kind.pool(self._options)
        if options.message_max:
            return self._choose_large(kind, plan, pool)
        unused = [number for number in pool if (kind.code, number) not in self._sessions]
        if unused:
            return self._make(kind, secrets.choice(unused) if kind.shares_pool else unused[0], plan)
        fitting = [
            session
            for number in pool
            if (session := self._sessions[kind.code, number]).plan == kind.placed(plan, number) and session.has_line()
        ]
        if not fitting:
            raise ConfigError(
                f"all {len(pool)} sessions of the pool {kind.prefix}_id_low {pool[0]} to "
                f"{kind.prefix}_id_high {pool[-1]} have sources with other options or are full; give this "
                f"source its own {kind.prefix}_id, widen the pool, or use the options of the other sources"
            )
        turn = self._pool_turns[kind.option]
        self._pool_turns[kind.option] = turn + 1
        return fitting[turn % len(fitting)]

    def _choose_large(self, kind: Transport, plan: SessionPlan, pool: range) -> SendingSession:
        """Returns the session of sources with a message_max: one for each size, as their rings take much memory.

        Their ids are the highest ones, so that they leave the pool to other sources.
        """
        for session in self.sessions():
            if session.plan == plan and session.has_line():
                return session
        free = (number for number in range(MAX_ID, pool[-1], -1) if (kind.code, number) not in self._sessions)
        return self._make(kind, next(free), plan)

    def _make(self, kind: Transport, number: int, plan: SessionPlan) -> SendingSession:
        """Makes a session; `number` is its id, or its place in the pool."""
        plan = kind.placed(plan, number)
        session_id = secrets.randbelow(0xFFFFFFFF) + 1
        local = next(self._locals) & 0x7FFF
        session_socket = self._open_socket(plan)
        group = self._options.shared_memory_group
        listener = self._network.listener(self._schedule_notifications)
        try:
            session = SendingSession(
                self._domain,
                self._context_id,
                local,
                session_id,
                kind.shown_id(number, session_socket),
                plan,
                group,
                session_socket,
                listener,
                self._event_loop.answers,
            )
        except BaseException as error:
            if session_socket is not None:
                session_socket.close()
            if isinstance(error, RingError):
                raise as_ipcbus_error(error) from error
            raise
        touch(session.channel, self._options.shared_memory_touch_maximum)
        session.start(Backpressure(self, session))
        try:
            self._entries[session] = self._registry.add_session(session.advert)
        except RingError as error:
            session.close()
            raise as_ipcbus_error(error) from error
        self._sessions[kind.code, number] = session
        self.control_channels.add(session)
        self._event_loop.hurry()
        if session.udp_sender is not None:
            self._network.add(session.udp_sender)
        return session

    def _open_socket(self, plan: SessionPlan) -> SessionSocket | None:
        """Returns the socket of a session over UDP or of a UDP twin; None, with a warning, for a twin without one."""
        if plan.udp is None:
            return None
        try:
            return plan.udp.open(self._network.seals.source, self._network.tls, self._network.release)
        except (ConfigError, TransportError) as error:
            if plan.over_udp:
                raise
            log.warning(
                "receivers that cannot map the memory of sessions get no messages over UDP (udp_fallback): %s", error
            )
            return None

    def _drop(self, session: SendingSession) -> None:
        self._registry.remove(self._entries.pop(session))
        self._sessions = {key: each for key, each in self._sessions.items() if each is not session}
        self.pending_wakeups.forget(session)
        self.control_channels.forget(session)
        session.batch.flush()
        session.close()

    def close(self) -> None:
        """Ends all sessions."""
        with self._lock:
            self._closed = True
            ends = self.shares.close_all()
            for session in self.sessions():
                self._drop(session)
        for tell_end in ends:
            tell_end()

    def abandon(self) -> None:
        """For a child after a fork."""
        self.guaranteed.abandon()
        self.control_channels.abandon()
        for session in self._sessions.values():
            session.abandon()

    # ------------------------------------------------------------------ backpressure

    def reclaim(self) -> int:
        """Frees the slots of dead receivers, and drops dead clients over the network; returns their number."""
        return sum(self.reclaim_slots(session) + self.drop_dead_clients(session) for session in self.sessions())

    def reclaim_slots(self, session: SendingSession) -> int:
        """Frees the slots that dead receivers have in the ring of a session; returns their number."""
        with self._lock:  # so that the session is not closed meanwhile
            if session not in self._entries:
                return 0
            session.give_up_if_cut_short()
            freed = session.channel.slots.reclaim()
            for _ in freed:
                session.channel.writer.count_reclaimed()
        return len(freed)

    def drop_dead_clients(self, session: SendingSession) -> int:
        """Drops the dead receivers of a session over the network; returns their number."""
        with self._lock:
            return session.udp_sender.reclaim() if session.udp_sender is not None and session in self._entries else 0

    def receiver_locks(self) -> list[tuple[int, int]]:
        """Returns the locks that the receivers of all sessions hold while they live."""
        return [lock for session in self.sessions() for lock in session.channel.slots.locks()]

    def local_clients(self) -> list[int]:
        """Returns the ids of the contexts of this host that receive sessions over the network."""
        senders = [session.udp_sender for session in self.sessions()]
        return [each for sender in senders if sender is not None for each in sender.local_clients()]

    def inside_callback(self) -> bool:
        """Returns whether the calling thread is inside a callback of this context."""
        return self._event_loop.is_driver()

    def _schedule_notifications(self) -> None:
        self._notify_soon()
        self._event_loop.hurry()
        self._event_loop.interrupt()

    def _serve_soon(self) -> None:
        self._event_loop.hurry()
        if not self._event_loop.is_driver():
            self._event_loop.kick()

    def must_drive(self) -> bool:
        """Returns whether the calling thread, blocked in a send, has to read this context's rings itself."""
        return self._event_loop.sequential or (self._event_loop.split and self._event_loop.may_help())

    def evict_slow_receivers(self, session: SendingSession, need: int | None = None) -> None:
        """Evicts receivers that have kept a send of `need` bytes waiting for too long."""
        if session.evictor is None:
            return
        with self._lock:
            # Otherwise another thread has closed the session.
            evicted = session.evictor.evict_slow(time.monotonic_ns(), need) if session in self._entries else []
        if evicted:
            self._schedule_notifications()
            session.evictor.warn(evicted)

    def drive_briefly(self) -> None:
        """Delivers to this context's own receivers, for which the send may wait."""
        self._event_loop.help()

    def read_for_undriven(self, session: SendingSession) -> bool:
        """Lets clients over UDP take datagrams that this thread may have to drive (`UdpEndpoints`)."""
        return session.udp_sender is not None and self._network.read_for_undriven(session.udp_sender)

    def undriven(self, session: SendingSession) -> list[str]:
        """Returns the names of contexts for which a send may wait for ever: this process has to drive them."""
        slots = session.channel.slots
        positions = slots.positions()
        waited = [slots.identity(min(positions, key=positions.__getitem__)).context_id] if positions else []
        slowest = session.udp_sender.reliable_sender.slowest if session.udp_sender is not None else None
        return self._network.undriven([*waited, slowest.context_id] if slowest is not None else waited)

    def batch_opened(self) -> None:
        """Makes the driver watch the batching interval."""
        event_loop = self._event_loop
        event_loop.hurry()
        if not event_loop.sequential and not event_loop.is_driver():
            event_loop.kick()

    def slowest(self, session: SendingSession) -> str:
        """Returns a text that names the slowest receiver of a session."""
        slots = session.channel.slots
        positions = slots.positions()
        if not positions:
            return "none"
        index, position = min(positions.items(), key=lambda item: item[1])
        udp_sender = session.udp_sender
        if udp_sender is not None and index == udp_sender.slot:
            return _slowest_client(udp_sender)
        who = slots.identity(index)
        return f"{_named(who.pid, who.context_name)}, {session.bytes_behind(position)} bytes behind"

    # ------------------------------------------------------------------ timers

    def inform_of(self, source: TopicSource, session: SendingSession, options: SourceOptions) -> None:
        """Makes a silent source send the number of its last message (TSNI)."""
        session.infos.add(
            source,
            options.transport_topic_sequence_number_info_interval * 1_000_000,
            options.transport_topic_sequence_number_info_active_threshold * 1_000_000_000,
        )
        self._infos_changed = True

    def inform_due(self, now_ns: int) -> int:
        """Sends topic sequence number info that is due; returns when to call again, in ns of the monotonic clock."""
        if self._infos_changed or now_ns >= self._inform_at_ns:
            self._infos_changed = False  # before the loop: another thread may add a source meanwhile
            now = clock.ticks()
            left = [rest for session in self.sessions() if (rest := session.infos.send_due(now)) is not None]
            self._inform_at_ns = now_ns + min(left) if left else FOREVER_NS
        return self._inform_at_ns

    def evict_due(self) -> int | None:
        """Evicts slow receivers in the way of refused sends; returns the ns until the next call, None for no call."""
        left = []
        for session in self.sessions():
            if session.evictor is None:
                continue
            if session.writer_waits():
                self.evict_slow_receivers(session)
                left.append(session.evictor.next_check_ns)
            else:
                session.evictor.stop_waiting()
        return min(left, default=None)

    def flush_due(self) -> int | None:
        """Publishes batches older than their interval; returns the ns until the next is due, None without a batch."""
        left = []
        now = clock.ticks()
        for session in self.sessions():
            interval = session.plan.batch_interval_ms * 1_000_000
            if not interval:
                continue
            if session.holds_batch:
                left.append(interval)
                continue
            again_ns, timed_out = publish_old(session.batch, now, interval, session.plan.explicit_batch_ms * 1_000_000)
            if timed_out:
                session.count_timed_out_batch()
            if again_ns is not None:
                left.append(again_ns)
        return min(left) if left else None


def _slowest_client(udp_sender: UdpSender) -> str:
    client = udp_sender.reliable_sender.slowest
    if client is None:
        return f"none: the source waits for {udp_sender.network}"
    found = _named(client.pid, client.name)
    if udp_sender.network != "UDP":
        return found
    return f"{found}, {udp_sender.reliable_sender.lead - client.next} datagrams behind"


def _named(pid: int, name: str) -> str:
    return f"pid {pid}" + (f" {name!r}" if name else "")


def _disagreement(kind: Transport, transport_id: int, has: SessionPlan, wants: SessionPlan) -> str:
    there, here = has.as_options(kind.prefix), wants.as_options(kind.prefix)
    differing = [
        f"{name} = {there[name]!r}, not {here[name]!r}" for name in there if name in here and there[name] != here[name]
    ]
    return (
        f"session {kind.name} {transport_id} was made by its first source with other options: {', '.join(differing)}; "
        f"use the same options, or another {kind.prefix}_id"
    )
