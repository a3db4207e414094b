"""The recovery of one topic of a joined session: requests out, retransmissions in, and messages to the receivers."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from ipcbus.delivery.retransmitted_feed import RetransmittedFeed
from ipcbus.recovery.older_messages import PastMerger, first_number
from ipcbus.recovery.topic_recovery import TopicRecovery
from ipcbus.wire.control_messages import NUMBER_MAX, Info

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.delivery.demux import Demux
    from ipcbus.delivery.recovering_controller import RecoveringController
    from ipcbus.recovery.older_messages import OlderMessages
    from ipcbus.recovery.recovery_settings import RecoverySettings
    from ipcbus.wire.control_messages import Retransmission


_STEPS_A_TURN = 4
"""Most steps in which one call reads a recording, or delivers a piece of it."""


class TopicCatchUp:
    """Joins the delivery controller of a topic with its recovery.

    The receiving session owns it and calls, all on the driver:

    - `begin_late_join` after `DeliverySession.receive` and before the topic is read, or `begin_otr`, or both;
    - `info` and `retransmission` with what the control channel brings for the topic (`control_messages.decode`);
    - `channel_ready` and `channel_lost`;
    - `work` after each of these, in the turns of the event loop while `busy` or when the channel has room again, when
      `demux.attention` is set by a new gap, and at `due_ns`;
    - `end` when there is no way to the source any more. (The session's end calls `DeliverySession.end_topic` itself.)

    A receiver without room stops its topic's messages here, bounded: what does not fit is asked for again.
    """

    def __init__(
        self,
        demux: Demux,
        controller: RecoveringController,
        settings: RecoverySettings,
        *,
        asks_at_once: bool,
        number: int = 0,
        older: OlderMessages | None = None,
        retains: bool = True,
        waiting_bytes_max: int = 1 << 20,
    ) -> None:
        """Makes a recovery that waits for nothing yet.

        Args:
            demux: of the session.
            controller: of the topic.
            settings: options of its receivers.
            asks_at_once: whether a gap is asked for without delay (rings).
            number: tells the source's answer to this recovery from those to others of the same context.
            older: recorded messages, for those that the source does not keep any more.
            retains: whether the source keeps what it sends. A source that does not, answers as one that has published
                nothing; then only the recording has what came before the live messages.
            waiting_bytes_max: most bytes of retransmissions that wait for room in a receiver.
        """
        self.controller = controller
        self.recovery = TopicRecovery(
            controller.topic_number,
            controller,
            settings,
            asks_at_once=asks_at_once,
            number=number,
            give_up=self._go_on_without_source,
        )
        self._demux, self._number = demux, number
        self._feed = RetransmittedFeed(demux, controller)
        self._waiting: deque[tuple[int, int, bytes, bool]] = deque()
        self._waiting_bytes, self._waiting_bytes_max = 0, waiting_bytes_max
        self._range = (0, 0)
        self._delivers = False
        timeout_ns = settings.late_join.timeout_ns
        self._merger = PastMerger(older, timeout_ns) if older is not None else None
        self._past = self._merger  # None after the end
        self._history, self._retains = settings.history, retains
        self._info: Info | None = None  # waits for the search in the recording
        controller.on_missing = self.missing

    def begin_late_join(self, now_ns: int, *, has_sent: bool = True) -> None:
        """Gives the receivers what the source keeps; `has_sent` says whether it has sent anything, as far as known."""
        self.recovery.begin_late_join(now_ns, has_sent=has_sent)

    def begin_own_history(self, now_ns: int) -> None:
        """Asks for the history of a receiver that was made later; its controller waits already (`OwnHistory`)."""
        self.recovery.ask_for_history(now_ns)

    def begin_otr(self) -> None:
        """Asks the source for lost messages from now on."""
        self.controller.recovers = True

    def switched(self, *, asks_at_once: bool) -> None:
        """Takes note that the session has another transport; `asks_at_once` as at the beginning."""
        self.recovery.asks_at_once = asks_at_once

    def info(self, message: Info, now_ns: int) -> None:
        """Handles what the source says it keeps."""
        if self._past is None:
            self.recovery.info(message, now_ns)
        elif self.recovery.awaits(message):
            self._info = message
            self._take_past(now_ns)

    def retransmission(self, message: Retransmission, now_ns: int, *, epoch: bool = False) -> None:
        """Delivers messages that the source has sent again; `work` delivers those that find no room now.

        Args:
            message: the messages.
            now_ns: the time.
            epoch: whether their send times are ns since the epoch (over UDP) instead of clock ticks.
        """
        if not self.controller.is_promised:
            return  # an answer to another receiver: it is not known yet which of these messages this one wants
        # What is gone at the source, and was not asked for, may still come over the transport.
        last = message.last if message.entries else min(message.last, self.recovery.askable_last)
        if self._past is not None:
            message = self._without_gone(message, now_ns)
        fits = self._waiting_bytes + len(message.entries) <= self._waiting_bytes_max or not self._waiting
        if fits and message.first <= last:
            self._waiting.append((message.first, last, bytes(message.entries), epoch))
            self._waiting_bytes += len(message.entries)
            self._deliver(now_ns)

    def channel_ready(self, now_ns: int) -> None:
        """Asks on a new channel to the source."""
        self.recovery.channel_ready(now_ns)

    def channel_lost(self, now_ns: int) -> None:
        """Waits for another channel."""
        self.recovery.channel_lost(now_ns)

    def end(self, now_ns: int) -> None:
        """Gives up what was not recovered, and leaves later gaps to the transport."""
        self.controller.recovers = False
        self._past = None
        self._waiting.clear()
        self._waiting_bytes = 0
        self.controller.end_recovery(now_ns)

    def work(self, now_ns: int, send: Callable[[bytes], bool]) -> None:
        """Delivers retransmitted messages and sends requests.

        Args:
            now_ns: the time.
            send: sends a control message; returns False when the channel has no room, or when there is no channel.
        """
        self._deliver(now_ns)
        self._take_past(now_ns)
        if not self._feed.busy and not (self._past is not None and self._past.reading):
            self.recovery.work(now_ns, send)

    def source_ended(self, now_ns: int) -> None:
        """Takes note that the source sends nothing again any more; a recording may still have what is missing."""
        if self._past is not None:
            self._past.gone(NUMBER_MAX)
            self._take_past(now_ns)

    def _go_on_without_source(self, now_ns: int) -> None:
        """The source answers nothing: what a recording has is taken from there, and the rest is lost."""
        past, controller = self._past, self.controller
        floor = controller.live_floor
        if past is not None and controller.is_promised:
            last = max((last for _, last in controller.missing()), default=-1)
            past.gone(last + 1)
            self.recovery.asks_from = past.gone_below
        elif past is not None and floor is not None:
            self._info = self._info or Info(controller.topic_number, floor, 0, self._number)
        else:
            controller.end_recovery(now_ns)

    def _without_gone(self, message: Retransmission, now_ns: int) -> Retransmission:
        """Returns an answer of the source without the numbers that it does not keep any more."""
        begin = first_number(message.entries)
        begin = message.last + 1 if begin is None else min(max(begin, message.first), message.last)
        if begin > message.first and self._past is not None:
            self._past.gone(begin)
            self.recovery.retransmitted(message.first, begin - 1, now_ns)
        return replace(message, first=begin)

    def _take_past(self, now_ns: int) -> None:
        """Delivers the next missing messages that a recording has."""
        past = self._past
        if past is None or (self._info is not None and not self._promise(self._info, past, now_ns)):
            return
        for _ in range(_STEPS_A_TURN):
            if self._feed.busy or self._waiting or not self.controller.is_promised:
                return
            missing = next(self.controller.missing(), None)
            piece = past.take(*missing, now_ns) if missing else past.rest()
            self.recovery.asks_from, self.recovery.asks_below = past.gone_below, past.recorded_from
            if piece is None:
                if past.reading:
                    continue
                return
            self._waiting.append((*piece, True))
            self._waiting_bytes += len(piece.entries)
            self._deliver(now_ns)

    def _promise(self, info: Info, past: PastMerger, now_ns: int) -> bool:
        """Begins with what the recording and the source have; returns whether the search in the recording is over."""
        floor = self.controller.live_floor
        # What a source that retains has not published may still be below the first live number.
        low = info.low if self._retains or floor is None else floor
        begin = past.begin(low, info.next or NUMBER_MAX, floor or info.next, self._history)
        if begin is not None:
            self._info = None
            self.recovery.info(replace(info, low=begin), now_ns)
        return begin is not None

    def _deliver(self, now_ns: int) -> None:
        if self._delivers:
            return  # called back from a message, which lies in the retransmission at hand
        self._delivers = True
        try:
            self._deliver_waiting(now_ns)
        finally:
            self._delivers = False

    def _deliver_waiting(self, now_ns: int) -> None:
        while self._feed.busy or self._waiting:
            if not self._feed.busy:
                first, last, entries, epoch = self._waiting.popleft()
                self._waiting_bytes -= len(entries)
                self._range = first, last
                self._feed.begin(first, last, entries, self.controller.recovery_flag, epoch=epoch)
            if not self._feed.run(now_ns):
                self.recovery.hold(now_ns)
                break
            self.recovery.retransmitted(self._range[0], self._feed.reached - 1, now_ns)

    @property
    def messages(self) -> int:
        """The number of messages, and fragments of messages, that it took."""
        return self._feed.messages

    @property
    def past_counts(self) -> tuple[int, int]:
        """The number of messages that came from a recording, and how often rows of it could not be read."""
        return (self._merger.messages, self._merger.faults) if self._merger is not None else (0, 0)

    @property
    def busy(self) -> bool:
        """Whether retransmitted messages wait for room in a receiver, or come from a recording."""
        return self._feed.busy or bool(self._waiting) or (self._past is not None and self._past.waits)

    @property
    def reads_past(self) -> bool:
        """Whether it takes messages from a recording, or waits for one."""
        return self._past is not None and self._past.waits

    @property
    def hurries(self) -> bool:
        """Whether `work` has to be called again at once: a recording has, or may have, what the receivers wait for."""
        return self._past is not None and self._past.reading and self._info is None and not self._feed.busy

    @property
    def due_ns(self) -> int | None:
        """When `work` has to be called at the latest; None when there is nothing to wait for."""
        return None if self._feed.busy else self.recovery.due_ns

    def missing(self, first: int, last: int, now_ns: int) -> None:
        """Takes note of a gap (the controller's `on_missing`)."""
        self.recovery.missing(first, last, now_ns)
        self._demux.attention = True
