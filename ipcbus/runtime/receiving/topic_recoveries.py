"""The recoveries of a context: late join and off-transport recovery (OTR) of the topics of its receivers."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ipcbus.delivery.message_types import MessageFlag
from ipcbus.delivery.recovery_gate import RecoveryGate
from ipcbus.recovery.range_requests import RangeRequests, RequestTimes
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.wire import control_messages
from ipcbus.wire.control_messages import Info, Retransmission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ipcbus.config import ReceiverOptions
    from ipcbus.delivery.delivery_controller import DeliveryController
    from ipcbus.delivery.sink import Sink
    from ipcbus.resolution.local.adverts import SourceAdvert
    from ipcbus.runtime.receiving.receiver_channels import ReceiverChannels
    from ipcbus.runtime.receiving.subscriptions import Subscription
    from ipcbus.transport.receiving_session import ReceivingSession

log = logging.getLogger("ipcbus")

_MS_NS = 1_000_000
_SOON_NS = 1_000_000
_KEEP_ASKING_NS = 100_000_000
"""How often a receiver without room shows its source that it still recovers."""
_GONE_NS = 1_000_000


class _Recovery:
    """The recovery of one topic for one or several of its receivers."""

    def __init__(
        self, session: ReceivingSession, gate: RecoveryGate, times: RequestTimes, options: ReceiverOptions
    ) -> None:
        self.session, self.gate, self.options = session, gate, options
        self.topic: int = gate.controller.topic_number
        self.requests = RangeRequests(times)
        self.info_due_ns = 0
        self.info_requests = 0
        self.held_ns = 0


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
            channels: the control channels to the sources; it takes their messages from now on.
            is_joined: returns whether the context still receives a session.
            hurry: makes the event loop call `turn` soon.
        """
        self._is_joined, self._hurry = is_joined, hurry
        self._channels = channels
        channels.take = self._take
        self._recoveries: list[_Recovery] = []
        self._logged_ns: dict[str, int] = {}
        self._received = 0

    # ------------------------------------------------------------------ beginnings

    def join_late(
        self,
        session: ReceivingSession,
        source: SourceAdvert,
        controller: DeliveryController,
        users: Iterable[Subscription],
    ) -> None:
        """Begins the late join of receivers that were made just now.

        Args:
            session: the session.
            source: the topic.
            controller: its delivery controller, which has the receivers already.
            users: the new receivers.
        """
        if not source.retains or controller.stopped_before == 0 or not self._is_joined(session):
            return  # nothing was sent before
        groups: dict[int, list[Subscription]] = {}
        for user in users:
            if user.options.use_late_join and user.options.history:
                groups.setdefault(user.options.history, []).append(user)
        if not groups or self._channels.of(session) is None:
            return
        for group in groups.values():
            options = group[0].options
            times = RequestTimes(
                options.retransmit_request_interval * _MS_NS,
                options.retransmit_request_interval * _MS_NS,
                options.retransmit_request_message_timeout * _MS_NS,
                options.retransmit_request_outstanding_maximum,
            )
            gate = self._gate(session, controller, [user.sink for user in group], options, MessageFlag.LATE_JOIN)
            self._recoveries.append(_Recovery(session, gate, times, options))
        self._hurry()

    def lost(
        self, session: ReceivingSession, controller: DeliveryController, first: int, last: int
    ) -> RecoveryGate | None:
        """Begins the off-transport recovery of messages that the transport has lost.

        Returns:
            The gate that recovers them; None when they are lost.
        """
        options = session.recovers.get(controller.topic_number)
        behind = {target for gate in controller.gates for target in gate.targets}
        targets = [each for each in controller.receivers if each not in behind]
        if options is None or not targets or controller.ended or not self._is_joined(session):
            return None
        if self._channels.of(session) is None:
            return None
        times = RequestTimes(
            options.otr_request_minimum_interval * _MS_NS,
            options.otr_request_maximum_interval * _MS_NS,
            options.otr_request_message_timeout * _MS_NS,
            options.otr_request_outstanding_maximum,
        )
        gate = self._gate(session, controller, targets, options, MessageFlag.OTR)
        gate.begin(first, last + 1)
        self._recoveries.append(_Recovery(session, gate, times, options))
        self._log(controller, first, last, options)
        self._hurry()
        return gate

    def _gate(
        self,
        session: ReceivingSession,
        controller: DeliveryController,
        targets: Sequence[Sink],
        options: ReceiverOptions,
        flag: MessageFlag,
    ) -> RecoveryGate:
        return RecoveryGate(
            session.delivery,
            controller,
            targets,
            flags=flag,
            keep_max=options.retransmit_message_caching_proximity,
            recovers_losses=options.use_otr > 0,
        )

    def _log(self, controller: DeliveryController, first: int, last: int, options: ReceiverOptions) -> None:
        topic, now_ns = controller.origin.topic, time.monotonic_ns()
        if now_ns < self._logged_ns.get(topic, 0):
            return
        self._logged_ns[topic] = now_ns + options.otr_request_log_alert_cooldown * 1_000_000_000
        log.info(
            "receivers of topic %r ask %s for the messages %d to %d, which were lost on the way",
            topic,
            controller.origin.source,
            first,
            last,
        )

    # ------------------------------------------------------------------ by time, and by what comes

    def turn(self, now_ns: int) -> int:
        """Goes on with all recoveries; returns when to call again, in ns of the monotonic clock."""
        soon = FOREVER_NS
        for recovery in list(self._recoveries):
            soon = min(soon, self._go_on(recovery, now_ns))
        self._recoveries = [each for each in self._recoveries if not each.gate.opened]
        return soon

    def _go_on(self, recovery: _Recovery, now_ns: int) -> int:
        gate = recovery.gate
        if not gate.source_gone and not self._is_joined(recovery.session):
            gate.lose_source(now_ns)
        before = recovery.session.delivery.recovered
        is_open = gate.advance(now_ns)
        self._received += recovery.session.delivery.recovered - before
        if is_open:
            return FOREVER_NS
        if gate.source_gone:
            return now_ns + _SOON_NS  # a receiver has no room
        if not gate.begun:
            return self._ask_for_info(recovery, now_ns)
        requests, wanted = recovery.requests, gate.wanted
        if gate.holds_entries or wanted is None:
            requests.hold(now_ns)
            if now_ns >= recovery.held_ns:
                recovery.held_ns = now_ns + _KEEP_ASKING_NS
                self._channels.send(recovery.session, control_messages.info_request(recovery.topic))
            return now_ns + _SOON_NS
        if requests.is_hopeless(now_ns):
            gate.give_up(now_ns)
            return now_ns
        for first, last in requests.ask(*wanted, now_ns):
            if not self._channels.send(recovery.session, control_messages.range_request(recovery.topic, first, last)):
                requests.refused()
                return now_ns + _SOON_NS
        return min(requests.next_ns, now_ns + _KEEP_ASKING_NS)

    def _ask_for_info(self, recovery: _Recovery, now_ns: int) -> int:
        options = recovery.options
        if not options.retransmit_initial_sequence_number_request and not recovery.gate.controller.started:
            return now_ns + _KEEP_ASKING_NS
        if now_ns >= recovery.info_due_ns:
            if recovery.info_requests >= options.late_join_info_request_maximum:
                recovery.gate.lose_source(now_ns)
                return now_ns
            recovery.info_requests += 1
            recovery.info_due_ns = now_ns + options.late_join_info_request_interval * _MS_NS
            self._channels.send(recovery.session, control_messages.info_request(recovery.topic))
        return recovery.info_due_ns

    def _take(self, session: ReceivingSession, message: bytes, now_ns: int) -> None:
        """Takes a message of a session's source."""
        found = control_messages.decode(message)
        if isinstance(found, Info):
            for recovery in self._of(session, found.topic):
                self._begin(recovery, found)
                self._go_on(recovery, now_ns)
        elif isinstance(found, Retransmission):
            for recovery in self._of(session, found.topic):
                if recovery.requests.accepts(found.first, found.last):
                    recovery.requests.answered(found.last, now_ns)
                    at = control_messages.RETRANSMISSION_HEADER
                    before = session.delivery.recovered
                    recovery.gate.retransmitted(found.last, message, at, now_ns)
                    self._received += session.delivery.recovered - before
                    self._go_on(recovery, now_ns)
                    break

    def _of(self, session: ReceivingSession, topic: int) -> list[_Recovery]:
        return [
            each
            for each in self._recoveries
            if each.session is session and each.topic == topic and not (each.gate.opened or each.gate.source_gone)
        ]

    def _begin(self, recovery: _Recovery, info: Info) -> None:
        """Begins a late join when the source has said what it keeps."""
        gate = recovery.gate
        if gate.begun:
            return
        # Messages that are published after the join come live.
        until = info.next if gate.joined_at is None else min(info.next, gate.joined_at)
        maximum = (
            recovery.options.history if recovery.options.history > 0 else recovery.options.retransmit_request_maximum
        )
        gate.begin(max(info.low, until - maximum if maximum else 0), until)

    # ------------------------------------------------------------------ the end

    def forget(self, session: ReceivingSession) -> None:
        """Ends the recoveries of a session that is left; the channel to its source is closed after this."""
        now_ns = time.monotonic_ns()
        self._channels.drain(session, now_ns)
        for recovery in list(self._recoveries):
            if recovery.session is session:
                recovery.gate.lose_source(now_ns)

    def is_recovering(self, session: ReceivingSession) -> bool:
        """Returns whether a receiver of a session recovers messages."""
        return any(each.session is session and not each.gate.opened for each in self._recoveries)

    def counters(self) -> dict[str, int]:
        """Returns the counters, by their names in the layout."""
        wanted = [each.gate.wanted for each in self._recoveries]
        return {
            "retransmissions_rcved": self._received,
            "recoveries_running": len(self._recoveries),
            "retransmissions_missing": sum(last - first + 1 for first, last in filter(None, wanted)),
        }

    @property
    def count(self) -> int:
        """The number of recoveries that run."""
        return len(self._recoveries)
