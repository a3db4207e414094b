"""The delivery controller: order, reassembly and losses of one topic of one session.

`Controller.take_slowly` gets everything but messages in order. There are three modes (`ordered_delivery`):

    1   in the order of numbers; messages behind a gap wait in the order map; fragments are reassembled
    -1  in the order of arrival; fragments are reassembled
    0   in the order of arrival; fragments are delivered as they are

A missing number is given up when the transport has had `recovery_ns` to bring it (at once on LBT-IPC and LBT-SMX, which
never send a message again), when the transport knows that it does not come (`settle`), or when too many messages wait
behind it. So each number is either in exactly one delivered
message or reported lost exactly once; if it arrives after that, it is a duplicate.

A gap that a recovery fills (`delivery.recovering_controller`) is not given up for its age.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.delivery.delivery_rules import IN_ORDER, RAW
from ipcbus.delivery.demux import DROPPED, IN_PLACE, Controller, Tally
from ipcbus.delivery.gaps import NEVER, Gaps
from ipcbus.delivery.message_types import FragmentInfo, MessageFlag
from ipcbus.delivery.reassembly import Fragment, Partial, Parts, parts_of, read_fragment
from ipcbus.delivery.received_message import Origin, whole_message
from ipcbus.wire.wire_layout import (
    FLAG_END_BATCH,
    FLAG_FRAGMENT,
    FLAG_GUARANTEED,
    FLAG_PROPERTIES,
    FLAG_REQUEST,
    FLAG_START_BATCH,
    FLAG_TSNI,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.delivery.delivery_rules import DeliveryRules
    from ipcbus.delivery.reassembly_budget import ReassemblyBudget
    from ipcbus.delivery.slow_path import Losses

    _Times = tuple[int, int]  # when a message was sent and when its datagram was published; 0 where not known

_RECOVERED_FLAGS = MessageFlag.LATE_JOIN | MessageFlag.OTR | MessageFlag.GMD_RESEND
_FRONTS = FLAG_PROPERTIES | FLAG_REQUEST | FLAG_GUARANTEED
_SHOWN_FLAGS = FLAG_START_BATCH | FLAG_END_BATCH | _FRONTS | _RECOVERED_FLAGS
_NOT_PLAIN = FLAG_FRAGMENT | _FRONTS
"""Flags of items that have to be put together or split before they are delivered."""
_UNSEEN = 64
"""Most live messages that join those that wait before the limits are looked at."""


class DeliveryController(Controller):
    """Delivers one topic of one session; the receivers of the topic share it."""

    _budget: ReassemblyBudget

    def __init__(
        self,
        origin: Origin,
        topic_number: int,
        rules: DeliveryRules,
        losses: Losses,
        *,
        tally: Tally | None = None,
        budget: ReassemblyBudget,
        floor: int | None,
    ) -> None:
        """Makes a controller that has not seen a message yet.

        Args:
            origin: topic and source string.
            topic_number: the session's number of the topic.
            rules: how it delivers.
            losses: gets losses and the exceptions of callbacks.
            tally: its counters.
            budget: the limits on buffered messages, shared with other controllers.
            floor: messages with this number and above were sent after the receivers had joined, so a message that does
                not arrive is lost. None when that is not known: then the first message that arrives is the beginning.
        """
        super().__init__(origin, topic_number)
        self.rules = rules
        self.reassembles = rules.ordered != RAW
        self.floor = floor
        self.resumed_at: int | None = None
        self.started = self.ended = self.held = False
        self.recovers = self.joins_late = False
        self.relieved = self.shown_below = 0
        """Datagrams have shown each missing number below this; the source may say beside them that there are more."""
        self.only_history = False
        self.precedes: Callable[[int], bool] = lambda sequence: False
        """Whether a message was sent before the receivers joined, where what follows may have been left out."""
        self.on_missing: Callable[[int, int, int], None] = lambda first, last, now_ns: None
        self.next_check_ns = 0
        self._losses, self._tally, self._budget = losses, tally or Tally(), budget
        self._gaps = Gaps()
        self._partials: dict[int, Partial] = {}
        self._entries = 0
        self._forgotten = False
        self._promised_from: int | None = 0
        """Where history begins; None while the source has not said how much it keeps."""
        self._live_floor: int | None = None
        self._skipped_from = 0  # while it skips: the first number that is in no gap yet
        self._raised: BaseException | None = None

    # ------------------------------------------------------------------ calls

    def take_slowly(self, sequence: int, flags: int, payload: memoryview, send_ticks: int, now_ns: int) -> int:
        """Takes a message that is not complete or not in order; see `Controller.take_slowly`."""
        if self.held:
            self._release()
        before, times = self._delivered, (send_ticks, self.published_ticks)
        self._sync()
        try:
            if flags & FLAG_TSNI:
                self._note_next_sequence(sequence, now_ns)
                self.shown_below = max(self.shown_below, min(sequence, self.expected))
            elif not self.started and self._is_too_old(sequence, flags, payload):
                return DROPPED
            elif not self.started or sequence >= self.expected:
                self._note_highest(sequence, now_ns)
                alone = not (self._order_map or flags & _NOT_PLAIN)
                if self._delivered == before and alone and self._is_next(sequence):
                    self._end_partials_at(sequence)
                    if self._raised is None:
                        return IN_PLACE
                    self._take(sequence, flags, payload, times)
                else:
                    self._take_or_buffer(sequence, flags, payload, times)
            elif self._gaps.fill(sequence):
                self._take_or_buffer(sequence, flags, payload, times)
            else:
                self._tally.duplicates += 1
                return DROPPED
            self._deliver_and_give_up(self._age_of_gaps(now_ns))
        finally:
            self._finish_call()
        return self._delivered - before

    def _release(self) -> None:
        """Lets the topic begin; the message at hand comes behind that, also after a callback that raised."""
        try:
            self._losses.release(self.topic_number)
        except BaseException as error:
            self._raised = error

    def note_next_sequence(self, next_sequence: int, now_ns: int) -> None:
        """Handles topic sequence number info: the next message will have this number."""
        self._sync()
        try:
            self._note_next_sequence(next_sequence, now_ns)
            self._deliver_and_give_up(now_ns)
        finally:
            self._finish_call()

    def check(self, now_ns: int) -> None:
        """Gives up the gaps that are due, though nothing arrives."""
        if self.awaits_earlier or self.skips_live:
            self.note_next_sequence(0, now_ns)

    def settle(self, below: int, now_ns: int) -> None:
        """Gives up what is missing below a number: no datagram brings it any more; a recovery still may."""
        self._gaps.settle(below)
        self.check(now_ns)

    def put_off(self, due_ns: int) -> None:
        """Gives up nothing for its age before a time, as missing datagrams are still on their way."""
        self._gaps.put_off(due_ns)

    def gives_up(self, now_ns: int) -> bool:
        """Returns whether a gap is due."""
        return bool(self._gaps) and self._gaps.due_ns <= now_ns

    def misses_below(self, next_sequence: int) -> bool:
        """Returns whether a message below `next_sequence` is missing that is in no gap; none may be in transit."""
        if next_sequence >> 62:
            return False
        known = self.expected if self.started else self.floor
        return known is not None and next_sequence > known

    def resume_at(self, next_sequence: int) -> None:
        """Starts where another controller stopped: the messages from there on are missing until they arrive."""
        self._start_at(next_sequence)
        self.floor = self.resumed_at = next_sequence

    def set_floor(self, floor: int) -> None:
        """Sets the floor if it was not known."""
        self.floor = floor if self.floor is None else self.floor

    @property
    def first_number(self) -> int | None:
        """The number of the first message, where the source has said it and nothing before it may be missing."""
        return None if self.resumed_at is not None or self.joins_late or self.recovers else self.floor

    @property
    def stopped_before(self) -> int | None:
        """The first number that was neither delivered nor reported, after `finish`; None when that is not known."""
        return self.expected if self.started else self.floor

    def finish(self, next_sequence: int) -> None:
        """Reports what is missing below `next_sequence` and delivers the rest, as nothing arrives; may be repeated."""
        self._sync()
        try:
            self._note_next_sequence(next_sequence, 0)
            self._drain_order_map()
            while self._gaps:
                self._give_up()
            self._drain_order_map()
            # All of them are dropped before the first report: a callback may call `forget`.
            partials = list(self._partials.values())
            at = self.expected
            self._report([part for partial in partials for part in self._drop_partial(partial, at, at)])
        finally:
            self._finish_call()

    def forget(self) -> None:
        """Releases what it has buffered, as it is not used any more; what arrives later is not buffered."""
        self._forgotten = True
        self._take_over_assembly()
        self._update_counts()

    # ------------------------------------------------------------------ numbers

    def _sync(self) -> None:
        """Takes over what the compiled parts have done since the last call."""
        if self._take_over_assembly() or self.fast_path:
            self._next = self.expected
        elif self._gaps and self.retransmitted_next > self._gaps.first:
            self._next = max(self._next, self.retransmitted_next)
        if self._gaps:
            self._gaps.drop_below(self.retransmitted_next)
        if self.skips_live and self.expected > self._skipped_from:
            until, self.expected = self.expected, self._skipped_from
            self._open_gap(until, 0)

    def _take_over_assembly(self) -> bool:
        """Takes over the message of which compiled code has put some fragments; returns whether there was one."""
        assembly = self.take_assembly()
        if assembly is None:
            return False
        self._partials[assembly.first] = Partial.from_assembly(assembly)
        return True

    def _start_at(self, sequence: int) -> None:
        self.started = True
        self.expected = self._next = sequence

    def _is_too_old(self, sequence: int, flags: int, payload: memoryview) -> bool:
        """Returns whether a message was sent before the receivers joined and is not delivered; sets `expected` then."""
        if self._is_of_older_message(sequence, flags, payload):
            self.expected = sequence + 1  # so that the next number fits
        elif not (self.recovers or self.joins_late) and self.precedes(sequence):
            self.expected = max(sequence + 1, self.floor or 0)
        else:
            return False
        return True

    def _is_of_older_message(self, sequence: int, flags: int, payload: memoryview) -> bool:
        """Returns whether a fragment is of a message that began before the receivers joined; it is not a loss."""
        if self.rules.ordered == RAW or not flags & FLAG_FRAGMENT:
            return False
        fragment = read_fragment(sequence, payload)
        if fragment is None or fragment.offset == 0 or (self.floor is not None and fragment.first >= self.floor):
            return False
        if self.floor is not None:
            self.floor = max(self.floor, fragment.last + 1)
        return True

    def _note_live_floor(self, number: int) -> None:
        """Notes the first number that did not have to come from the source's memory, where it was not known before."""
        if self._promised_from is None and self._live_floor is None:
            self._live_floor = number

    def _note_highest(self, sequence: int, now_ns: int) -> None:
        """Notes a number above all others, or the first number."""
        if not self.started:
            self._note_live_floor(sequence)
            # A message that was sent before the receivers joined may arrive: then it is the beginning.
            self._start_at(sequence if self.floor is None else min(self.floor, sequence))
            if self._promised_from is not None:
                self._promised_from = min(self._promised_from, self.expected)
        self._open_gap(sequence, now_ns)
        self._deliver_and_give_up(self._age_of_gaps(now_ns))  # the messages before this one
        self.expected = self._skipped_from = self.shown_below = sequence + 1

    def _is_next(self, sequence: int) -> bool:
        """Returns whether a number is delivered now; if so, its successor is the next in order."""
        if self.rules.ordered == IN_ORDER:
            if sequence != self._next:
                return False
            self._next = sequence + 1
        return True

    def _take_or_buffer(self, sequence: int, flags: int, payload: memoryview, times: _Times) -> None:
        if self._is_next(sequence):
            self._take(sequence, flags, payload, times)
        else:
            self._order_map[sequence] = (flags, bytes(payload), times)

    def _note_next_sequence(self, next_sequence: int, now_ns: int) -> None:
        # Without a floor no message before the first one is known to be lost: the receiver may have joined later.
        if self.misses_below(next_sequence):
            if not self.started:
                self._note_live_floor(next_sequence)
                self._start_at(self.floor or 0)
            self._open_gap(next_sequence, now_ns)

    def _open_gap(self, until: int, now_ns: int) -> None:
        """Opens a gap from `expected` to below `until`."""
        if until == self.expected:
            return
        first, self.expected = self.expected, until
        self._skipped_from = until
        recovers = self.recovers or self.joins_late
        due_ns = NEVER if recovers else now_ns + self.rules.recovery_ns
        self._gaps.open(first, until - 1, due_ns, self._budget.gap_opened(self))
        if recovers:
            self.on_missing(first, until - 1, now_ns)

    def _age_of_gaps(self, now_ns: int) -> int:
        """Returns the time by which a message gives up gaps.

        After a pause, which the loss check shows that is overdue, what fills them may wait behind this message. Then
        the loss check gives them up, when all has been read.
        """
        rules = self.rules
        late = rules.recovery_ns and rules.loss_check_ns and 0 < self.next_check_ns < now_ns - rules.loss_check_ns
        return 0 if late else now_ns

    def _deliver_and_give_up(self, now_ns: int) -> None:
        """Delivers from the order map, and gives up gaps that are due or exceed a limit."""
        self._drain_order_map()
        while self._gaps and (self._gaps.due_ns <= now_ns or self._must_give_up()):
            self._give_up()
        self._count_entries()
        while self._budget.exceeded and (holder := self._budget.oldest()) is not None:
            if holder is self:
                self._relieve_budget()
                self._count_entries()
                continue
            try:
                holder.give_up_oldest()
            except BaseException as error:  # of a callback there; this message is still delivered
                self._raised = error

    @property
    def oldest_gap(self) -> int | None:
        """The opening number of its first gap (`ReassemblyBudget.gap_opened`); None without a gap."""
        return self._gaps.opening_number

    def give_up_oldest(self) -> None:
        """Gives up its first gap, because the context has buffered too much and no gap is older."""
        self._sync()
        try:
            self._relieve_budget()
        finally:
            self._finish_call()
            self._losses.changed()

    def _must_give_up(self) -> bool:
        """Returns whether too many messages wait behind the first gap, which no recovery fills."""
        return 0 < self.rules.caching < len(self._order_map) and self._gaps.due_ns != NEVER

    def _relieve_budget(self) -> None:
        """Forgets the messages that wait behind a recovery, which brings them again; else gives up the first gap."""
        if not self._order_map or self._gaps.due_ns != NEVER:
            self._give_up()
            return
        first, opening_number = self._gaps.first, self._gaps.opening_number or 0
        self.relieved += 1
        self._order_map.clear()
        self._gaps = Gaps()
        self._gaps.open(first, self.expected - 1, NEVER, opening_number)
        self.skips_live, self._skipped_from = True, self.expected

    def _drain_order_map(self) -> None:
        """Delivers from the order map up to the first gap."""
        while self._order_map:
            if not self._partials:
                self.deliver_waiting(_NOT_PLAIN, _SHOWN_FLAGS, self._losses)
            message = self._order_map.pop(self._next, None)
            if message is None:
                return
            sequence, self._next = self._next, self._next + 1
            flags, payload, times = message
            self._take(sequence, flags, memoryview(payload), times)

    def _give_up(self) -> None:
        """Gives up the first gap, and delivers up to the next one."""
        first, last = self._gaps.give_up()
        if self.rules.ordered == IN_ORDER:
            self._next = last + 1
        self._report_given_up(first, last)
        self._drain_order_map()

    def _report_given_up(self, first: int, last: int) -> None:
        """Reports a gap, together with the fragments that arrived of messages that are incomplete now for good."""
        lost = [(first, last)]
        for partial in list(self._partials.values()):
            if self.rules.ordered == IN_ORDER or (partial.span.first <= last and partial.span.last >= first):
                lost += self._drop_partial(partial, first, last)
        self._report(lost)

    def _report(self, lost: list[tuple[int, int]]) -> None:
        """Reports lost ranges in the order of their numbers; adjacent ranges become one."""
        lost.sort()
        at = 0
        while at < len(lost):
            first, last = lost[at]
            at += 1
            while at < len(lost) and lost[at][0] == last + 1:
                last = lost[at][1]
                at += 1
            try:
                self._losses.lost(self, first, last, last - first + 1 > self.rules.burst_loss)
            except BaseException as error:  # raised when everything is reported and delivered
                self._raised = error

    def _count_entries(self) -> None:
        entries = len(self._order_map) + len(self._gaps)
        self._budget.entries += entries - self._entries
        self._tally.order_map_entries += entries - self._entries
        self._entries = entries

    def _update_counts(self) -> None:
        if self._forgotten:  # perhaps in a callback, after which more was buffered
            self._order_map.clear()
            self._gaps = Gaps()
            for partial in list(self._partials.values()):
                self._close_partial(partial)
            self._budget.forget(self)
        self._count_entries()
        in_order = self.rules.ordered == IN_ORDER
        recovers = bool(self._gaps) and self._gaps.due_ns == NEVER
        if self.joins_late and self._promised_from is not None and not (recovers or self.only_history):
            self.joins_late = False
        self._choose_to_skip(in_order=in_order, recovers=recovers)
        plain = self.started and not self._partials
        # Not in order, live messages go on while a recovery fills the gaps.
        self.fast_path = plain and not self._order_map and (not self._gaps or (recovers and not in_order))
        walks = plain and recovers and self._promised_from is not None
        waits = in_order and recovers and self._promised_from is not None and not self.skips_live
        self.may_wait = self._room_to_wait() if waits else 0
        self.retransmitted_next, self.retransmitted_end = (self._gaps.first, self._gaps.first_end) if walks else (0, 0)

    def _room_to_wait(self) -> int:
        """Returns how many live messages may wait before the limits are looked at again."""
        room = min(_UNSEEN, self._budget.room // _UNSEEN)
        return min(room, self.rules.waiting_max - len(self._order_map)) if self.rules.waiting_max else room

    def _choose_to_skip(self, *, in_order: bool, recovers: bool) -> None:
        """Skips live messages while a recovery is far behind them, or while too many wait."""
        rules, waiting = self.rules, len(self._order_map)
        missing = self.expected - self._next - waiting
        too_many = 0 < rules.waiting_max < waiting
        if not (in_order and recovers):
            self.skips_live = False
        elif self.skips_live:
            self.skips_live = missing > rules.proximity or 2 * waiting > rules.waiting_max > 0
        elif too_many or (self.joins_late and missing > rules.proximity):
            self.skips_live, self._skipped_from = True, self.expected

    @property
    def settled(self) -> bool:
        """Whether each message below `expected` was delivered or reported lost, and none is in pieces."""
        return self.fast_path and not self._gaps

    @property
    def awaits_earlier(self) -> bool:
        """Whether a message below `expected` is missing, or waits for one that is."""
        return bool(self._gaps or self._order_map)

    def _finish_call(self) -> None:
        self._update_counts()
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    # ------------------------------------------------------------------ messages and fragments

    def _take(self, sequence: int, flags: int, payload: memoryview, times: _Times) -> None:
        """Delivers a message or takes a fragment that is next."""
        if not flags & FLAG_FRAGMENT:
            self._end_partials_at(sequence)
            self._deliver(parts_of(bytes(payload), flags), sequence, sequence, flags, times, None)
            return
        fragment = read_fragment(sequence, payload)
        if fragment is None:
            self._tally.malformed += 1
            self._end_partials_at(sequence, lost_too=True)
        elif self.rules.ordered == RAW:
            info = FragmentInfo(fragment.first, fragment.offset, fragment.total)
            self._tally.completed += sequence == fragment.last
            self._deliver((None, 0, None, bytes(fragment.piece)), sequence, sequence, flags, times, info)
        else:
            self._assemble(sequence, fragment, flags, times[0])

    def _assemble(self, sequence: int, fragment: Fragment, flags: int, send_ticks: int) -> None:
        if self._begins_history(sequence, fragment):
            self._begin_history_at(sequence + 1)  # the rest of an older message is not a loss
            return
        partial = self._partials.get(fragment.first)
        if partial is None or not partial.span.same_message(fragment):
            self._end_partials_at(sequence)
            partial = self._open_partial(sequence, fragment, send_ticks)
        if partial is None:
            self._report([(sequence, sequence)])
            return
        if partial.put(fragment, flags, send_ticks):
            self._close_partial(partial)
            self._tally.msgs_reassembled += 1
            self._tally.completed += 1
            info = FragmentInfo(fragment.first, 0, fragment.total)
            parts = partial.parts()
            self._deliver(parts, fragment.first, fragment.last, partial.flags, (partial.send_ticks, 0), info)

    def _begins_history(self, sequence: int, fragment: Fragment) -> bool:
        """Returns whether a late join's history begins with a fragment of a message that began before it."""
        first = self._promised_from
        return first is not None and fragment.first < first and self._gaps.cover(first, sequence - 1)

    def _begin_history_at(self, number: int) -> None:
        """Lets the history of a late join begin later than promised; what is missing before is not a loss."""
        self._promised_from = number
        self._next = max(self._next, number)
        self._gaps.drop_below(number)

    def _open_partial(self, sequence: int, fragment: Fragment, send_ticks: int) -> Partial | None:
        """Returns a new incomplete message; None when it can never become complete, or there is no memory for it."""
        if self.rules.ordered == IN_ORDER:
            possible = fragment.offset == 0
        else:
            behind = min(fragment.last, self.expected - 1)
            possible = (
                self._gaps.cover(fragment.first, sequence - 1)
                and self._gaps.cover(sequence + 1, behind)
                and not any(fragment.overlaps(other.span) for other in self._partials.values())
            )
        if not possible:
            return None
        if self._budget.reserve(fragment.total):
            try:
                partial = self._partials[fragment.first] = Partial(fragment, send_ticks)
            except MemoryError:
                self._budget.release(fragment.total)
            else:
                self._tally.reassembly_bytes += fragment.total
                return partial
        self._tally.reassembly_refused += 1
        return None

    def _close_partial(self, partial: Partial) -> None:
        del self._partials[partial.span.first]
        self._budget.release(partial.span.total)
        self._tally.reassembly_bytes -= partial.span.total

    def _drop_partial(self, partial: Partial, first: int, last: int) -> list[tuple[int, int]]:
        """Gives up an incomplete message.

        Returns:
            Its numbers that arrived, without `first` to `last`, which the caller reports itself.
        """
        self._close_partial(partial)
        parts = [
            part
            for begin, end in self._gaps.present(partial.span.first, min(partial.span.last, self._settled(first) - 1))
            for part in ((begin, min(end, first - 1)), (max(begin, last + 1), end))
        ]
        return [(begin, end) for begin, end in parts if begin <= end]

    def _settled(self, first: int) -> int:
        """Returns the number from which no incomplete message has fragments: in order, the order map has them."""
        return first if self.rules.ordered == IN_ORDER else self.expected

    def _end_partials_at(self, sequence: int, *, lost_too: bool = False) -> None:
        """Drops incomplete messages in whose range another message has this number: their source gave them up."""
        lost = [(sequence, sequence)] if lost_too else []
        for partial in list(self._partials.values()):
            if self.rules.ordered == IN_ORDER or partial.span.first <= sequence <= partial.span.last:
                lost += self._drop_partial(partial, sequence, sequence)
        self._report(lost)

    def _deliver(
        self, parts: Parts | None, first: int, last: int, flags: int, times: _Times, info: FragmentInfo | None
    ) -> None:
        if parts is None:
            self._tally.malformed += 1
            self._report([(first, last)])
            return
        self._delivered += 1
        request, gmd_number, block, own = parts
        sent, published = times
        shown = flags & _SHOWN_FLAGS
        message = whole_message(self.origin, own, first, last, shown, sent, info, block, published, request, gmd_number)
        self._tally.lbm_reqs_rcved += request is not None
        self.deliver(message, self._losses)
