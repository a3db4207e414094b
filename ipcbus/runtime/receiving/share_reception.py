"""One member of a share, for one source topic of a session."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ipcbus.delivery.message_types import LOSSES, MessageType
from ipcbus.delivery.share_gate import ShareGate
from ipcbus.shares.share_member import ShareMember
from ipcbus.shares.share_settings import FOREVER_NS
from ipcbus.wire import share_messages
from ipcbus.wire.share_messages import Work

if TYPE_CHECKING:
    from ipcbus.delivery.received_message import Message
    from ipcbus.delivery.recovering_controller import RecoveringController
    from ipcbus.recovery.control_channel import ControlChannel
    from ipcbus.runtime.receiving.receptions import Receptions
    from ipcbus.runtime.receiving.subscriptions import Subscription
    from ipcbus.transport.receiving_session import ReceivingSession
    from ipcbus.wire.resent_entries import ResentEntries
    from ipcbus.wire.share_messages import ShareAnswer

_ROOM_NS = 1_000_000
"""Time in ns after which a member, or a channel, without room is tried again."""
_REFUSALS = {
    share_messages.TOO_MANY_SHARES: "it has too many shares; use fewer names",
    share_messages.TOO_MANY_MEMBERS: "the share has too many members; close some of them",
}


class ShareReception:
    """Joins the gate of a member with the protocol (delivery.slow_path.GateKeeper). Runs on the driver."""

    def __init__(
        self,
        owner: Receptions,
        session: ReceivingSession,
        controller: RecoveringController,
        subscription: Subscription,
        instance: int,
        context_id: int,
    ) -> None:
        """Begins without a channel.

        Args:
            owner: the context.
            session: the session.
            controller: of the topic.
            subscription: the receiver.
            instance: a random number.
            context_id: the id of the context.
        """
        self.session, self.subscription = session, subscription
        self._owner, self._controller = owner, controller
        options = subscription.options
        self.gate = ShareGate(
            subscription.sink,
            controller,
            self,
            session.delivery,
            auto_ack=options.ipc_gmd_auto_ack,
            acks_at_the_end=options.ipc_gmd_auto_ack_policy == "last",
            unrecorded_max=FOREVER_NS,
        )
        self.topic: int = controller.topic_number
        self.member = ShareMember(
            options.share, self.topic, instance, context_id=context_id, portion=options.umq_ulb_receiver_portion
        )
        self._channel: ControlChannel | None = None
        self.due_ns = 0
        self._delivers = self.over = self.is_forked = self._is_begun = False

    # ------------------------------------------------------------------ calls of the gate

    def take(self, message: Message) -> None:
        """Does nothing: a message of the session is not for this receiver."""

    def take_event(self, message: Message) -> None:
        """Takes an event of the source; a loss of the session does not concern the share."""
        if message.type in LOSSES:
            return
        if message.type is MessageType.EOS:
            self.end()
        self.gate.deliver(message)

    def flush_soon(self) -> None:
        """Has acknowledgements sent soon; any thread may call this."""
        self.due_ns = 0
        self._owner.flush_soon(self)  # type: ignore[arg-type]

    def flush(self) -> None:
        """Takes acknowledgements at once."""
        self._take_acks()

    def flush_from_any_thread(self) -> bool:
        """As `flush`; waits until the thread that drives the context lets this one do it."""
        if self.is_forked:
            return False
        with self._owner.driver_lock():
            self._take_acks()
        return True

    # ------------------------------------------------------------------ by time, and by what comes

    def receive(self, message: ShareAnswer) -> None:
        """Takes a message of the source."""
        self.member.receive(message)
        if isinstance(message, share_messages.Joined):
            self._owner.show_quiet(self.session)
        elif not self._is_begun and not self.over:  # behind the beginning of the session, which comes by the ring
            self._is_begun = True
            self._owner.work_taker.add(
                self.topic, self.member.instance, self.gate, self._controller.origin, self.member.work, self._keep
            )
        if self.member.refusal:
            why = _REFUSALS.get(self.member.refusal, "the source refuses it")
            self.subscription.warn(
                f"share {self.member.refusal} {self.session.source_string}",
                f"receiver of topic {self._controller.origin.topic!r} gets nothing of {self.session.source_string} for "
                f"share {self.member.name!r} until the source accepts it: {why}",
            )
        self._deliver()
        self.due_ns = 0

    def _keep(self, detail: int, entries: ResentEntries) -> None:
        """Keeps messages for which the receiver has no room."""
        self.member.receive(Work(self.topic, self.member.instance, detail, entries))
        self.flush_soon()

    def turn(self, now_ns: int) -> int:
        """Goes on; returns when to call again, in ns of the monotonic clock."""
        self._take_acks()
        if self.over:
            return FOREVER_NS
        channel = self._owner.channel(self.session)
        if channel is not self._channel:
            self._channel = channel
            self.member.channel_lost()
            self._owner.show_quiet(self.session)
        has_room = self._deliver()
        self._take_acks()
        due_ns = self.member.turn(now_ns, self._send)
        return now_ns + _ROOM_NS if due_ns is None or not has_room else due_ns

    def _send(self, message: bytes) -> bool:
        return self._channel is not None and self._owner.send(self.session, message)

    def _take_acks(self) -> None:
        for first, last in self.gate.take_acks():
            self.member.acknowledge(first, last)
        for message, delay_ns in self.gate.take_refusals():
            self.member.refuse(message.first_sequence_number + 1, delay_ns)
        self.gate.note_recorded()

    def _deliver(self, *, without_limit: bool = False) -> bool:
        """Delivers what is assigned; returns whether the receiver had room for all of it."""
        if self._delivers:
            return True  # called back from a message: the outer call goes on
        self._delivers = True
        waiting = self.member.work
        try:
            while waiting:
                work = waiting[0]
                count = self.gate.deliver_work(
                    work.entries,
                    self._controller.origin,
                    reassigned=bool(work.detail & share_messages.REASSIGNED),
                    requests=bool(work.detail & share_messages.REQUEST),
                    without_limit=without_limit,
                )
                self.session.delivery.count_delivered(count)
                if len(work.entries):
                    return False
                if waiting and waiting[0] is work:
                    waiting.popleft()
            return True
        finally:
            self._delivers = False

    # ------------------------------------------------------------------ the end

    def end(self) -> None:
        """The source topic ends: delivers what is assigned, as no other member gets it any more."""
        if not self.over:
            self._owner.drain(self.session, time.monotonic_ns())
            self._deliver(without_limit=True)
            self._finish()

    def close(self) -> None:
        """The receiver is closed: what it has not acknowledged goes to other members."""
        if self.over:
            return
        self._take_acks()
        self.member.turn(time.monotonic_ns(), self._send)
        self._finish()
        if self.member.is_joined:
            self._send(self.member.leave())

    def _finish(self) -> None:
        self.over = True
        self._owner.work_taker.remove(self.topic, self.member.instance)
