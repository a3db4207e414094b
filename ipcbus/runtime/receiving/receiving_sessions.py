"""The receiving sessions of a context: it joins and leaves them for the topics of its receivers."""

from __future__ import annotations

import functools
import logging
import time
from typing import TYPE_CHECKING

from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.timer_grid import LEAD_MAX_NS
from ipcbus.runtime.error_mapping import as_ipcbus_error
from ipcbus.runtime.loop.deferred_events import DeferredEvents
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.runtime.receiving.detached_sessions import DetachedSessions
from ipcbus.runtime.receiving.failover import Failover
from ipcbus.runtime.receiving.notifier import Notifier
from ipcbus.runtime.receiving.receiver_channels import ReceiverChannels
from ipcbus.runtime.receiving.receptions import Receptions
from ipcbus.runtime.receiving.response_sessions import refused
from ipcbus.runtime.receiving.session_info import CUT_SHORT, DAMAGED, sessions_of
from ipcbus.runtime.receiving.session_joining import SessionJoiner, can_fall_back
from ipcbus.runtime.receiving.subscriptions import Subscriptions, warn_of_differences
from ipcbus.runtime.receiving.topic_recoveries import TopicRecoveries, has_past
from ipcbus.runtime.sending.expected_receivers import receiver_identity
from ipcbus.wire import gmd_messages, share_messages
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipcbus.config import ContextOptions, ReceiverOptions
    from ipcbus.delivery.slow_path import Responder
    from ipcbus.resolution.local.adverts import SessionAdvert, SourceAdvert
    from ipcbus.resolution.local.registry import PeerRegistry, Registry
    from ipcbus.runtime.discovery.peers import Offers
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.runtime.loop.udp_endpoints import UdpEndpoints
    from ipcbus.runtime.receiving.session_info import SessionInfo
    from ipcbus.runtime.receiving.subscriptions import Subscription
    from ipcbus.transport.receiving_session import ReceivingSession
    from ringbuf.slots import Identity

log = logging.getLogger("ipcbus")
_SOON_NS = 5_000_000


