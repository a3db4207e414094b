"""The recoveries of a context: late join and off-transport recovery (OTR) of the topics of its receivers."""

from __future__ import annotations

import itertools
import logging
import time
from typing import TYPE_CHECKING

from ipcbus.recovery.recovery_settings import LATE_JOIN, OTR, RecoverySettings, RequestTerms
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.transport.topic_catch_up import TopicCatchUp
from ipcbus.wire import control_messages
from ipcbus.wire.control_messages import Info, Retransmission

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ipcbus.config import ReceiverOptions
    from ipcbus.delivery.delivery_session import TopicLeftOff
    from ipcbus.delivery.own_history import OwnHistory
    from ipcbus.delivery.recovering_controller import RecoveringController
    from ipcbus.recovery.control_channel import ControlChannel
    from ipcbus.resolution.local.adverts import SourceAdvert
    from ipcbus.runtime.receiving.receiver_channels import ReceiverChannels
    from ipcbus.runtime.receiving.subscriptions import Subscription
    from ipcbus.transport.receiving_session import ReceivingSession

log = logging.getLogger("ipcbus")

_MS_NS = 1_000_000
_SOON_NS = 1_000_000
_KEEP_ASKING_NS = 100_000_000
"""How often a receiver without room shows its source that it still recovers."""

_EVERYTHING = None, ""
"""The kind (`_kind`) of receivers that want all that their source keeps."""


class _Recovery:
    """The recovery of one topic: for its receivers, or for one that was made later."""

    def __init__(
        self,
        session: ReceivingSession,
        controller: RecoveringController,
        user: Subscription,
        channel: ControlChannel | None,
        number: int,
        retains: bool,
        history: OwnHistory | None = None,
    ) -> None:
        self.session, self.controller, self.options, self.history = session, controller, user.options, history
        self.settings = _settings(user.options)
        origin, archive, topic = controller.origin, user.archive, controller.topic_number
        self.catch_up = TopicCatchUp(
            session.demux,
            controller,
            self.settings,
            asks_at_once=session.datagram_source.recovery_ns == 0,
            number=number,
            retains=retains,
            older=archive.of(origin.topic, origin.source, topic) if archive is not None else None,
        )
        self.channel, self.counted, self.counted_past, self.shown_ns = channel, 0, (0, 0), 0
        self.topic: int = topic

    @property
    def runs(self) -> bool:
        """Whether a receiver still waits for it."""
        if self.history is not None and self.history.over:
            return False
        return self.history is not None or self.controller.recovering or self.catch_up.busy


