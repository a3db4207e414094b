"""The receiving end of a session on any transport: its topics, its beginning and end, and its losses as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.delivery.demux import Demux
from ipcbus.delivery.message_types import MessageType, loss_events
from ipcbus.delivery.own_history import OwnHistory
from ipcbus.delivery.received_message import Origin, event
from ipcbus.delivery.recovering_controller import RecoveringController

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ipcbus.delivery.delivery_rules import DeliveryRules
    from ipcbus.delivery.demux import Controller
    from ipcbus.delivery.own_history import HistoryLeftOff
    from ipcbus.delivery.reassembly_budget import ReassemblyBudget
    from ipcbus.delivery.recovering_controller import LeftOff
    from ipcbus.delivery.sink import Sink
    from ipcbus.delivery.slow_path import Gates, Responder
    from ringbuf.ring import RingReader


@dataclass(frozen=True, slots=True)
class TopicLeftOff:
    """Where the receivers of a topic stopped in an earlier stay in the session."""

    controller: LeftOff
    sinks: frozenset[Sink]
    """The receivers of the controller."""
    histories: dict[Sink, HistoryLeftOff]
    """The receivers that waited for their own history."""


class DeliverySession:
    """A session as its receivers see it (delivery.slow_path.Losses). No clock: the time is passed in."""

    def __init__(
        self,
        source_string: str,
        topics_max: int,
        *,
        ring: RingReader | None = None,
        budget: ReassemblyBudget,
        failed: Callable[[Sink, BaseException], None],
        delivered: Callable[[int], None],
        begun: bool = False,
    ) -> None:
        """Makes a session without topics.

        Args:
            source_string: its name.
            topics_max: lines of topics, a power of two.
            ring: the ring with its records; None when datagrams are fed to `demux`.
            budget: the limits on buffered messages, shared with other sessions.
            failed: gets the exceptions of callbacks.
            delivered: gets the number of events that were given to receivers.
            begun: whether the source had sent something before the session was joined.
        """
        self.source_string = source_string
        self.demux = Demux(ring, topics_max, self)
        self._failed = failed
        self.responder: Responder | None = None
        """What takes the responses to requests, for the messages of topics that are received from now on."""
        self.gates: Gates | None = None
        """Gives named receivers gates."""
        self.on_view_kept: Callable[[], None] = lambda: None
        self._budget, self._delivered = budget, delivered
        self._begun = begun
        self._histories: dict[int, list[OwnHistory]] = {}
        self._had_bos: dict[int, set[Sink]] = {}
        self._held: dict[int, Callable[[], object]] = {}
        """The topics that are held back, and what is called before each begins."""
        self._beginning: set[int] = set()
        """The topics whose receivers are getting BOS."""
        self._targets: dict[Sink, Sink] = {}  # the receivers of gates
        self._raised: BaseException | None = None

    def failed(self, sink: Sink, error: BaseException) -> None:
        """Reports an exception of a callback; after one that is not an Exception this session pauses."""
        if not isinstance(error, Exception):
            self.demux.stop = True
        self._failed(sink, error)

    def count_delivered(self, messages: int) -> None:
        """Counts messages that receivers got outside of the demux's turns."""
        self._delivered(messages)

    # ------------------------------------------------------------------ topics

    def topics(self) -> list[RecoveringController]:
        """Returns the controllers of all topics that are received."""
        return self.demux.controller_list()  # type: ignore[return-value]

    def topic(self, number: int) -> RecoveringController | None:
        """Returns the controller of a topic."""
        return self.demux.controller(number)  # type: ignore[return-value]

    def receive(self, number: int, topic: str, sinks: Sequence[Sink], rules: DeliveryRules, floor: int | None) -> None:
        """Gives a topic's messages to these sinks too from now on; call `begin_topic` next.

        Args:
            number: the session's number of the topic.
            topic: its name.
            sinks: they get each message in this order; those that get it already stay where they are.
            rules: how messages are delivered; not used when the topic is received already.
            floor: see `RecoveringController`.
        """
        controller = self.topic(number)
        if controller is None:
            origin = Origin(topic, self.source_string, number)
            origin.responder = self.responder
            controller = RecoveringController(
                origin,
                number,
                rules,
                self,
                tally=self.demux.tally,
                budget=self._budget,
                floor=floor,
            )
            self.demux.set_controller(controller)
        had = self.sinks(number)
        new = [self._enter(controller, sink) for sink in sinks if sink not in had]
        controller.set_sinks([*controller.sinks, *(sink for sink in new if sink is not None)])

    def _enter(self, controller: RecoveringController, sink: Sink) -> Sink | None:
        """Returns what stands in a controller for a sink; None for a receiver that cannot have its gate."""
        if self.gates is None:
            return sink
        entry = self.gates.enter(controller, sink)
        if entry is not None and entry is not sink:
            self._targets[entry] = sink
        return entry

    def _target(self, entry: Sink) -> Sink:
        return self._targets.get(entry, entry)

    def _leave(self, entries: Iterable[Sink]) -> None:
        for entry in entries:
            if self._targets.pop(entry, None) is not None and self.gates is not None:
                self.gates.leave(entry)

    def receive_later(
        self,
        number: int,
        sink: Sink,
        now_ns: int,
        *,
        alike: bool = True,
        wants_all: bool = True,
        live_from: int | None = None,
    ) -> OwnHistory | None:
        """Gives a topic that is received already to another sink, with what was sent before; call `begin_topic` next.

        Args:
            number: the session's number of the topic.
            sink: gets the messages.
            now_ns: the time.
            alike: whether it wants the late join that the others wait for, if they wait for one.
            wants_all: whether it wants all messages that the others still wait for.
            live_from: the number of its first live message; None for the next message that the source sends.

        Returns:
            The sink's own history, which a recovery has to bring; None when the sink simply joined the others, because
            they have got nothing yet, and get all that this one gets.
        """
        main = self.topic(number)
        entry = None if main is None else self._enter(main, sink)
        if main is None or entry is None:
            return None
        if main.untouched and (alike if main.joins_late else main.next_live == 0):
            main.set_sinks([*main.sinks, entry])
            return None
        own = self._own_controller(main)
        live_from = main.first_live(brings_all=wants_all) if live_from is None else live_from
        own.begin_history(live_from, now_ns)
        return self._add_history(main, OwnHistory(main, own, entry, self, live_from))

    def go_on_with_history(self, number: int, sink: Sink, left_off: HistoryLeftOff, now_ns: int) -> OwnHistory | None:
        """Gives a topic to a sink whose own history was interrupted; otherwise as `receive_later`."""
        main = self.topic(number)
        entry = None if main is None else self._enter(main, sink)
        if main is None or entry is None:
            return None
        own = self._own_controller(main)
        own.go_on_with_history(left_off.controller, left_off.begins_at, now_ns)
        return self._add_history(main, OwnHistory(main, own, entry, self, left_off.live_from))

    def _own_controller(self, main: RecoveringController) -> RecoveringController:
        return RecoveringController(
            main.origin, main.topic_number, main.rules, self, tally=self.demux.tally, budget=self._budget, floor=None
        )

    def _add_history(self, main: RecoveringController, history: OwnHistory) -> OwnHistory | None:
        history.controller.set_sinks([history.sink])
        if self.topic(main.topic_number) is not main:  # a callback has closed the receivers of the topic meanwhile
            history.forget()
            self._leave([history.sink])
            return None
        self._histories.setdefault(main.topic_number, []).append(history)
        return history

    def leave_off(self, controller: RecoveringController) -> TopicLeftOff | None:
        """Stops a topic without losses; `end_topic` follows. Returns where its next stay goes on, None if not known."""
        histories = self.histories(controller.topic_number)
        taps = [each.tap for each in histories]
        sinks = frozenset(self._target(entry) for entry in controller.sinks if entry not in taps)
        left = {self._target(each.sink): each.leave_off() for each in histories}
        left_off = controller.leave_off()
        if left_off is None:
            return None
        return TopicLeftOff(left_off, sinks, {sink: each for sink, each in left.items() if each is not None})

    def sinks(self, number: int) -> list[Sink]:
        """Returns the sinks that receive a topic, also those that wait for their own history."""
        main, waiting = self.topic(number), self.histories(number)
        taps = [each.tap for each in waiting]
        wait = [each.sink for each in waiting]
        found = wait if main is None else [sink for sink in main.sinks if sink not in taps + wait] + wait
        return [self._target(entry) for entry in found]

    def keep_sinks(self, number: int, sinks: Sequence[Sink]) -> None:
        """Stops giving a topic to sinks other than these."""
        main = self.topic(number)
        for each in self.histories(number):
            if self._target(each.sink) not in sinks:
                each.forget()
                self._leave([each.sink])
        if main is not None:
            taps = [each.tap for each in self.histories(number)]
            entries = list(main.sinks)
            main.set_sinks([entry for entry in entries if self._target(entry) in sinks or entry in taps])
            self._leave(entry for entry in entries if entry not in main.sinks)

    def histories(self, number: int) -> list[OwnHistory]:
        """Returns the receivers of a topic that wait for their own history."""
        waiting = [each for each in self._histories.pop(number, []) if not each.over]
        if waiting:
            self._histories[number] = waiting
        return waiting

    def hold(self, controller: RecoveringController, before: Callable[[], object]) -> None:
        """Holds a topic back: it begins when it is released, or with its first message, loss or end.

        Args:
            controller: the topic's controller.
            before: called before it begins.
        """
        controller.held = True
        self._held[controller.topic_number] = before

    def release(self, number: int) -> None:
        """Lets a topic begin that is held back."""
        before, controller = self._held.get(number), self.topic(number)
        if before is not None and controller is not None and controller.held:
            controller.held = False
            try:
                before()
            except BaseException as error:  # of a callback
                self._raised = error
            # Not before: a callback may have made another receiver of the topic.
            self._held.pop(number, None)
            self._send_bos_to_all(controller)
            self._raise()

    def is_beginning(self, number: int) -> bool:
        """Returns whether a topic is just beginning: not all of its receivers have got BOS."""
        controller = self.topic(number)
        is_released = number in self._held and controller is not None and not controller.held
        return is_released or number in self._beginning

    def begin_topic(self, number: int) -> None:
        """Gives each sink of the topic the session's BOS once, if the session has begun; not while it is held back."""
        controller = self.topic(number)
        if controller is not None:
            self._send_bos_to_all(controller)
            for history in self.histories(number):
                try:
                    history.controller.check(-1)  # what it misses may be more than the context may buffer
                except BaseException as error:  # of a callback
                    self._raised = error
            self._raise()

    def remove_topic(self, number: int) -> None:
        """Stops receiving a topic."""
        self._had_bos.pop(number, None)
        self._held.pop(number, None)
        for history in self.histories(number):
            history.forget()
            self._leave([history.sink])
        removed = self.demux.remove_controller(number)
        if isinstance(removed, RecoveringController):
            removed.forget()
            self._leave(removed.sinks)
            self.demux.show_tally()

    def end_topic(self, controller: RecoveringController, next_sequence: int) -> None:
        """Ends a topic: reports its last losses, then EOS.

        Args:
            controller: the topic's controller.
            next_sequence: the number that the topic's next message would have had; 0 when that is not known.
        """
        if controller.ended and controller.misses_below(next_sequence):
            controller.ended = False  # it was interrupted, and no later stay has brought the rest
        while True:
            try:
                self.release(controller.topic_number)
                controller.finish(next_sequence)
                break
            except BaseException as error:  # of a callback: the rest is still reported
                self._raised = error
        for history in self.histories(controller.topic_number):
            history.finish(next_sequence)
        following = max(next_sequence, controller.stopped_before or 0)
        # In a stay that brought nothing, nothing begins or ends.
        if following and not controller.ended and following != controller.resumed_at:
            # All messages were sent before the receivers joined: the session began before, and it ends for them too.
            self._begun = True
            self._send_bos(controller)
        self.demux.show_tally()
        controller.ended = True
        had_bos = self._had_bos.pop(controller.topic_number, set())
        for sink in list(controller.sinks):
            if sink in had_bos:
                self._event(sink, controller, MessageType.EOS, -1, -1, following)
        self._raise()

    def check(self, due: Iterable[RecoveringController], now_ns: int) -> None:
        """Gives up the gaps that are due, in these topics, whose loss check is due."""
        self.demux.now_ns = now_ns
        for controller in due:
            if self.topic(controller.topic_number) is controller:
                controller.next_check_ns = controller.rules.next_loss_check(now_ns)
                controller.check(now_ns)
        self.demux.show_tally()

    def end_checks(self) -> None:
        """Takes note that the loss check is not called any more: messages alone give up gaps."""
        for controller in self.topics():
            controller.next_check_ns = 0

    def settle(self, found: Iterable[tuple[RecoveringController, int]], now_ns: int) -> None:
        """Gives up what is missing, in each of these topics, below a number: no datagram brings it any more."""
        self.demux.now_ns = now_ns
        for controller, below in found:
            if self.topic(controller.topic_number) is controller:
                controller.settle(below, now_ns)
        self.demux.show_tally()

    def due(self, now_ns: int) -> list[RecoveringController]:
        """Returns the topics whose loss check is due, or may come early."""
        return [each for each in self.topics() if each.rules.may_check(each.next_check_ns, now_ns)]

    # ------------------------------------------------------------------ calls of the demux and the controllers

    def begin(self) -> None:
        """Gives all receivers BOS; the first datagram has arrived."""
        self._begun = True
        for controller in self.topics():
            self._send_bos_to_all(controller)
        self._raise()

    def view_kept(self) -> None:
        """Counts an array made from a message's view that outlives its callback; reports the first one."""
        self.demux.tally.views_kept += 1
        self.demux.show_tally()
        if self.demux.tally.views_kept == 1:
            self.on_view_kept()

    def lost(self, controller: Controller, first: int, last: int, burst: bool) -> None:
        """Reports lost messages: one event for each message, or one event for a burst."""
        self.demux.count_lost(last - first + 1)
        # A receiver that loses the very first messages still gets BOS.
        self._begun = True
        try:
            self.release(controller.topic_number)
        except BaseException as error:  # of a callback: the loss is still reported
            self._raised = error
        self._send_bos_to_all(controller)  # type: ignore[arg-type]  # this session made it
        for kind, begin, end in loss_events(first, last, burst=burst):
            self._report(controller, kind, begin, end)
        self._raise()

    def changed(self) -> None:
        """Shows the counters of a controller that changed although no datagram arrived for it."""
        self.demux.show_tally()

    def _send_bos_to_all(self, controller: RecoveringController) -> None:
        for each in (controller, *(history.controller for history in self.histories(controller.topic_number))):
            self._send_bos(each)

    def _send_bos(self, controller: RecoveringController) -> None:
        number = controller.topic_number
        if not self._begun or controller.ended or number in self._held:
            return
        had_bos = self._had_bos.setdefault(number, set())
        had_bos -= {sink for sink in had_bos if sink.closed}
        is_outer = number not in self._beginning  # a callback of a beginning may lead here
        self._beginning.add(number)
        try:
            for sink in list(controller.sinks):
                if sink not in had_bos and not sink.closed:
                    had_bos.add(sink)
                    self._event(sink, controller, MessageType.BOS, -1, -1)
        finally:
            if is_outer:
                self._beginning.discard(number)

    def _report(self, controller: Controller, kind: MessageType, first: int, last: int) -> None:
        for sink in list(controller.sinks):
            self._event(sink, controller, kind, first, last)

    def _event(
        self, sink: Sink, controller: Controller, kind: MessageType, first: int, last: int, following: int = 0
    ) -> None:
        self._delivered(1)
        try:
            sink.event(event(controller.origin, kind, first, last, following), self)
        except BaseException as error:  # not an Exception; those were counted and reported
            self._raised = error

    def _raise(self) -> None:
        """Raises what a callback raised, such as KeyboardInterrupt, after all receivers got all events."""
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
