"""The receivers of a context that acknowledge: those with a `gmd_name`, and the members of shares."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, cast

from ipcbus.delivery.work_taker import WorkTaker
from ipcbus.runtime.receiving.gmd_receptions import GmdReceptions
from ipcbus.runtime.receiving.share_reception import ShareReception
from ipcbus.transport.ring.ring_receiver import RingReceiver
from ipcbus.wire import share_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipcbus.delivery.recovering_controller import RecoveringController
    from ipcbus.delivery.sink import Sink
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.runtime.receiving.receiver_channels import ReceiverChannels
    from ipcbus.runtime.receiving.subscriptions import Subscription
    from ipcbus.transport.receiving_session import ReceivingSession


class Receptions(GmdReceptions):
    """All receivers of a context that acknowledge. Runs on the driver, but for `flush_soon`."""

    def __init__(
        self,
        domain: str,
        event_loop: EventLoop,
        channels: ReceiverChannels,
        is_joined: Callable[[ReceivingSession], bool],
        context_id: int,
    ) -> None:
        """Begins without receivers; `context_id` is the id of the context."""
        super().__init__(domain, event_loop, channels, is_joined)
        self._context_id = context_id
        self._shared: dict[Sink, Subscription] = {}
        self._members: list[ShareReception] = []
        self.work_taker = WorkTaker(self._take_slowly)
        channels.hand(share_messages.SHARE_WORK, self.work_taker)

    def open(self, subscription: Subscription) -> None:
        """Takes a new receiver.

        Raises:
            GmdError: its area cannot be opened.
        """
        if subscription.options.share:
            self._shared[subscription.sink] = subscription
        super().open(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Forgets a receiver, which gets nothing any more."""
        if self._shared.pop(subscription.sink, None) is not None:
            for each in [each for each in self._members if each.subscription is subscription]:
                self._end(each)
        super().remove(subscription)

    def enter(self, session: ReceivingSession, controller: RecoveringController, sink: Sink) -> Sink | None:
        """Returns what stands in the controller of a topic for a receiver; see `delivery.slow_path.Gates`."""
        subscription = self._shared.get(sink)
        if subscription is None:
            if isinstance(session.datagram_source, RingReceiver):
                session.datagram_source.show_quiet(False)
            return super().enter(session, controller, sink)
        instance = secrets.randbits(64)
        reception = ShareReception(self, session, controller, subscription, instance, self._context_id)
        self._members.append(reception)
        subscription.gates.append(reception.gate)
        self._event_loop.hurry()
        return reception.gate.sink

    def show_quiet(self, session: ReceivingSession) -> None:
        """Sleeps through the records of a session from which shares alone get something."""
        if isinstance(session.datagram_source, RingReceiver):
            entries = [entry for controller in session.delivery.topics() for entry in controller.sinks]
            gates = {each.gate.sink for each in self._members if each.session is session and each.member.is_joined}
            session.datagram_source.show_quiet(gates.issuperset(entries))

    def leave(self, entry: Sink) -> None:
        """Closes a gate whose receiver does not get the topic any more."""
        for each in [each for each in self._members if each.gate.sink is entry]:
            self._end(each)
        super().leave(entry)

    def forget(self, session: ReceivingSession) -> None:
        """Closes the gates of a session that is left."""
        for each in [each for each in self._members if each.session is session]:
            self._end(each)
        super().forget(session)

    def abandon(self) -> None:
        """Gives up everything in the child of a fork."""
        for each in self._members:
            each.is_forked = True
        self._members.clear()
        self._shared.clear()
        super().abandon()

    def _end(self, each: ShareReception) -> None:
        each.close()
        self._members.remove(each)
        if each.gate in each.subscription.gates:
            each.subscription.gates.remove(each.gate)

    @property
    def any(self) -> bool:
        """Whether there is such a receiver that has joined a source."""
        return bool(self._members) or super().any

    def take(self, session: ReceivingSession, message: bytes, now_ns: int) -> None:
        """Takes a message for such a receiver from the source of a session."""
        if not share_messages.is_share(message):
            super().take(session, message, now_ns)
            return
        found = share_messages.decode(message)
        if not isinstance(found, share_messages.ShareAnswer):
            self.malformed += 1
            return
        for each in self._members:
            if each.session is session and each.topic == found.topic and each.member.instance == found.instance:
                each.receive(found)
                return

    def _take_slowly(self, session: Hashable, message: bytes) -> None:
        self.take(cast("ReceivingSession", session), message, time.monotonic_ns())

    def turn(self, now_ns: int) -> int:
        """Goes on with all receivers; returns when to call again, in ns of the monotonic clock."""
        soon = super().turn(now_ns)
        for each in list(self._members):
            if each.due_ns <= now_ns:
                each.due_ns = each.turn(now_ns)
            soon = min(soon, each.due_ns)
        return soon

    def drain(self, session: ReceivingSession, now_ns: int) -> None:
        """Takes all that the source of a session has sent."""
        self._channels.drain(session, now_ns)
