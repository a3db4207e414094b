"""The named receivers of a context: their gates, their areas, and what sources send them."""

from __future__ import annotations

import logging
import secrets
import threading
from typing import TYPE_CHECKING

from ipcbus.errors import GmdAreaLocked, GmdError
from ipcbus.gmd.gmd_events import GmdReceiverStatistics
from ipcbus.gmd.gmd_settings import FOREVER_NS, ReceiverSettings
from ipcbus.gmd.received_stream import ReceivedStreams
from ipcbus.runtime.gmd_areas import CHECK_NS, open_receiver_area
from ipcbus.runtime.receiving.gmd_reception import GmdReception, warn_of_area
from ipcbus.runtime.sending.expected_receivers import ExpectedReceivers, gmd_identity
from ipcbus.wire import gmd_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ipcbus.delivery.pump import Pump
    from ipcbus.delivery.recovering_controller import RecoveringController
    from ipcbus.delivery.sink import Sink
    from ipcbus.gmd.receiver_area import ReceiverArea
    from ipcbus.message import Message
    from ipcbus.recovery.control_channel import ControlChannel
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.runtime.receiving.receiver_channels import ReceiverChannels
    from ipcbus.runtime.receiving.subscriptions import Subscription
    from ipcbus.transport.receiving_session import ReceivingSession
    from ipcbus.transport.ring.response_frames import ResponseWriter

log = logging.getLogger("ipcbus")

_DISCONNECT_MODES = {
    "warm": gmd_messages.WARM,
    "gmd_failure": gmd_messages.GMD_FAILURE,
    "gmd_success": gmd_messages.GMD_SUCCESS,
}


class _NamedReceiver:
    """A receiver with a `gmd_name`: its areas, one for each topic."""

    def __init__(self, domain: str, subscription: Subscription) -> None:
        options = subscription.options
        self._domain, self._subscription, self._options = domain, subscription, options
        self.instance = secrets.randbits(64)
        self.settings = ReceiverSettings(
            disconnect_mode=_DISCONNECT_MODES[options.gmd_disconnect_mode],
            unrecorded_max=options.gmd_unrecorded_maximum,
            deliveries_max=options.gmd_max_deliveries,
        )
        self.ended = (0, 0)
        """Messages that were sent again to it, and duplicates, in sessions that it has left."""
        self._topics: dict[str, tuple[ReceiverArea, ReceivedStreams]] = {}

    def streams(self, topic: str) -> ReceivedStreams:
        """Returns the streams of a topic; opens its area the first time.

        Raises:
            GmdError: the area cannot be opened.
        """
        if topic not in self._topics:
            area = open_receiver_area(self._domain, topic, self._options)
            self._topics[topic] = area, ReceivedStreams(area, self.settings)
        return self._topics[topic][1]

    @property
    def failing(self) -> str:
        """Why an area cannot record; empty while all can."""
        return next((why for _, streams in self._topics.values() for why in streams.failing()), "")

    def check(self) -> None:
        """Looks whether the areas are still there."""
        for topic, (area, _) in self._topics.items():
            try:
                area.check()
            except GmdError as error:
                warn_of_area(self._subscription, topic, str(error))

    def close(self) -> None:
        for area, streams in self._topics.values():
            streams.record()
            area.close()
        self._topics.clear()