class ReceivingSessions:
    """The receiving sessions of a context. Everything here runs on the driver."""

    def __init__(
        self,
        domain: str,
        who: Identity,
        options: ContextOptions,
        registry: Registry,
        event_loop: EventLoop,
        network: UdpEndpoints,
    ) -> None:
        """Begins without receivers."""
        self._domain, self._registry, self._event_loop, self._network = domain, registry, event_loop, network
        budget = ReassemblyBudget(
            options.delivery_control_maximum_total_map_entries, options.delivery_control_maximum_reassembly_bytes
        )
        self._subscriptions = Subscriptions()
        self.notifier = Notifier(self._subscriptions, event_loop.pass_on, event_loop.events_came)
        self._joiner = SessionJoiner(domain, who, options, network, budget, self.notifier.failed, self.notifier.count)
        self.channels = ReceiverChannels(options, event_loop.hurry)
        self._failover = Failover(self._joiner)
        self._resolution = network.resolution
        self._peers = network.peers
        self._detached = DetachedSessions()
        self._ended: set[SessionAdvert] = set()
        self._sessions: dict[SessionAdvert, ReceivingSession] = {}
        self.needs_reconcile = False
        """Whether the next `refresh` joins and leaves although no registry has changed."""
        self._new_topics: set[str] = set()  # of receivers that were made since the last reconciliation
        self._reconciling = self._reconcile_again = self._sources_gone = False
        self._deferred_events = DeferredEvents(event_loop, self.notifier)
        self._losses_due_ns = 0
        self._kept: dict[SessionAdvert, int] = {}
        self.blocked = False
        self.recoveries = TopicRecoveries(self.channels, self._has, event_loop.hurry)
        self.receptions = Receptions(domain, event_loop, self.channels, self._has, who.context_id)
        self.channels.take = self._take_control
        self.responder_of: Callable[[SessionAdvert], Responder] | None = None
        """Returns what takes the responses to the requests of a session."""

    def sessions(self) -> list[ReceivingSession]:
        return list(self._sessions.values())

    def open(self, subscription: Subscription) -> None:
        """Adds the subscription of a new receiver; call `scan` afterwards.

        Raises:
            ConfigError: its options contradict those of another receiver of the same topic.
            ipcbus.TransportError: the registry has no room for the receiver.
        """
        self._subscriptions.check(subscription)
        self.receptions.open(subscription)
        try:
            subscription.entry = self._registry.add_receiver(
                subscription.name,
                wildcard=subscription.pattern is not None,
                gmd_identity=receiver_identity(subscription.options),
            )
        except RingError as error:
            self.receptions.remove(subscription)
            raise as_ipcbus_error(error) from error
        subscription.sink.count_into(self._registry.mapping, self._registry.entry_offset(subscription.entry))
        self._subscriptions.add(subscription)
        self._resolution.want(subscription.name, wildcard=subscription.pattern is not None)
        if subscription.pattern is None:
            self._new_topics.add(subscription.name)
        else:
            self.needs_reconcile = True

    def remove(self, subscription: Subscription) -> None:
        """Removes the subscription of a receiver."""
        subscription.sink.closed = True
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            if not any(
                each.name == subscription.name and each.pattern == subscription.pattern for each in self._subscriptions
            ):
                self._resolution.unwant(subscription.name, wildcard=subscription.pattern is not None)
            if subscription.notifications is not None:
                subscription.notifications.end()
            in_all = self.needs_reconcile or subscription.pattern is not None or self._detached.sessions()
            self._reconcile(None if in_all else functools.partial(self._leave_topic, subscription.name))
            self.receptions.remove(subscription)
            subscription.sink.stop_counting()  # first, or the sink might count in the next receiver's entry
            self._registry.remove(subscription.entry)

    # ------------------------------------------------------------------ resolution

    def scan(self) -> None:
        """Looks for new and vanished registries, then calls `refresh`."""
        self.look_for_contexts()
        self.refresh()

    def look_for_contexts(self) -> None:
        """Looks for new and vanished registries, which `refresh` then reads."""
        self.needs_reconcile |= self._peers.scan() if self._subscriptions else self._peers.forget_all()

    def refresh(self) -> None:
        """Reads the registries that changed and joins or leaves accordingly."""
        if self._peers.refresh() or self.needs_reconcile:
            self._reconcile()
        elif self._new_topics:
            self._reconcile(self._take_new)

    def look_for_sources(self) -> None:
        """Notifies, once in a scan interval, receivers whose topics have had no source for too long."""
        topics = {source.topic for source in self._peers.sources()}
        if self.notifier.note_sources(topics) and not self._deferred_events.defer():
            self.notifier.notify_missing()

    # ------------------------------------------------------------------ joining and leaving

    def _reconcile(self, first: Callable[[], None] | None = None) -> None:
        """Joins and leaves sessions until the subscriptions receive all that is offered; `first` is its first round."""
        # A callback of this round may ask for another round, which follows and reads the offers again.
        self._reconcile_again = True
        if self._reconciling:
            return
        self._reconciling = True
        try:
            if not self._event_loop.quiet:
                self._deferred_events.deliver(filter(self._has, self.sessions()))
            while self._reconcile_again:
                self._reconcile_again = self.needs_reconcile = False
                (first or self._reconcile_once)()
                first = None
        finally:
            self._reconciling = False
        if self._sources_gone and not self._deferred_events.defer():
            self._notify_gone()

    def _take_new(self) -> None:
        """Joins what is offered of the topics of new receivers, without a look at all other topics."""
        topics, self._new_topics = self._new_topics, set()
        for topic in topics:
            for source in self._peers.offers_of(topic):
                if source.session not in self._ended:
                    self._take(source.session, [source])

    def _leave_topic(self, topic: str) -> None:
        """Stops a topic that a closed receiver had, unless others want it, without a look at all other topics."""
        offered = self._peers.offers()
        for session in filter(self._has, self.sessions()):
            self._prune(session, offered.get(session.advert), topic)
        self._detached.keep_interrupted(self._subscriptions.of, offered)

    def _reconcile_once(self) -> None:
        self._new_topics.clear()
        offered = self._peers.offers()
        for advert, sources in offered.items():
            if (session := self._sessions.get(advert)) is not None:
                session.drain_withdrawn(sources)
            if advert not in self._ended:
                self._take(advert, sources.values())
        self._detached.keep_interrupted(self._subscriptions.of, offered)
        if self._detached.sessions():
            self._settle_detached(offered)
        for session in filter(self._has, self.sessions()):
            self._prune(session, offered.get(session.advert))
        self._ended &= offered.keys()
        self._joiner.keep(offered)
        topics = {source.topic for sources in offered.values() for source in sources.values()}
        topics.update(each.origin.topic for session in self.sessions() for each in session.topics())
        self._subscriptions.keep(topics)

    def _settle_detached(self, offered: Offers) -> None:
        """Ends the detached sessions that this context will not join again."""
        if self._deferred_events.defer():
            self.needs_reconcile = True
            return
        for session in self._detached.take_finished(offered, self._subscriptions.of, self._peers.contexts()):
            if session.has_unreported_losses():
                self.notifier.notify_all_sources(session)  # receivers of a silent session got its end
            session.finish()
            self._sources_gone = True
        self.needs_reconcile |= self._detached.unsettled(offered)

    def _take(self, advert: SessionAdvert, sources: Iterable[SourceAdvert]) -> None:
        wanted = {source: users for source in sources if (users := self._subscriptions.users(advert, source.topic))}
        if not wanted:
            return
        session = self._sessions.get(advert) or self._join(advert, wanted)
        for source in wanted:
            users = self._subscriptions.users(advert, source.topic)  # again: callbacks may have closed some receivers
            if session is None or not users or not self._has(session):
                continue
            if set(session.delivery.sinks(source.topic_number)) == {user.sink for user in users}:
                continue
            if session.can_receive(source):
                self._receive(session, source, users)
            else:
                # The line is free when the earlier topic on it is read to its end.
                self.needs_reconcile = True

    def _join(self, advert: SessionAdvert, wanted: dict[SourceAdvert, list[Subscription]]) -> ReceivingSession | None:
        """Joins a session with subscribed topics; None if that is not possible now."""
        if advert in self._detached and (self._deferred_events.defer() or self._detached.must_wait(advert)):
            return None
        registry = self._peers.registry_of(advert)
        options = next(iter(wanted.values()))[0].options
        pid = self._peers.contexts().get(advert.context_id, 0)
        session = self._joiner.join(advert, registry, options, pid, self._detached.resume_at(advert))
        if session is not None:
            session.delivery.responder = self.responder_of(advert) if self.responder_of is not None else None
            self._sessions[advert] = session
            session.delivery.gates = self.receptions.of(session)
            session.may_end_topic = functools.partial(self.recoveries.may_end, session)
            self._event_loop.watch(self.sessions())
            if self._detached.joined_again(session, {source.topic_number for source in wanted}):
                self._notify_gone()
        return session

    def _receive(self, session: ReceivingSession, source: SourceAdvert, users: list[Subscription]) -> None:
        """Delivers a topic's messages to these receivers from now on."""
        options = users[0].options
        for user in users:
            user.note_scan(found=True)  # also for a source that is gone before the next scan
        warn_of_differences(source.topic, users)
        if not self._event_loop.quiet:
            self.notifier.notify_source(session, source, users)
        sinks = [user.sink for user in users if not user.sink.closed]
        if not sinks or not self._has(session):
            return  # a callback has closed it
        if has_past(session, source, users):
            self.channels.of(session)  # before the source sees the join, so that it waits when it closes
        had = session.delivery.sinks(source.topic_number)
        new = [user for user in users if user.sink in sinks and user.sink not in had]
        late = self.recoveries.late_ones(session, source, new)
        waiting = [user.sink for user in late]
        session.receive(
            source,
            [sink for sink in sinks if sink not in waiting],
            options,
            begin=not self._event_loop.quiet,
            joined=lambda controller, left_off: self.recoveries.begin(session, source, controller, new, late, left_off),
        )
        self._losses_due_ns = 0
        self._sources_gone = True  # so that a topic that is gone already gets its end
        self._deferred_events.defer()
        self._peers.ring(session.advert.context_id)

    def _notify_gone(self) -> None:
        self._sources_gone = False
        # The receivers of an evicted session get its end when it is joined again, or over.
        evicted = [session for session in self._detached.sessions() if not session.over]
        self.notifier.notify_gone(self.sessions() + evicted, time.monotonic_ns())

    def _prune(
        self, session: ReceivingSession, offered: dict[int, SourceAdvert] | None, topic: str | None = None
    ) -> None:
        for controller in session.topics():
            if topic not in (None, controller.origin.topic):
                continue
            # Only receivers that got the beginning get the rest, not receivers made after the end of the source.
            users = {user.sink for user in self._subscriptions.users(session.advert, controller.origin.topic)}
            had = session.delivery.sinks(controller.topic_number)
            sinks = [sink for sink in had if sink in users]
            if not sinks:
                session.stop_topic(controller.topic_number, drain=False)
                continue
            if had != sinks:
                session.delivery.keep_sinks(controller.topic_number, sinks)
            # A session that is no longer offered is closed: the end mark in its ring shows when it is read out.
            if offered is None:
                session.datagram_source.note_withdrawn()
        if not self._event_loop.quiet and session.end_drained_topics():
            self._sources_gone = True
        self.recoveries.forget_topics(session, {each.topic_number for each in session.topics()})
        if self._is_unused(session):
            self._leave(session)

    def _is_unused(self, session: ReceivingSession) -> bool:
        """Returns whether no receiver needs a session, nor the answer to a request."""
        return not session.topics() and session.advert not in self._kept and not self.channels.is_unread(session)

    def _leave(self, session: ReceivingSession) -> None:
        if self._has(session):
            self.receptions.forget(session)
        if self._drop(session):
            session.leave()
            self._peers.ring(session.advert.context_id)

    def _has(self, session: ReceivingSession) -> bool:
        """Returns whether a session is still joined; a callback may have closed its last receiver."""
        return self._sessions.get(session.advert) is session

    def _drop(self, session: ReceivingSession) -> bool:
        """Stops reading a session; False when the context does not read it any more."""
        if not self._has(session):
            return False
        self.recoveries.forget(session)
        self.receptions.flush(time.monotonic_ns())
        del self._sessions[session.advert]
        self.channels.forget(session)
        self._sources_gone = True
        self._event_loop.watch(self.sessions())
        return True

    # ------------------------------------------------------------------ attending to sessions

    def attend(self) -> bool:
        """Handles sessions that ended, broke, have a full receiver, or whose source waits for room.

        Returns:
            Whether a session still waits for room in a receiver's queue.
        """
        if self._deferred_events.pending:
            self.check()
            self.check_losses(time.monotonic_ns())
        self.receptions.flush(time.monotonic_ns())
        if (self.recoveries.count or self.receptions.any) and self._event_loop.split:
            self.recover(time.monotonic_ns())
        for session in filter(self._has, self.sessions()):
            demux = session.demux
            if demux.wakes_writer:
                self._peers.ring(session.advert.context_id)
            if demux.blocked and session.has_room():
                demux.blocked = False
            attention = demux.attention
            demux.attention = demux.wakes_writer = False
            if demux.ring.cut_short:
                self._cut_short(session)
            elif demux.ring.evicted:
                self._evicted(session)
            elif attention and demux.ring.broken:
                self._mend(session)
            elif attention and demux.ring.ended and not demux.blocked:
                demux.blocked = not self.recoveries.may_end(session)
                if not demux.blocked:
                    self._end(session)
            elif session.end_drained_topics():
                self._sources_gone = self.needs_reconcile = True
                if self._is_unused(session):
                    self._leave(session)
        if self._sources_gone:
            self._notify_gone()
        self.blocked = self._event_loop.pump.blocked = any(session.demux.blocked for session in self.sessions())
        if any(session.demux.blocked == session.demux.watched for session in self.sessions()):
            self._event_loop.watch(self.sessions())
        if self.receptions.awaits_flush:
            return True
        return self.blocked or any(session.demux.ring.evicted for session in self.sessions())

    def _cut_short(self, session: ReceivingSession) -> None:
        if not session.awaits_last_numbers(time.monotonic_ns()):
            log.error(CUT_SHORT, session.source_string, session.owner_pid)
            self._end(session)

    def _mend(self, session: ReceivingSession) -> None:
        if session.skip_damage(time.monotonic_ns()):
            log.error(DAMAGED, session.source_string, session.owner_pid)

    def _evicted(self, session: ReceivingSession) -> None:
        if session.demux.holds_datagram and can_fall_back(session.advert, session.options):
            return  # the datagram in hand, a copy, comes first
        reason = "its source has evicted this context, which kept it waiting"
        if self._failover.to_udp(session, session.options, reason):
            session.evictions += 1
            self.recoveries.switched(session)
            self.needs_reconcile = True  # the new way has not heard of a source that was closed before
            self._losses_due_ns = 0  # over UDP, messages may be lost without later messages
            self._event_loop.watch(self.sessions())
            return
        self._leave(session)
        self._detached.add_evicted(session)
        self._reconcile()

    def check(self) -> None:
        """Handles, by timer, sources that died, losses without later messages, and topics that are read out."""
        if self._deferred_events.defer():
            return
        self._deferred_events.deliver(filter(self._has, self.sessions()))
        now_ns = time.monotonic_ns()
        self._joiner.withdraw_dead(self.sessions(), self._peers.registry_of)
        for session in filter(self._has, self.sessions()):
            if session.demux.ring.cut_short:
                self._cut_short(session)
                continue
            if session.demux.ring.evicted:
                self._evicted(session)  # before its source may be found to have closed it
                continue
            if session.demux.ring.out_of_sync:
                self._mend(session)
                if not self._has(session):
                    continue
            if session.demux.show():  # again, because another program may have changed the words of the slot
                self._peers.ring(session.advert.context_id)
            if session.owner_died() and not self._joiner.hears(session):
                if session.drain() and self.recoveries.may_end(session):
                    self._end(session)
                continue
            if session.is_silent(now_ns) and session.drain() and session.is_silent(now_ns):
                self._leave(session)
                self._detached.add_silent(session)
                continue
            if session.end_drained_topics() and self._is_unused(session):
                self._leave(session)
        self._drop_kept(now_ns)
        self._detached.tell_lost()
        if self.needs_reconcile or self._detached.any_shows_life():
            self._reconcile()
        self._notify_gone()

    def check_losses(self, now_ns: int) -> int:
        """Finds losses without later messages; returns when to call again, in ns of the monotonic clock."""
        if self._event_loop.quiet:
            return FOREVER_NS
        if now_ns >= self._losses_due_ns - LEAD_MAX_NS:
            self._deferred_events.deliver(filter(self._has, self.sessions()))
            self._losses_due_ns = FOREVER_NS  # before the checks: their callbacks may add topics
            if returned := self._failover.finish_returns(filter(self._has, self.sessions())):
                self.needs_reconcile = True
                for session in returned:
                    self.recoveries.switched(session)
                self._event_loop.watch(self.sessions())
            checks = (session.check(now_ns) for session in filter(self._has, self.sessions()))
            due = (*checks, self._failover.next_ns(now_ns), self._losses_due_ns)
            self._losses_due_ns = min(at_ns for at_ns in due if at_ns is not None)
        return self._losses_due_ns

    def recover(self, now_ns: int) -> int:
        """Goes on with recoveries; returns when to call again, in ns of the monotonic clock."""
        if not self._event_loop.quiet:
            return min(self.channels.turn(now_ns), self.recoveries.turn(now_ns), self.receptions.turn(now_ns))
        if not (self.recoveries.count or self.receptions.any):
            return self.channels.turn(now_ns)
        self._event_loop.request_attention()  # a thread of the application delivers
        return now_ns + _SOON_NS

    def _take_control(self, session: ReceivingSession, message: bytes, now_ns: int, *, epoch: bool) -> None:
        """Takes a message of a session's source."""
        if gmd_messages.is_gmd(message) or share_messages.is_share(message):
            self.receptions.take(session, message, now_ns)
        else:
            self.recoveries.take(session, message, now_ns, epoch=epoch)

    def retry(self) -> None:
        """Tries again to join refused sessions, and to go back to rings that were lost."""
        if self._joiner.refused:
            self._reconcile()
        self._failover.keep(self.sessions())
        if not self._event_loop.quiet and self._failover.begin_returns(self.sessions(), self._peers.registry_of):
            self._losses_due_ns = 0

    def _end(self, session: ReceivingSession) -> None:
        for_good = session.datagram_source.for_good
        if for_good:
            self._ended.add(session.advert)
        if self._drop(session):
            if not for_good:
                self._detached.add_interrupted(session)
            try:
                session.finish(() if for_good else self._peers.live_topics(session.advert))
            finally:
                self.receptions.forget(session)
                session.leave()
        if not for_good:
            self._reconcile()  # the session may still be offered: perhaps it can be joined again

    # ------------------------------------------------------------------ answers to requests

    def find(self, context_id: int, session_id: int) -> ReceivingSession | None:
        """Returns a joined session; None without it."""
        for advert, session in self._sessions.items():
            if advert.session_id == session_id and advert.context_id == context_id:
                return session
        return None

    def advert_of(self, context_id: int, session_id: int) -> SessionAdvert | None:
        """Returns the advert of a session that is offered here, also over the network; None without one."""
        wanted = context_id, session_id
        return next((each for each in self._peers.offers() if (each.context_id, each.session_id) == wanted), None)

    def join_to_answer(
        self, advert: SessionAdvert, registry: PeerRegistry | None, options: ReceiverOptions, pid: int
    ) -> ReceivingSession:
        """Joins a session without topics; without a registry, over UDP.

        Raises:
            TransportError: the session cannot be joined.
        """
        session = self._joiner.join(advert, registry, options, pid)
        if session is None:
            raise refused(advert, self._joiner.refused.get(advert, (0, ""))[1])
        self._sessions[advert] = session
        self._event_loop.watch(self.sessions())
        return session

    def keep_until(self, session: ReceivingSession, until_ns: int) -> None:
        """Keeps a session without topics until this time of the monotonic clock."""
        if not session.topics():
            self._kept[session.advert] = until_ns

    def _drop_kept(self, now_ns: int) -> None:
        """Leaves the sessions that were kept for answers, when their time is over and the answers are taken."""
        self._kept = {advert: until_ns for advert, until_ns in self._kept.items() if now_ns < until_ns}
        for session in filter(self._has, self.sessions()):
            if self._is_unused(session):
                self._leave(session)

    def send_answers(self) -> set[int]:
        """Goes on with the answers; returns the ids of the asking contexts that have not taken all."""
        self._network.read()  # in sequential mode no other thread does
        self.receptions.flush(time.monotonic_ns())
        self.channels.turn(time.monotonic_ns())
        return {session.advert.context_id for session in self.sessions() if self.channels.is_unread(session)}

    def drain(self) -> None:
        """Delivers published messages as far as receivers have room, and the ends of sessions after them."""
        for session in filter(self._has, self.sessions()):
            session.drain()
        self.attend()

    def info(self, subscription: Subscription) -> list[SessionInfo]:
        """Returns the sessions that carry one of a receiver's topics, joined or not."""
        detached, refused = self._detached.sessions(), self._joiner.refused
        sources, pids = self._peers.sources(), self._peers.contexts()
        return sessions_of(subscription, self.sessions(), detached, refused, sources, pids)

    def close(self) -> None:
        """Leaves all sessions; the receivers are closed."""
        subscriptions = list(self._subscriptions)
        self._subscriptions.clear()
        for subscription in subscriptions:
            if subscription.notifications is not None:
                subscription.notifications.end()
        for session in self.sessions():
            self._leave(session)
        for subscription in subscriptions:
            self.receptions.remove(subscription)
        self._detached.close()
        self._failover.keep(())
        self._peers.forget_all()

    def before_fork(self) -> None:
        """Prepares sessions for a fork inside a callback, so that no source waits for the child."""
        for session in self.sessions():
            session.demux.before_fork()

    def after_fork(self) -> None:
        """Undoes `before_fork` in the parent."""
        for session in self.sessions():
            session.demux.after_fork()

    def abandon(self) -> None:
        """Gives up the sessions in the child of a fork."""
        self.channels.abandon()
        self.receptions.abandon()
        for session in self._sessions.values():
            session.abandon()
        self._peers.forget_all()
