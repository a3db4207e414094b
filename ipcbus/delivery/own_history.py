"""The history of a receiver that is made when others of its topic, in the same context, receive already.

The receiver has a controller of its own, which a recovery fills (`transport.topic_catch_up`) and which never sees a
live message. Not in order, the receiver gets live messages from the topic's controller at once. In order, its own
controller runs after the topic's. When it is near, what the others get is kept for the receiver, within bounds;
when the history is complete, the receiver gets what was kept, and joins the others. A receiver that wants less than
the others, whose late join runs, joins them when they have come to the messages that are live for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.delivery.delivery_rules import IN_ORDER
from ipcbus.delivery.message_types import LOSSES, MessageType
from ipcbus.delivery.sink import Sink

if TYPE_CHECKING:
    from ipcbus.delivery.received_message import Message
    from ipcbus.delivery.recovering_controller import RecoveringController
    from ipcbus.delivery.slow_path import Failures


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
        now_ns: int,
        *,
        limited: bool = False,
    ) -> None:
        """Begins the history.

        Args:
            main: the controller of the topic.
            controller: a new one with the same rules, for the sink alone.
            sink: the receiver's.
            failures: takes the exceptions of its callback.
            now_ns: the time.
            limited: see `RecoveringController.begin_history`.
        """
        self.controller, self.sink = controller, sink
        self._main, self._failures = main, failures
        self._in_order = main.rules.ordered == IN_ORDER
        self.tap = Sink(self._keep, 1)
        self._kept: list[Message] = []
        self._tapping = False
        self.over = False
        controller.begin_history(main, now_ns, limited=limited)
        self._live_from = controller.live_floor or 0
        if not self._in_order:
            main.set_sinks([*main.sinks, sink])

    def advance(self, now_ns: int) -> bool:
        """Goes on as far as possible; returns whether the receiver has its history and is one of the others now."""
        own, main = self.controller, self._main
        if self.over or self.sink.closed or not own.is_promised:
            return self.over
        if not self._in_order:
            self.over = own.settled
            return self.over
        if self._tapping and 0 < main.rules.waiting_max < len(self._kept):
            self._stop_tapping()
        if not self._tapping:
            self._follow(now_ns)
        ahead = max(0, self._live_from - main.boundary)  # what the others still get, and this receiver does not want
        if own.settled and not ahead:
            self._join()
        elif not self._tapping:
            if ahead + sum(last - first + 1 for first, last in own.missing()) <= main.rules.proximity:
                main.set_sinks([*main.sinks, self.tap])
                self._tapping = True
        elif not (ahead or own.recovering):
            self._stop_tapping()  # the message that was being sent when the receiver came is asked for
        return self.over

    def finish(self) -> None:
        """The topic ends: reports what is missing, and gives the receiver what was kept, and the end."""
        if self.over:
            return
        if not self._in_order:
            self.controller.finish(0)
        else:
            self.controller.finish(0 if self._tapping else self._main.boundary)
            self._join()
        self.over = True

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

    def _keep(self, message: Message) -> None:
        first, last = message.first_sequence_number, message.sequence_number
        if message.type is MessageType.BOS or last < self._live_from:
            return
        if message.type in LOSSES and first < self._live_from:
            self.controller.note_next_sequence(last + 1, 0)  # which reports its part of the loss itself
        else:
            self._kept.append(message)

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
            if message.type in (MessageType.DATA, MessageType.REQUEST):
                self.sink.take(message, self._failures)
            else:
                self.sink.event(message, self._failures)
