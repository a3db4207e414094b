"""What a context receives: its receivers' topics and the sessions it has joined for them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.runtime.discovery.peers import Peers
from ipcbus.runtime.error_mapping import as_ipcbus_error
from ipcbus.runtime.loop.deferred_events import DeferredEvents
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.runtime.receiving.detached_sessions import DetachedSessions
from ipcbus.runtime.receiving.failover import Failover
from ipcbus.runtime.receiving.notifier import Notifier
from ipcbus.runtime.receiving.session_info import sessions_of
from ipcbus.runtime.receiving.session_joining import SessionJoiner, can_fall_back
from ipcbus.runtime.receiving.subscriptions import Subscriptions, warn_of_differences
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.config import ContextOptions
    from ipcbus.resolution.local.adverts import SessionAdvert, SourceAdvert
    from ipcbus.resolution.local.registry import Registry
    from ipcbus.runtime.discovery.peers import Offers
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.runtime.loop.udp_endpoints import UdpEndpoints
    from ipcbus.runtime.receiving.session_info import SessionInfo
    from ipcbus.runtime.receiving.subscriptions import Subscription
    from ipcbus.transport.receiving_session import ReceivingSession
    from ringbuf.slots import Identity

log = logging.getLogger("ipcbus")


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
        """An inbox without receivers."""
        self._domain, self._registry, self._event_loop = domain, registry, event_loop
        budget = ReassemblyBudget(
            options.delivery_control_maximum_total_map_entries, options.delivery_control_maximum_reassembly_bytes
        )
        self._subscriptions = Subscriptions()
        self.notifier = Notifier(self._subscriptions, event_loop.pass_on)
        self._joiner = SessionJoiner(domain, who, options, network, budget, self.notifier.failed, self.notifier.count)
        self._moves = Failover(self._joiner)
        self._resolving = network.resolving
        self._peers = Peers(domain, self._resolving)
        self._left = DetachedSessions()
        self._ended: set[SessionAdvert] = set()
        self._sessions: dict[SessionAdvert, ReceivingSession] = {}
        self._unsettled = False
        self._reconciling = False
        self._again = False
        self._gone = False
        self._deferred_events = DeferredEvents(event_loop, self.notifier)
        self._losses_due_ns = 0
        self.blocked = False

    def sessions(self) -> list[ReceivingSession]:
        """Returns the joined sessions."""
        return list(self._sessions.values())

    def open(self, subscription: Subscription) -> None:
        """Receives for one more receiver; `scan` has to follow.

        Raises:
            ConfigError: its options contradict those of another receiver of the same topic.
            ipcbus.TransportError: the registry cannot show it.
        """
        self._subscriptions.check(subscription)
        try:
            subscription.entry = self._registry.add_receiver(
                subscription.name, wildcard=subscription.pattern is not None
            )
        except RingError as error:
            raise as_ipcbus_error(error) from error
        subscription.sink.count_into(self._registry.mapping, self._registry.entry_offset(subscription.entry))
        self._subscriptions.add(subscription)
        self._resolving.want(subscription.name, wildcard=subscription.pattern is not None)
        self._unsettled = True

    def remove(self, subscription: Subscription) -> None:
        """Stops receiving for one receiver."""
        subscription.sink.closed = True
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            if not any(
                each.name == subscription.name and each.pattern == subscription.pattern for each in self._subscriptions
            ):
                self._resolving.unwant(subscription.name, wildcard=subscription.pattern is not None)
            if subscription.following is not None:
                subscription.following.end()
            self._reconcile()
            subscription.sink.stop_counting()  # first, or it might count in the entry's next use
            self._registry.remove(subscription.entry)

    # ------------------------------------------------------------------ resolution

    def scan(self) -> None:
        """Looks for new and vanished registries, then as `refresh`."""
        if not self._subscriptions:
            self._unsettled |= self._peers.forget_all()
            return
        self._unsettled |= self._peers.scan()
        self.refresh()

    def refresh(self) -> None:
        """Reads the registries that changed and joins or leaves accordingly."""
        if self._peers.refresh() or self._unsettled:
            self._reconcile()

    def look_for_sources(self) -> None:
        """By timer, once a scan interval: tells receivers whose topics have had no source for too long."""
        topics = {source.topic for source in self._peers.sources()}
        if self.notifier.miss(topics) and not self._deferred_events.owe():
            self.notifier.tell_missing()

    # ------------------------------------------------------------------ joining and leaving

    def _reconcile(self) -> None:
        """Joins and leaves until what is received is what is wanted and offered."""
        # A callback of this round may want another round. That follows: it must not act on what was looked at before.
        self._again = True
        if self._reconciling:
            return
        self._reconciling = True
        try:
            if not self._event_loop.quiet:
                self._deferred_events.pay(filter(self._has, self.sessions()))
            while self._again:
                self._again = self._unsettled = False
                self._reconcile_once()
        finally:
            self._reconciling = False
        if self._gone and not self._deferred_events.owe():
            self._tell_gone()

    def _reconcile_once(self) -> None:
        offered = self._peers.offers()
        for advert, sources in offered.items():
            if advert not in self._ended:
                self._take(advert, sources.values())
        if self._left.sessions():
            self._settle_left(offered)
        for session in filter(self._has, self.sessions()):
            self._prune(session, offered.get(session.advert))
        self._ended &= offered.keys()
        self._joiner.keep(offered)
        topics = {source.topic for sources in offered.values() for source in sources.values()}
        topics.update(each.origin.topic for session in self.sessions() for each in session.topics())
        self._subscriptions.keep(topics)

    def _settle_left(self, offered: Offers) -> None:
        """Ends those of the sessions that had to be left to which nobody will come back."""
        if self._deferred_events.owe():
            self._unsettled = True
            return
        for session in self._left.take_over(offered, self._subscriptions.of, self._peers.contexts()):
            if session.has_unreported_losses():
                self.notifier.introduce_all(session)  # a silent one had been told to be gone
            session.finish()
            self._gone = True
        self._unsettled |= self._left.unsettled(offered)

    def _take(self, advert: SessionAdvert, sources: Iterable[SourceAdvert]) -> None:
        wanted = {source: users for source in sources if (users := self._subscriptions.users(advert, source.topic))}
        if not wanted:
            return
        session = self._sessions.get(advert) or self._join(advert, wanted)
        for source in wanted:
            users = self._subscriptions.users(
                advert, source.topic
            )  # again: what was called meanwhile may have closed some
            if session is None or not users or not self._has(session):
                continue
            known = session.demux.controller(source.topic_number)
            if known is not None and known.sinks == [user.sink for user in users]:
                continue
            if session.can_receive(source):
                self._receive(session, source, users)
            else:
                # The line is free once the topic that had it before is read to its end.
                self._unsettled = True

    def _join(self, advert: SessionAdvert, wanted: dict[SourceAdvert, list[Subscription]]) -> ReceivingSession | None:
        """Joins a session of which topics are wanted, unless it cannot or must not be joined now."""
        if advert in self._left and (self._deferred_events.owe() or self._left.must_wait(advert)):
            return None
        registry = self._peers.registry_of(advert)
        options = next(iter(wanted.values()))[0].options
        session = self._joiner.join(advert, registry, options, self._peers.contexts().get(advert.context_id, 0))
        if session is not None:
            self._sessions[advert] = session
            self._event_loop.watch(self.sessions())
            if self._left.joined_again(session, {source.topic_number for source in wanted}):
                self._tell_gone()
        return session

    def _receive(self, session: ReceivingSession, source: SourceAdvert, users: list[Subscription]) -> None:
        """Gives a topic's messages to these receivers from now on."""
        options = users[0].options
        for user in users:
            user.looked(found=True)  # also a source that is gone before the next look
        warn_of_differences(source.topic, users)
        if not self._event_loop.quiet:
            self.notifier.introduce(session, source, users)
        sinks = [user.sink for user in users if not user.sink.closed]
        if not sinks or not self._has(session):
            return  # closed by what was called just now
        session.receive(source, sinks, options, begin=not self._event_loop.quiet)
        self._losses_due_ns = 0
        self._gone = True  # so that the end is told of a topic that was not there any more
        self._deferred_events.owe()
        self._peers.ring(session.advert.context_id)

    def _tell_gone(self) -> None:
        self._gone = False
        # The receivers of an evicted session are told of its end when it is joined again, or over.
        evicted = [session for session in self._left.sessions() if not session.over]
        self.notifier.tell_gone(self.sessions() + evicted, time.monotonic_ns())

    def _prune(self, session: ReceivingSession, offered: dict[int, SourceAdvert] | None) -> None:
        for controller in session.topics():
            # Only who had its beginning gets the rest: a receiver made after the source has ended does not.
            users = {user.sink for user in self._subscriptions.users(session.advert, controller.origin.topic)}
            sinks = [sink for sink in controller.sinks if sink in users]
            if not sinks:
                session.stop_topic(controller.topic_number, drain=False)
                continue
            if controller.sinks != sinks:
                controller.set_sinks(sinks)
            # A session that is no longer offered has been closed: its own end mark says when it is read out.
            if offered is None:
                session.datagram_source.note_withdrawn()
            elif controller.topic_number not in offered:
                session.stop_topic(controller.topic_number, drain=True)
        if not self._event_loop.quiet and session.end_drained_topics():
            self._gone = True
        if not session.topics():
            self._leave(session)

    def _leave(self, session: ReceivingSession) -> None:
        if self._drop(session):
            session.leave()
            self._peers.ring(session.advert.context_id)

    def _has(self, session: ReceivingSession) -> bool:
        """Returns whether it is still joined; the callbacks of an event may have closed its last receiver."""
        return self._sessions.get(session.advert) is session

    def _drop(self, session: ReceivingSession) -> bool:
        """Reads a session no more; False when that is done already."""
        if not self._has(session):
            return False
        del self._sessions[session.advert]
        self._gone = True
        self._event_loop.watch(self.sessions())
        return True

    # ------------------------------------------------------------------ looking after sessions

    def attend(self) -> bool:
        """Looks after sessions that ended, broke, have a full receiver, or whose source wants an event.

        Returns:
            Whether a session still waits for room in a receiver's queue.
        """
        if self._deferred_events.any:
            self.check()
            self.check_losses(time.monotonic_ns())
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
                self._end(session)
            elif session.end_drained_topics():
                self._gone = self._unsettled = True
                if not session.topics():
                    self._leave(session)
        if self._gone:
            self._tell_gone()
        self.blocked = any(session.demux.blocked for session in self.sessions())
        if any(session.demux.blocked == session.demux.watched for session in self.sessions()):
            self._event_loop.watch(self.sessions())
        return self.blocked or any(session.demux.ring.evicted for session in self.sessions())

    def _cut_short(self, session: ReceivingSession) -> None:
        log.error(
            "the shared memory of %s (pid %d) was cut short by another program; the session has ended for its "
            "receivers, and what is known to be published and was not received is reported lost",
            session.source_string,
            session.owner_pid,
        )
        self._end(session)

    def _mend(self, session: ReceivingSession) -> None:
        if session.skip_damage(time.monotonic_ns()):
            log.error(
                "the ring of %s (pid %d) is damaged: messages that could not be read are reported lost, and later "
                "messages are received. Another program writes into this memory, or the memory of this machine fails",
                session.source_string,
                session.owner_pid,
            )

    def _evicted(self, session: ReceivingSession) -> None:
        if session.demux.holds and can_fall_back(session.advert, session.options):
            return  # what is in hand comes first; it is a copy
        reason = "its source has evicted this context, which kept it waiting"
        if self._moves.to_udp(session, session.options, reason):
            session.evictions += 1
            self._losses_due_ns = 0  # over UDP messages may be lost without others following them
            self._event_loop.watch(self.sessions())
            return
        self._leave(session)
        self._left.add_evicted(session)
        self._reconcile()

    def check(self) -> None:
        """By timer: sources that died, losses with nothing behind them, topics that are drained."""
        if self._deferred_events.owe():
            return
        self._deferred_events.pay(filter(self._has, self.sessions()))
        now_ns = time.monotonic_ns()
        self._joiner.bury(self.sessions(), self._peers.registry_of)
        for session in filter(self._has, self.sessions()):
            if session.demux.ring.cut_short:
                self._cut_short(session)
                continue
            if session.demux.ring.evicted:
                self._evicted(session)  # before its source may be found to have closed it
                continue
            if session.demux.ring.out_of_step:
                self._mend(session)
                if not self._has(session):
                    continue
            if session.demux.show():  # again, as another program may have changed the words of the slot
                self._peers.ring(session.advert.context_id)
            if session.owner_died() and not self._joiner.hears(session):
                if session.drain():
                    self._end(session)
                continue
            if session.is_silent(now_ns) and session.drain() and session.is_silent(now_ns):
                self._leave(session)
                self._left.add_silent(session)
                continue
            if session.end_drained_topics() and not session.topics():
                self._leave(session)
        self._left.tell_lost()
        if self._unsettled or self._left.some_show_life():
            self._reconcile()
        self._tell_gone()

    def check_losses(self, now_ns: int) -> int:
        """By timer: losses with nothing behind them; returns when to look again, in ns of the monotonic clock."""
        if self._event_loop.quiet:
            return FOREVER_NS
        if now_ns >= self._losses_due_ns:
            self._deferred_events.pay(filter(self._has, self.sessions()))
            self._losses_due_ns = FOREVER_NS  # before the checks: what they call may add topics
            if self._moves.arrive(filter(self._has, self.sessions())):
                self._event_loop.watch(self.sessions())
            due = [session.check(now_ns) for session in filter(self._has, self.sessions())]
            due.append(self._moves.next_ns(now_ns))
            self._losses_due_ns = min([self._losses_due_ns, *(at_ns for at_ns in due if at_ns is not None)])
        return self._losses_due_ns

    def retry(self) -> None:
        """Tries again to join what was refused, and to go back to rings that were lost."""
        if self._joiner.refused:
            self._reconcile()
        self._moves.keep(self.sessions())
        if not self._event_loop.quiet and self._moves.to_rings(self.sessions(), self._peers.registry_of):
            self._losses_due_ns = 0

    def _end(self, session: ReceivingSession) -> None:
        if session.datagram_source.for_good:
            self._ended.add(session.advert)
        else:
            self._unsettled = True  # it is offered still: perhaps it can be joined again
        if self._drop(session):
            try:
                session.finish()
            finally:
                session.leave()

    def sources_of(self, subscription: Subscription) -> int:
        """Returns how many sources' messages a receiver gets."""
        return sum(subscription.sink in each.sinks for session in self.sessions() for each in session.topics())

    def drain(self) -> None:
        """Delivers what is published now, as far as receivers have room, and the ends of sessions behind it."""
        for session in filter(self._has, self.sessions()):
            session.drain()
        self.attend()

    def info(self, subscription: Subscription) -> list[SessionInfo]:
        """Returns the sessions that carry one of a receiver's topics, joined or not."""
        left, refused = self._left.sessions(), self._joiner.refused
        return sessions_of(subscription, self.sessions(), left, refused, self._peers.sources(), self._peers.contexts())

    def close(self) -> None:
        """Leaves everything; the receivers are closed."""
        subscriptions = list(self._subscriptions)
        self._subscriptions.clear()
        for subscription in subscriptions:
            if subscription.following is not None:
                subscription.following.end()
        for session in self.sessions():
            self._leave(session)
        self._left.close()
        self._moves.keep(())
        self._peers.forget_all()

    def before_fork(self) -> None:
        """Inside a callback that forks: the child goes on with it, and no source waits for the child."""
        for session in self.sessions():
            session.demux.before_fork()

    def after_fork(self) -> None:
        """The same in the parent, afterwards."""
        for session in self.sessions():
            session.demux.after_fork()

    def abandon(self) -> None:
        """For a child after a fork."""
        for session in self._sessions.values():
            session.abandon()
        self._peers.forget_all()