class GmdReceptions:
    """All named receivers of a context. Runs on the driver, but for `flush_soon`."""

    def __init__(
        self,
        domain: str,
        event_loop: EventLoop,
        channels: ReceiverChannels,
        is_joined: Callable[[ReceivingSession], bool],
    ) -> None:
        """Begins without receivers.

        Args:
            domain: the bus domain.
            event_loop: the event loop of the context.
            channels: the control channels to the sources.
            is_joined: returns whether the context still receives a session.
        """
        self._domain, self._event_loop = domain, event_loop
        self._channels, self._is_joined = channels, is_joined
        self._named: dict[Subscription, _NamedReceiver] = {}
        self._all: list[GmdReception] = []
        self._figures = threading.Lock()
        """Held while the figures of a session that is left become those of its receiver: any thread reads them."""
        self._ended: list[GmdReception] = []  # they withhold losses
        self._to_flush: list[GmdReception] = []
        self.publish: Callable[[str, str, Message], bool] = lambda topic, name, message: False
        """Publishes, on a topic, a message that the receiver of this `gmd_name` gives up; returns whether it could."""
        self.malformed = 0
        self._check_ns = 0

    # ------------------------------------------------------------------ receivers

    def open(self, subscription: Subscription) -> None:
        """Takes a new receiver; opens its area, unless it has a pattern.

        Raises:
            GmdError: the area cannot be opened.
        """
        name, topic = subscription.options.gmd_name, subscription.name
        if not name:
            return
        if subscription.pattern is None:
            pid = ExpectedReceivers(self._domain, (), topic).user_of(topic, gmd_identity(name))
            if pid is not None:
                raise GmdAreaLocked(
                    f"topic {topic!r}: the receiver {name!r} lives already, in process {pid}; close it, or give this "
                    "one another gmd_name"
                )
        named = _NamedReceiver(self._domain, subscription)
        if subscription.pattern is None:
            named.streams(subscription.name)
        self._named[subscription] = named

    def remove(self, subscription: Subscription) -> None:
        """Closes the areas of a receiver; its gates are closed already."""
        named = self._named.pop(subscription, None)
        if named is not None:
            for each in [each for each in self._all if each.subscription is subscription]:
                self._close(each)
            self._ended = [each for each in self._ended if each.subscription is not subscription]
            named.close()
            subscription.gates.clear()

    def statistics(self, subscription: Subscription) -> GmdReceiverStatistics | None:
        """Returns the figures of a receiver; None if it has no name, or is closed."""
        named = self._named.get(subscription)
        if named is None:
            return None
        with self._figures:
            machines = [each.machine for each in self._all if each.subscription is subscription]
            return GmdReceiverStatistics(
                named.ended[0] + sum(each.resent for each in machines),
                named.ended[1] + sum(each.duplicates for each in machines),
                named.failing,
            )

    def of(self, session: ReceivingSession) -> SessionGates:
        """Returns what gives the named receivers of a session their gates."""
        return SessionGates(self, session)

    def enter(self, session: ReceivingSession, controller: RecoveringController, sink: Sink) -> Sink | None:
        """Returns what stands in the controller of a topic for a receiver; see `delivery.slow_path.Gates`."""
        subscription = next((each for each in self._named if each.sink is sink), None)
        if subscription is None:
            return sink
        named, topic = self._named[subscription], controller.origin.topic
        try:
            streams = named.streams(topic)
        except GmdError as error:
            subscription.warn(
                f"gmd area of {topic}", f"receiver {subscription.options.gmd_name!r} does not get {topic!r}: {error}"
            )
            return None
        reception = GmdReception(self, session, controller, subscription, streams, named.settings, named.instance)
        self._all.append(reception)
        subscription.gates.append(reception.gate)
        self._event_loop.hurry()
        return reception.gate.sink

    def leave(self, entry: Sink) -> None:
        """Closes a gate whose receiver does not get the topic any more."""
        for each in [each for each in self._all if each.gate.sink is entry]:
            self._close(each)

    def abandon(self) -> None:
        """Gives up everything in the child of a fork."""
        for each in [*self._all, *self._ended]:
            each.is_forked = True
        self._all.clear()
        self._ended.clear()
        self._named.clear()
        self._to_flush.clear()

    def _close(self, each: GmdReception) -> None:
        each.close()
        named = self._named.get(each.subscription)
        with self._figures:
            self._all.remove(each)
            if named is not None:
                named.ended = named.ended[0] + each.machine.resent, named.ended[1] + each.machine.duplicates
        if each.machine.withholds:
            self._ended.append(each)
            self._event_loop.hurry()
        if each.gate in each.subscription.gates:
            each.subscription.gates.remove(each.gate)

    def forget(self, session: ReceivingSession) -> None:
        """Closes the gates of a session that is left."""
        for each in [each for each in self._all if each.session is session]:
            self._close(each)

    # ------------------------------------------------------------------ what happens

    @property
    def any(self) -> bool:
        """Whether there is a named receiver that has joined a source."""
        return bool(self._all or self._ended)

    def flush_soon(self, reception: GmdReception) -> None:
        """Has acknowledgements sent soon; any thread may call this."""
        self._to_flush.append(reception)
        if self._event_loop.is_driver():
            self._event_loop.request_attention()
        else:
            self._event_loop.hurry()
            if not self._event_loop.sequential:
                self._event_loop.kick()

    @property
    def awaits_flush(self) -> bool:
        """Whether acknowledgements wait for `flush`."""
        return bool(self._to_flush)

    def flush(self, now_ns: int) -> None:
        """Sends the acknowledgements that wait."""
        waiting, self._to_flush = self._to_flush, []
        soon = FOREVER_NS
        for each in dict.fromkeys(waiting):
            each.due_ns = each.turn(now_ns)
            soon = min(soon, each.due_ns)
        if soon < now_ns + 100_000_000:
            self._event_loop.hurry()

    def take(self, session: ReceivingSession, message: bytes, now_ns: int) -> None:
        """Takes a message of guaranteed delivery from the source of a session."""
        found = gmd_messages.decode(message)
        if found is None or not isinstance(found, gmd_messages.GmdAnswer):
            self.malformed += 1
            return
        for each in self._all:
            if each.session is session and each.topic == found.topic and each.machine.instance == found.instance:
                each.receive(found, now_ns)
                return

    def turn(self, now_ns: int) -> int:
        """Goes on with all receivers; returns when to call again, in ns of the monotonic clock."""
        if self._to_flush:
            self.flush(now_ns)
        if now_ns >= self._check_ns:
            self._check_ns = now_ns + CHECK_NS
            for named in list(self._named.values()):
                named.check()
        soon = self._check_ns if self._named else FOREVER_NS
        for each in [*self._all, *self._ended]:
            if each.due_ns <= now_ns:
                each.due_ns = each.turn(now_ns)
            soon = min(soon, each.due_ns)
        if self._ended:
            self._ended = [each for each in self._ended if each.due_ns < FOREVER_NS]
        return soon

    # ------------------------------------------------------------------ calls of receptions

    @property
    def pump(self) -> Pump:
        """Delivers the messages of the context."""
        return self._event_loop.pump

    def driver_lock(self) -> AbstractContextManager[None]:
        """Makes the calling thread the one that drives the context, for a short change."""
        return self._event_loop.driver_lock()

    def writer(self, session: ReceivingSession) -> ResponseWriter | None:
        """Returns the short way to the source of a session; None without an open pipe."""
        return self._channels.response_writer(session, self._event_loop.pump)

    def channel(self, session: ReceivingSession) -> ControlChannel | None:
        """Returns the control channel to the source of a session; None while it cannot be opened."""
        return self._channels.of(session) if self._is_joined(session) else None

    def send(self, session: ReceivingSession, message: bytes) -> bool:
        """Sends a control message to the source of a session; returns False when that is not possible now."""
        return self._channels.send(session, message)

    def give_up(self, subscription: Subscription, message: Message) -> bool:
        """Publishes a message that a receiver gives up; returns False if it has no topic for such messages."""
        options = subscription.options
        topic = options.gmd_dead_letter_topic
        return bool(topic) and self.publish(topic, options.gmd_name, message)


class SessionGates:
    """The gates of one session (delivery.slow_path.Gates)."""

    def __init__(self, receptions: GmdReceptions, session: ReceivingSession) -> None:
        self._receptions, self._session = receptions, session

    def enter(self, controller: RecoveringController, sink: Sink) -> Sink | None:
        """Returns what stands in a controller for a receiver; see `delivery.slow_path.Gates`."""
        return self._receptions.enter(self._session, controller, sink)

    def leave(self, entry: Sink) -> None:
        """Closes a gate that stands in no controller any more."""
        self._receptions.leave(entry)
