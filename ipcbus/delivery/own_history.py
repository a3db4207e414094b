"""The history of a receiver that is made when others of its topic, in the same context, receive already.

The receiver has a controller of its own, which a recovery fills (`transport.topic_catch_up`) and which never sees a
live message: it brings the messages below the receiver's first live one, and the topic's controller the others. What
the topic's controller still gives to the others of the messages below is not for this receiver (`tap`). A message in
pieces on both sides, and a loss that touches the history, are left to the receiver's own controller.

Not in order, the receiver gets live messages at once. In order, its own controller runs after the topic's. When it is
near, what the others get is kept for the receiver, within bounds; when the history is complete, and the others have
come to the messages that are live for the receiver, it gets what was kept, and joins them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.delivery.delivery_rules import IN_ORDER
from ipcbus.delivery.message_types import LOSSES, MessageFlag, MessageType, loss_events
from ipcbus.delivery.received_message import event
from ipcbus.delivery.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.delivery.received_message import Message
    from ipcbus.delivery.recovering_controller import LeftOff, RecoveringController
    from ipcbus.delivery.slow_path import Failures

_RECOVERED = MessageFlag.LATE_JOIN | MessageFlag.OTR


@dataclass(frozen=True, slots=True)
class HistoryLeftOff:
    """Where an own history stopped, for that of the next stay in the session."""

    controller: LeftOff
    begins_at: int
    """The first number of what was promised."""
    live_from: int
    """The number of the receiver's first live message."""


class OwnHistory:
    """One later receiver, until it has its history.

    `DeliverySession.receive_later` makes it. The receiving session makes a `TopicCatchUp` for `controller` and
    calls its `begin_own_history`; it gives the infos and retransmissions of the topic to both catch-ups, and calls
    `advance` after each of them and in the turns of the event loop, until `over`. The sinks of such a topic are
    read and set by `DeliverySession.sinks` and `keep_sinks`, not in the controller.
    """

    def __init__(
        self,
        main: RecoveringController,
        controller: RecoveringController,
        sink: Sink,
        failures: Failures,
        live_from: int | None,
    ) -> None:
        """Begins the history.

        Args:
            main: the controller of the topic.
            controller: one for the sink alone that waits for the messages below `live_from`.
            sink: the receiver's.
            failures: takes the exceptions of its callback.
            live_from: the number of the receiver's first live message; None while it is not known.
        """
        self.controller, self.sink = controller, sink
        self._main, self._failures = main, failures
        self._in_order = main.rules.ordered == IN_ORDER
        self._kept: list[Message] = []
        self._tapping = False
        self.over = False
        self._live_from = live_from
        if self._in_order:
            self.tap = Sink(self._keep, 1)
        else:
            self.tap = Sink(self._pass_on, 1, self if sink.pulls else None)
            self._begin_tapping()

    def advance(self, now_ns: int) -> bool:
        """Goes on as far as possible; returns whether the receiver has its history and is one of the others now."""
        own, main = self.controller, self._main
        if self.over or self.sink.closed:
            return self.over
        self._learn(main.next_live)
        live_from = self._live_from
        if live_from is None or not own.is_promised:
            return False
        if not self._in_order:
            if own.is_complete and main.is_settled_below(live_from):
                self._join()
            return self.over
        if self._tapping and 0 < main.rules.waiting_max < len(self._kept):
            self._stop_tapping()
        if not self._tapping:
            self._follow(now_ns)
        ahead = max(0, live_from - main.boundary)  # what the others still get, and this receiver does not want
        if own.is_complete and not ahead:
            self._join()
        elif not self._tapping:
            if ahead + sum(last - first + 1 for first, last in own.missing()) <= main.rules.proximity:
                self._begin_tapping()
        elif not (ahead or own.recovering):
            self._stop_tapping()  # the message that was being sent when the receiver came is asked for
        return self.over

    def finish(self, next_sequence: int) -> None:
        """The topic ends before this number: reports what is missing, gives what was kept, and the end."""
        if self.over:
            return
        self._learn(self._main.next_live)
        if self._live_from is not None:
            next_sequence = 0 if self._tapping else self._main.boundary
        self.controller.finish(next_sequence)  # without a live message, all up to the end is history
        self._join()

    def put(self, tap: Sink, message: Message) -> None:
        """Takes a message or event that the others get, for a receiver that keeps messages (`EventStore`)."""
        del tap
        self._pass_on(message)

    def is_full(self) -> bool:
        """Returns whether the receiver has no room (`EventStore`)."""
        return not self.sink.closed and self.sink.is_full_now()

    def leave_off(self) -> HistoryLeftOff | None:
        """Stops; the receiver gets the end with the others. Returns where its next stay goes on, None if not known."""
        begins_at, left_off = self.controller.begins_at, self.controller.leave_off()
        self._kept.clear()  # the next stay asks for it
        self._join()
        if left_off is None or self._live_from is None:
            return None
        return HistoryLeftOff(left_off, begins_at, self._live_from)

    def forget(self) -> None:
        """Releases what it holds, as the receiver is closed."""
        self.over = True
        self.controller.forget()
        self._stop_tapping()

    def _follow(self, now_ns: int) -> None:
        """Notes what the others have got by now."""
        boundary = -1
        # What this receiver misses may be more than the context may buffer; then the others may give something up.
        while boundary != self._main.boundary:
            boundary = self._main.boundary
            self.controller.note_next_sequence(boundary, now_ns)

    def _learn(self, number: int | None) -> None:
        """Takes note of the first live number, if it was not known."""
        own = self.controller
        if self._live_from is not None or number is None:
            return
        if own.is_promised:
            own.note_next_sequence(number, 0)
        else:
            own.set_floor(number)
        self._live_from = max(number, own.stopped_before or 0)

    def _live_part(self, message: Message) -> Iterator[Message]:
        """Yields what is for this receiver too of a message or event that the others get."""
        own, first, last = self.controller, message.first_sequence_number, message.sequence_number
        if message.type is MessageType.BOS:
            return
        is_loss = message.type in LOSSES
        if self._live_from is None:
            self._learn(self._main.next_live if is_loss or message.flags & _RECOVERED else first)
        live_from = self._live_from or 0
        if last < live_from:
            return
        if first > live_from or (first == live_from and not (is_loss and own.recovering)):
            yield message
        elif not own.is_promised or own.begins_at < live_from:
            self._live_from = last + 1
            own.note_next_sequence(last + 1, 0)
        elif is_loss:
            burst = message.type is MessageType.UNRECOVERABLE_LOSS_BURST
            for kind, begin, end in loss_events(live_from, last, burst=burst):
                yield event(own.origin, kind, begin, end)

    def _pass_on(self, message: Message) -> None:
        for each in self._live_part(message):
            self._give(each)

    def _keep(self, message: Message) -> None:
        self._kept += self._live_part(message)

    def _give(self, message: Message) -> None:
        if message.type in (MessageType.DATA, MessageType.REQUEST):
            self.sink.take(message, self._failures)
        else:
            self.sink.event(message, self._failures)

    def _begin_tapping(self) -> None:
        self._tapping = True
        self._main.set_sinks([*self._main.sinks, self.tap])

    def _stop_tapping(self) -> None:
        self._tapping = False
        self._main.set_sinks([each for each in self._main.sinks if each is not self.tap])
        self._kept.clear()

    def _join(self) -> None:
        kept = list(self._kept)
        self._stop_tapping()
        self._main.set_sinks([*self._main.sinks, self.sink])
        self.over = True
        for message in kept:
            self._give(message)