class TopicRecoveries:
    """All recoveries of a context. Runs on the driver."""

    def __init__(
        self,
        channels: ReceiverChannels,
        is_joined: Callable[[ReceivingSession], bool],
        hurry: Callable[[], None],
    ) -> None:
        """Begins without recoveries.

        Args:
            channels: the control channels to the sources.
            is_joined: returns whether the context still receives a session.
            hurry: makes the event loop call `turn` soon.
        """
        self._is_joined, self._hurry = is_joined, hurry
        self._channels = channels
        self._mains: dict[ReceivingSession, dict[int, _Recovery]] = {}
        self._running: list[_Recovery] = []
        self._numbers = itertools.count(1)
        self._logged_ns: dict[str, int] = {}
        self._received = self._archived = self._archive_faults = 0

    # ------------------------------------------------------------------ beginnings

    def late_ones(
        self, session: ReceivingSession, source: SourceAdvert, users: Collection[Subscription]
    ) -> list[Subscription]:
        """Returns those of a topic's new receivers that need a history of their own (`delivery.own_history`).

        Args:
            session: the session.
            source: the topic.
            users: the new receivers.
        """
        if not has_past(session, source, users) or not self._channels.may_open(session):
            return []
        left_off = session.left_off(source.topic_number)
        if left_off is not None:
            return [user for user in users if user.sink not in left_off.sinks]
        main = session.delivery.topic(source.topic_number)
        if main is not None and main.is_behind:
            return list(users)  # also those that want nothing of what still comes
        wanting = [user for user in users if _wants_past(source, user)]
        alike = len(wanting) == len(users) and len({_kind(user.options) for user in users}) == 1
        return [] if alike and main is None else wanting

    def begin(
        self,
        session: ReceivingSession,
        source: SourceAdvert,
        controller: RecoveringController,
        users: Collection[Subscription],
        late: Collection[Subscription],
        left_off: TopicLeftOff | None,
    ) -> None:
        """Begins the recoveries of new receivers of a topic, before anything is delivered to them.

        Args:
            session: the session.
            source: the topic.
            controller: its delivery controller.
            users: the new receivers.
            late: those of them that need a history of their own; nothing is delivered to them yet.
            left_off: where an earlier stay in the session has left the topic; None without one.
        """
        may_recover = has_past(session, source, users) and self._is_joined(session)
        if not (may_recover and self._channels.may_open(session)):
            return
        channel = self._channels.of(session)  # None where the one before is broken: the recoveries wait for the next
        now_ns = time.monotonic_ns()
        mains = self._mains.setdefault(session, {})
        known = mains.get(source.topic_number)
        if known is None or known.controller is not controller:
            sharing = [user for user in users if user not in late]
            user = next(iter(sharing or users))
            main = mains[source.topic_number] = self._recovery(
                _Recovery(session, controller, user, channel, next(self._numbers), source.retains)
            )
            if source.retains and user.options.use_otr:
                main.catch_up.begin_otr()
            begins_at, resumes = controller.stopped_before, controller.resumed_at is not None
            if sharing and begins_at != 0 and not resumes and all(_wants_past(source, user) for user in sharing):
                main.catch_up.begin_late_join(now_ns, has_sent=begins_at is not None)
                self._run(main)
        for user in late:
            self._begin_history(session, source, user, channel, left_off)

    def _begin_history(
        self,
        session: ReceivingSession,
        source: SourceAdvert,
        user: Subscription,
        channel: ControlChannel | None,
        left_off: TopicLeftOff | None,
    ) -> None:
        """Begins the history of a receiver that needs its own, or goes on with it."""
        number, delivery, now_ns = source.topic_number, session.delivery, time.monotonic_ns()
        wants, kind = _wants_past(source, user), _kind(user.options)
        left = left_off.histories.get(user.sink) if left_off is not None else None
        if left is not None:
            history = delivery.go_on_with_history(number, user.sink, left, now_ns)
        else:
            history = delivery.receive_later(
                number,
                user.sink,
                now_ns,
                alike=wants and left_off is None and kind == _kind(self._mains[session][number].options),
                wants_all=wants and kind == _EVERYTHING,
                # Of a stay that goes on it is not known yet how far its topic is.
                live_from=session.datagram_source.floor(number) if left_off is not None else None,
            )
        if history is None:
            return
        own = self._recovery(
            _Recovery(session, history.controller, user, channel, next(self._numbers), source.retains, history)
        )
        if left is not None and left.controller.resumes:
            history.controller.miss_again(left.controller)
        elif wants:
            own.catch_up.begin_own_history(now_ns)
        else:
            history.controller.end_recovery(now_ns)
        self._run(own)

    def switched(self, session: ReceivingSession) -> None:
        """Goes on after a session was switched to another source of its datagrams."""
        self._channels.of(session)  # ends the channel over the transport before
        asks_at_once = session.datagram_source.recovery_ns == 0
        for each in [*self._mains.get(session, {}).values(), *self._of(session)]:
            each.catch_up.switched(asks_at_once=asks_at_once)

    def _recovery(self, recovery: _Recovery) -> _Recovery:
        def missing(first: int, last: int, now_ns: int) -> None:
            recovery.catch_up.missing(first, last, now_ns)
            self._run(recovery)
            if not recovery.controller.joins_late:
                self._log(recovery, first, last)

        recovery.controller.on_missing = missing
        return recovery

    def _run(self, recovery: _Recovery) -> None:
        if recovery not in self._running:
            self._running.append(recovery)
        self._hurry()

    def _log(self, recovery: _Recovery, first: int, last: int) -> None:
        origin, now_ns = recovery.controller.origin, time.monotonic_ns()
        if now_ns < self._logged_ns.get(origin.topic, 0):
            return
        self._logged_ns[origin.topic] = now_ns + recovery.options.otr_request_log_alert_cooldown * 1_000_000_000
        log.info(
            "receivers of topic %r ask %s for the messages %d to %d, which were lost on the way",
            origin.topic,
            origin.source,
            first,
            last,
        )

    # ------------------------------------------------------------------ by time, and by what comes

    def turn(self, now_ns: int) -> int:
        """Goes on with all recoveries; returns when to call again, in ns of the monotonic clock."""
        soon = FOREVER_NS
        for recovery in list(self._running):
            soon = min(soon, self._go_on(recovery, now_ns))
        return soon

    def _go_on(self, recovery: _Recovery, now_ns: int) -> int:
        session, catch_up, history = recovery.session, recovery.catch_up, recovery.history
        if not self._is_joined(session):
            catch_up.end(now_ns)
        channel = self._channels.of(session) if self._is_joined(session) else None
        if channel is not None and channel is not recovery.channel:
            recovery.channel = channel
            catch_up.channel_ready(now_ns)
        refused = False

        def send(message: bytes) -> bool:
            nonlocal refused
            refused = not self._channels.send(session, message)
            return not refused

        catch_up.work(now_ns, send)
        self._note_progress(recovery, now_ns)
        if not recovery.runs:
            self._running = [each for each in self._running if each is not recovery]
            session.demux.attention = True  # its end may wait for this
            return FOREVER_NS
        if catch_up.busy and now_ns >= recovery.shown_ns:
            recovery.shown_ns = now_ns + _KEEP_ASKING_NS
            send(catch_up.recovery.info_request())
        if catch_up.hurries:
            return now_ns
        if catch_up.busy or refused or history is not None:
            return now_ns + _SOON_NS
        due_ns = catch_up.due_ns
        return FOREVER_NS if due_ns is None else due_ns

    def _note_progress(self, recovery: _Recovery, now_ns: int) -> None:
        before, recovery.counted = recovery.counted, recovery.catch_up.messages
        self._received += recovery.counted - before
        past_before, recovery.counted_past = recovery.counted_past, recovery.catch_up.past_counts
        self._archived += recovery.counted_past[0] - past_before[0]
        self._archive_faults += recovery.counted_past[1] - past_before[1]
        recovery.session.delivery.count_delivered(recovery.counted - before)
        if recovery.history is not None:
            recovery.history.advance(now_ns)

    def take(self, session: ReceivingSession, message: bytes, now_ns: int, *, epoch: bool) -> None:
        """Takes a message of a session's source."""
        found = control_messages.decode(message)
        if not isinstance(found, Info | Retransmission):
            return
        for each in self._of(session, found.topic):
            if isinstance(found, Info):
                each.catch_up.info(found, now_ns)
            else:
                each.catch_up.retransmission(found, now_ns, epoch=epoch)
            self._note_progress(each, now_ns)

    def _of(self, session: ReceivingSession, topic: int | None = None) -> list[_Recovery]:
        """Returns the recoveries of a session, or of one of its topics, that run."""
        return [each for each in self._running if each.session is session and topic in (None, each.topic)]

    # ------------------------------------------------------------------ the end

    def may_end(self, session: ReceivingSession, topic: int | None = None) -> bool:
        """Delivers what a session's source has sent again, before the session, or one of its topics, ends.

        Returns:
            Whether the receivers had room for all of it.
        """
        if self._of(session, topic) and not self._is_busy(session, topic):
            now_ns = time.monotonic_ns()
            self._channels.drain(session, now_ns)
            for each in self._of(session, topic):
                each.catch_up.source_ended(now_ns)
                self._go_on(each, now_ns)
        return not self._is_busy(session, topic)

    def _is_busy(self, session: ReceivingSession, topic: int | None) -> bool:
        return any(each.catch_up.busy for each in self._of(session, topic))

    def forget(self, session: ReceivingSession) -> None:
        """Ends the recoveries of a session that is left; the channel to its source is closed after this."""
        self.may_end(session)
        self.forget_topics(session, ())

    def forget_topics(self, session: ReceivingSession, kept: Collection[int]) -> None:
        """Forgets the recoveries of a session's topics that are not received any more."""
        self._running = [each for each in self._running if each.session is not session or each.topic in kept]
        mains = self._mains.pop(session, {})
        if any(number in kept for number in mains):
            self._mains[session] = {number: each for number, each in mains.items() if number in kept}

    def counters(self) -> dict[str, int]:
        """Returns the counters, by their names in the layout."""
        wanted = [missing for each in self._running for missing in each.controller.missing()]
        return {
            "retransmissions_rcved": self._received,
            "recoveries_running": len(self._running),
            "retransmissions_missing": sum(last - first + 1 for first, last in wanted),
            "archived_rcved": self._archived,
            "archive_faults": self._archive_faults,
        }

    @property
    def count(self) -> int:
        """The number of recoveries that run."""
        return len(self._running)


