"""One named receiver's side of guaranteed delivery, for one source topic of a session."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, cast

from ipcbus.delivery.gmd_gate import GmdGate
from ipcbus.delivery.message_types import LOSSES, MessageType, loss_events
from ipcbus.delivery.received_message import event, given_up, resent_message
from ipcbus.gmd.held_messages import LiveMessage, Loss, ResentMessage
from ipcbus.gmd.receiver_state import GmdReceiver, Verdict
from ipcbus.runtime.receiving.ack_sender import AckSender
from ipcbus.wire import gmd_messages
from ipcbus.wire.resent_entries import ResentEntries

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ipcbus.delivery.pump import Pump
    from ipcbus.delivery.received_message import Message
    from ipcbus.delivery.recovering_controller import RecoveringController
    from ipcbus.gmd.gmd_settings import ReceiverSettings
    from ipcbus.gmd.held_messages import ReceivedItem
    from ipcbus.gmd.received_stream import ReceivedStreams
    from ipcbus.recovery.control_channel import ControlChannel
    from ipcbus.runtime.receiving.subscriptions import Subscription
    from ipcbus.transport.receiving_session import ReceivingSession
    from ipcbus.transport.ring.response_frames import ResponseWriter
    from ipcbus.wire.gmd_messages import GmdAnswer

_ROOM_NS = 1_000_000
"""Time in ns after which a receiver without room is tried again."""
_COST = 200
"""Bytes of memory that a held message takes beside its value."""
_REFUSALS = {
    gmd_messages.NAME_IN_USE: "another live receiver has this gmd_name; close it, or choose another name",
    gmd_messages.TOO_MANY_NAMES: "it has too many receivers with names; take some off with Source.gmd_forget",
    gmd_messages.AREA_FAILED: "its GMD area cannot record the name; look at the log of the source",
}


class ReceptionOwner(Protocol):
    """The context, as far as a reception uses it."""

    @property
    def pump(self) -> Pump:
        """Delivers the messages of the context."""

    def driver_lock(self) -> AbstractContextManager[None]:
        """Makes the calling thread the one that drives the context, for a short change."""

    def writer(self, session: ReceivingSession) -> ResponseWriter | None:
        """Returns the short way to the source of a session; None without an open pipe."""

    def channel(self, session: ReceivingSession) -> ControlChannel | None:
        """Returns the control channel to the source of a session; None while it cannot be opened."""

    def send(self, session: ReceivingSession, message: bytes) -> bool:
        """Sends a control message to the source of a session; returns False when that is not possible now."""

    def flush_soon(self, reception: GmdReception) -> None:
        """Calls `turn` soon; any thread may call this."""

    def give_up(self, subscription: Subscription, message: Message) -> bool:
        """Publishes a message that a receiver gives up; returns False if it has no topic for such messages."""


class GmdReception:
    """Joins the gate of a named receiver with the protocol (delivery.slow_path.GateKeeper). Runs on the driver."""

    def __init__(
        self,
        owner: ReceptionOwner,
        session: ReceivingSession,
        controller: RecoveringController,
        subscription: Subscription,
        streams: ReceivedStreams,
        settings: ReceiverSettings,
        instance: int,
    ) -> None:
        """Begins with a closed gate.

        Args:
            owner: the context.
            session: the session.
            controller: delivers the topic.
            subscription: the receiver.
            streams: its streams of the topic.
            settings: its options.
            instance: its random number.
        """
        self.session, self.subscription = session, subscription
        self._owner, self._controller = owner, controller
        options = subscription.options
        self.gate = GmdGate(
            subscription.sink,
            controller,
            self,
            session.delivery,
            auto_ack=options.ipc_gmd_auto_ack,
            acks_at_the_end=options.ipc_gmd_auto_ack_policy == "last",
            unrecorded_max=settings.unrecorded_max,
            pump=owner.pump,
        )
        self.topic: int = controller.topic_number
        opening = gmd_messages.opening_of(session.advert.session_id, self.topic)
        self.machine = GmdReceiver(
            options.gmd_name,
            self.topic,
            instance,
            streams,
            settings,
            self.gate,
            time.monotonic_ns(),
            opening=opening,
        )
        self.machine.has_losses = self.flush_soon
        self._acks = self.gate.short_way = AckSender(self.topic, instance)
        self._writer: ResponseWriter | None = None
        self._channel: ControlChannel | None = None
        self.due_ns = 0
        self._delivers = False
        self.over = self.is_forked = False

    # ------------------------------------------------------------------ calls of the gate

    def take(self, message: Message) -> None:
        """Takes a message that does not simply pass, guaranteed or not."""
        verdict = self.machine.offer(
            message.gmd_sequence_number,
            message.first_sequence_number,
            message.sequence_number,
            len(message) + _COST,
            message,
        )
        if verdict is Verdict.DELIVER:
            self.gate.deliver(message)
        elif verdict is Verdict.HELD:
            self._deliver()
        self.flush_soon()

    def take_event(self, message: Message) -> None:
        """Takes an event of the source; a loss waits behind resent messages, which may contain what it reports."""
        if message.type in LOSSES:
            if self.machine.loss(message.first_sequence_number, message.sequence_number) is Verdict.HELD:
                self._deliver()
                self.flush_soon()
                return
        elif message.type is MessageType.EOS:
            self.end()
        self.gate.deliver(message)

    def flush_soon(self) -> None:
        """Has acknowledgements taken soon; any thread may call this."""
        self.due_ns = 0
        self._owner.flush_soon(self)

    def flush(self) -> None:
        """Takes acknowledgements at once: too many are not recorded."""
        self._take_acks(time.monotonic_ns())
        self._record()

    def flush_from_any_thread(self) -> bool:
        """As `flush`; waits until the thread that drives the context lets this one do it."""
        if self.is_forked:
            return False
        with self._owner.driver_lock():
            self._take_acks(time.monotonic_ns())
            return self._record()

    def _record(self) -> bool:
        is_recorded = self.machine.stream is None or self.machine.stream.record()
        if is_recorded:
            self.gate.note_recorded()
        return is_recorded

    # ------------------------------------------------------------------ by time, and by what comes

    def receive(self, message: GmdAnswer, now_ns: int) -> None:
        """Takes a message of the source."""
        self.machine.receive(message, now_ns)
        stream = self.machine.stream
        if stream is not None:
            self._controller.origin.set_sender(stream.sender, stream.incarnation)
        self._deliver()
        self.due_ns = 0

    def turn(self, now_ns: int) -> int:
        """Goes on; returns when to call again, in ns of the monotonic clock."""
        self._take_acks(now_ns)
        if self.over:
            self._record()
            due_ns = self.machine.turn(now_ns, self._send)
            return due_ns if self._deliver() else now_ns + _ROOM_NS
        channel = self._owner.channel(self.session)
        if channel is not self._channel:
            self._channel, self._writer = channel, None
            self.machine.channel_lost(now_ns)
        due_ns = self.machine.turn(now_ns, self._send)
        self._record()  # says to the gate that it is done
        self._shorten_the_way()
        if self.machine.refusal:
            self._warn(self.machine.refusal)
        if self.machine.stream is not None and self.machine.stream.failing:
            warn_of_area(self.subscription, self._controller.origin.topic, self.machine.stream.failing)
        return due_ns if self._deliver() else min(due_ns, now_ns + _ROOM_NS)

    def _shorten_the_way(self) -> None:
        """Lets acknowledgements in order go straight into the pipe to the source, if there is one."""
        if self._writer is None and self._channel is not None:
            self._writer = self._owner.writer(self.session)
        stream = self.machine.stream
        if stream is not None:
            self._acks.use(stream.ordered, stream.incarnation, self._writer)

    def _warn(self, refusal: int) -> None:
        why = _REFUSALS.get(refusal)
        if why is not None:
            self.subscription.warn(
                f"gmd {refusal} {self.session.source_string}",
                f"receiver {self.machine.name!r} of topic {self._controller.origin.topic!r} gets nothing of "
                f"{self.session.source_string} until the source accepts it: {why}",
            )

    def _send(self, message: bytes) -> bool:
        return self._channel is not None and self._owner.send(self.session, message)

    def _take_acks(self, now_ns: int) -> None:
        for first, last in self.gate.take_acks():
            self.machine.acknowledge(first, last)
        for message, delay_ns in self.gate.take_refusals():
            number = message.gmd_sequence_number
            gives_up = not self.machine.refuse(number, delay_ns or 0, now_ns)
            stream = self.machine.stream
            if gives_up and stream is not None and self._owner.give_up(self.subscription, message):
                stream.to_refuse.remove(number)
                stream.acknowledge(number, number)

    def _deliver(self, *, without_limit: bool = False) -> bool:
        """Delivers what is in order; returns whether the receiver had room for all of it."""
        if self._delivers:
            return True  # called back from a message: the outer call goes on
        self._delivers = True
        try:
            target = self.gate.target
            while without_limit or not (target.pulls and not target.closed and target.is_full_now()):
                item = self.machine.take()
                if item is None:
                    return True
                self._deliver_item(item, without_limit=without_limit)
            return False
        finally:
            self._delivers = False

    def _deliver_item(self, item: ReceivedItem, *, without_limit: bool) -> None:
        if isinstance(item, ResentEntries):
            origin = self._controller.origin
            count = self.gate.deliver_resent(item, origin, self.machine.opening, without_limit=without_limit)
            self.session.delivery.count_delivered(count)
        elif isinstance(item, LiveMessage):
            self.session.delivery.count_delivered(1)  # a wait ends with it, though the demux took it before
            self.gate.deliver(cast("Message", item.what))
        elif isinstance(item, ResentMessage):
            self.session.delivery.count_delivered(1)
            self.gate.deliver(resent_message(self._controller.origin, *item[:5]))
        elif isinstance(item, Loss):
            is_burst = item.last - item.first + 1 > self._controller.rules.burst_loss
            for kind, first, last in loss_events(item.first, item.last, burst=is_burst):
                self.session.delivery.count_delivered(1)
                self.gate.deliver(event(self._controller.origin, kind, first, last))
        else:
            self.gate.withdraw(item.first, item.last)
            self.session.delivery.count_delivered(1)
            self.gate.deliver(given_up(self._controller.origin, item.first, item.last))

    # ------------------------------------------------------------------ the end

    def end(self) -> None:
        """The source topic ends: delivers what is in order; the rest comes again when the source sends again."""
        if not self.over:
            self._take_acks(time.monotonic_ns())
            self.machine.end()
            self._deliver(without_limit=True)
            self._detach()

    def close(self) -> None:
        """The receiver is closed: what it has not acknowledged stays pending."""
        if self.over:
            return
        self._take_acks(time.monotonic_ns())
        self.machine.turn(time.monotonic_ns(), self._send)
        self._detach()
        message = self.machine.leave()
        if message is not None:
            self._send(message)

    def _detach(self) -> None:
        self.over = True
        self._acks.use(None, 0, None)
        self.machine.detach()


def warn_of_area(subscription: Subscription, topic: str, why: str) -> None:
    """Warns a receiver once that its area does not record what it acknowledges."""
    subscription.warn(f"gmd area {why}", f"receiver {subscription.options.gmd_name!r} of topic {topic!r}: {why}")