def has_past(session: ReceivingSession, source: SourceAdvert, users: Collection[Subscription]) -> bool:
    """Returns whether receivers can get what was sent before they joined: the source keeps it, or an archive has it."""
    on_a_ring = session.datagram_source.recovery_ns == 0  # elsewhere only the source knows where the past ends
    return source.retains or (on_a_ring and any(user.archive is not None for user in users))


def _wants_past(source: SourceAdvert, user: Subscription) -> bool:
    """Returns whether a receiver wants what was sent before it joined, and may get it."""
    return user.options.use_late_join and user.options.history != 0 and (source.retains or user.archive is not None)


def _most(options: ReceiverOptions) -> int | None:
    """Returns how many messages from before the join a receiver wants at most; None for all."""
    return options.history if options.history >= 0 else options.retransmit_request_maximum or None


def _kind(options: ReceiverOptions) -> tuple[int | None, str]:
    """Returns what makes the histories of two receivers differ."""
    return _most(options), options.history_archive


def _settings(options: ReceiverOptions) -> RecoverySettings:
    return RecoverySettings(
        late_join=RequestTerms(
            0,
            options.retransmit_request_interval * _MS_NS,
            options.retransmit_request_interval * _MS_NS,
            options.retransmit_request_message_timeout * _MS_NS,
            options.retransmit_request_outstanding_maximum,
            LATE_JOIN.numbers_max,
        ),
        otr=RequestTerms(
            options.otr_request_initial_delay * _MS_NS,
            options.otr_request_minimum_interval * _MS_NS,
            options.otr_request_maximum_interval * _MS_NS,
            options.otr_request_message_timeout * _MS_NS,
            options.otr_request_outstanding_maximum,
            OTR.numbers_max,
        ),
        info_interval_ns=options.late_join_info_request_interval * _MS_NS,
        info_requests_max=options.late_join_info_request_maximum,
        asks_silent_sources=options.retransmit_initial_sequence_number_request,
        history=_most(options),
    )
