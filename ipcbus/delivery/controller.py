"""The delivery controller: order, reassembly and loss of one topic of one session.

`Controller.odd` is where everything arrives that is not simply the next message. Three modes (`ordered_delivery`):

    1   by number; what comes behind a gap waits in the order map; fragments are put together
    -1  as it arrives; fragments are put together
    0   as it arrives, fragments too

A missing number is given up when the transport has had `recovery_ns` to bring it (LBT-IPC and LBT-SMX bring nothing
twice, so at once), or when too much waits behind it. Each number is then either in exactly one delivered message or
reported lost exactly once; one that comes later is a duplicate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.delivery.delivery_rules import IN_ORDER, RAW
from ipcbus.delivery.demux import DROPPED, IN_PLACE, Controller, Tally
from ipcbus.delivery.gaps import Gaps
from ipcbus.delivery.message_types import FragmentInfo
from ipcbus.delivery.reassembly import Fragment, Partial, Parts, parts_of, read_fragment
from ipcbus.delivery.received_message import Origin, whole_message
from ipcbus.wire.wire_layout import FLAG_END_BATCH, FLAG_FRAGMENT, FLAG_PROPERTIES, FLAG_START_BATCH, FLAG_TSNI

if TYPE_CHECKING:
    from ipcbus.delivery.delivery_rules import DeliveryRules
    from ipcbus.delivery.reassembly_budget import ReassemblyBudget
    from ipcbus.delivery.slow_path import Losses

    _Times = tuple[int, int]  # when it was sent, and when its datagram was published; 0 where that is not known

_SHOWN_FLAGS = FLAG_START_BATCH | FLAG_END_BATCH | FLAG_PROPERTIES
_APART = FLAG_FRAGMENT | FLAG_PROPERTIES
"""Flags of what has to be put together or taken apart before it is delivered."""


class DeliveryController(Controller):
    """One topic of one session; its receivers share it."""

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
        """A controller that has met nothing yet.

        Args:
            origin: topic and source string.
            topic_number: the session's number of the topic.
            rules: how it delivers.
            losses: who is told of losses and of exceptions in callbacks.
            tally: where it counts.
            budget: what it may hold, with others.
            floor: messages with this number and above were sent after the receivers had joined, so one that does not
                come is lost. None when that is not known: then the first message that comes is the beginning.
        """
        super().__init__(origin, topic_number)
        self.rules = rules
        self.floor = floor
        self.started = self.ended = False
        self.next_check_ns = 0
        self._losses, self._tally, self._budget = losses, tally or Tally(), budget
        self._gaps = Gaps()
        self._map: dict[int, tuple[int, bytes, _Times]] = {}
        self._partials: dict[int, Partial] = {}
        self._next = 0  # in order: below it everything was delivered or reported
        self._entries = 0
        self._given = 0
        self._forgotten = False
        self._raised: BaseException | None = None

    # ------------------------------------------------------------------ what arrives

    def odd(self, sequence: int, flags: int, payload: memoryview, send_ticks: int, now_ns: int) -> int:
        """Takes what is not a whole message in order; see `Controller.odd`."""
        before = self._given
        times = send_ticks, self.published_ticks
        self._go_on_from_plain()
        try:
            if flags & FLAG_TSNI:
                self._told_of(sequence, now_ns)
            elif not self.started and self._began_before(sequence, flags, payload):
                return DROPPED
            elif not self.started or sequence >= self.expected:
                self._note_newest(sequence, now_ns)
                if self._given == before and not (self._map or flags & _APART) and self._has_turn(sequence):
                    self._break_off(sequence)
                    if self._raised is None:
                        return IN_PLACE
                    self._take(sequence, flags, payload, times)
                else:
                    self._take_or_keep(sequence, flags, payload, times)
            elif self._gaps.fill(sequence):
                self._take_or_keep(sequence, flags, payload, times)
            else:
                self._tally.duplicates += 1
                return DROPPED
            self._settle(now_ns)
        finally:
            self._end()
        return self._given - before

    def told_of(self, next_sequence: int, now_ns: int) -> None:
        """Topic sequence number info: the next message will have this number."""
        self._go_on_from_plain()
        try:
            self._told_of(next_sequence, now_ns)
            self._settle(now_ns)
        finally:
            self._end()

    def check(self, now_ns: int) -> None:
        """Gives up what is due, though nothing arrives."""
        self.told_of(0, now_ns)

    def missing(self, next_sequence: int) -> bool:
        """Whether a message below `next_sequence` is missing of which nobody knew, supposing none is on its way."""
        if next_sequence >> 62:
            return False
        known = self.expected if self.started else self.floor
        return known is not None and next_sequence > known

    def go_on_from(self, next_sequence: int) -> None:
        """For a controller that has met nothing yet: what another one stopped before is missing until it comes."""
        self._begin(next_sequence)
        self.floor = next_sequence

    def begins_at(self, floor: int) -> None:
        """Tells the floor, where that was not known."""
        self.floor = floor if self.floor is None else self.floor

    @property
    def stopped_before(self) -> int | None:
        """The first number that was neither delivered nor reported, after `finish`; None when that is not known."""
        return self.expected if self.started else self.floor

    def finish(self, next_sequence: int) -> None:
        """Nothing comes any more: reports everything that is missing below `next_sequence`, delivers the rest.

        May be called again when more has become known to be missing.
        """
        self._go_on_from_plain()
        try:
            self._told_of(next_sequence, 0)
            while self._gaps:
                self._give_up()
            self._drain()
            # All before any is told of: a callback may end with `forget`.
            partials = list(self._partials.values())
            self._report([part for partial in partials for part in self._drop(partial, self.expected, self.expected)])
        finally:
            self._end()

    def forget(self) -> None:
        """Gives back what it holds, when it is not used any more; what arrives later is not kept."""
        self._forgotten = True
        self._account()

    # ------------------------------------------------------------------ numbers

    def _go_on_from_plain(self) -> None:
        if self.plain:
            self._next = self.expected

    def _begin(self, sequence: int) -> None:
        self.started = True
        self.expected = self._next = sequence

    def _began_before(self, sequence: int, flags: int, payload: memoryview) -> bool:
        """Whether a fragment is of a message that began before the receivers had joined: nobody has lost that."""
        if self.rules.ordered == RAW or not flags & FLAG_FRAGMENT:
            return False
        fragment = read_fragment(sequence, payload)
        if fragment is None or fragment.offset == 0 or (self.floor is not None and fragment.first >= self.floor):
            return False
        if self.floor is not None:
            self.floor = max(self.floor, fragment.last + 1)
        return True

    def _note_newest(self, sequence: int, now_ns: int) -> None:
        """A number behind all others, or the first of all."""
        if not self.started:
            # What was sent before joining and comes all the same is the beginning.
            self._begin(sequence if self.floor is None else min(self.floor, sequence))
        self._miss(sequence, now_ns)
        self._settle(now_ns)  # of what came before it
        self.expected = sequence + 1

    def _has_turn(self, sequence: int) -> bool:
        """Returns whether a number is delivered now; in order, it is then the next one's turn."""
        if self.rules.ordered == IN_ORDER:
            if sequence != self._next:
                return False
            self._next = sequence + 1
        return True

    def _take_or_keep(self, sequence: int, flags: int, payload: memoryview, times: _Times) -> None:
        if self._has_turn(sequence):
            self._take(sequence, flags, payload, times)
        else:
            self._map[sequence] = (flags, bytes(payload), times)

    def _told_of(self, next_sequence: int, now_ns: int) -> None:
        # Without a floor nothing is known to be lost before the first message: the receiver may have come later.
        if self.missing(next_sequence):
            if not self.started:
                self._begin(self.floor or 0)
            self._miss(next_sequence, now_ns)

    def _miss(self, until: int, now_ns: int) -> None:
        """The numbers from `expected` to below `until` are missing."""
        if until == self.expected:
            return
        first, self.expected = self.expected, until
        self._gaps.open(first, until - 1, now_ns + self.rules.recovery_ns, self._budget.opened(self))

    def _settle(self, now_ns: int) -> None:
        """Delivers what can be, gives up what is due or too much."""
        self._drain()
        while self._gaps and (self._gaps.due_ns <= now_ns or 0 < self.rules.caching < len(self._map)):
            self._give_up()
        self._count_entries()
        while self._budget.exceeded and (holder := self._budget.oldest()) is not None:
            if holder is self:
                self._give_up()
                self._count_entries()
                continue
            try:
                holder.give_up_oldest()
            except BaseException as error:  # of a callback there: this message has its turn all the same
                self._raised = error

    @property
    def oldest_gap(self) -> int | None:
        """When its first gap opened, see `ReassemblyBudget.opened`; None without a gap."""
        return self._gaps.turn

    def give_up_oldest(self) -> None:
        """Gives its first gap up, because the context holds too much and no gap is older."""
        try:
            self._give_up()
        finally:
            self._end()
            self._losses.changed()

    def _drain(self) -> None:
        """Delivers from the order map up to the first gap."""
        while self._map and (message := self._map.pop(self._next, None)) is not None:
            sequence, self._next = self._next, self._next + 1
            flags, payload, times = message
            self._take(sequence, flags, memoryview(payload), times)

    def _give_up(self) -> None:
        """The first gap is lost for good."""
        first, last = self._gaps.give_up()
        if self.rules.ordered == IN_ORDER:
            self._next = last + 1
        self._report_given_up(first, last)
        self._drain()

    def _report_given_up(self, first: int, last: int) -> None:
        """Reports a gap, and what it spoils: fragments of the same messages that have come."""
        lost = [(first, last)]
        for partial in list(self._partials.values()):
            if self.rules.ordered == IN_ORDER or (partial.like.first <= last and partial.like.last >= first):
                lost += self._drop(partial, first, last)
        self._report(lost)

    def _report(self, lost: list[tuple[int, int]]) -> None:
        """Tells of lost ranges in the order of their numbers; those that touch are one."""
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
            except BaseException as error:  # raised when everything is told and delivered
                self._raised = error

    def _count_entries(self) -> None:
        entries = len(self._map) + len(self._gaps)
        self._budget.entries += entries - self._entries
        self._tally.order_map_entries += entries - self._entries
        self._entries = entries

    def _account(self) -> None:
        if self._forgotten:  # perhaps by a callback in the midst of something that went on to keep more
            self._map.clear()
            self._gaps = Gaps()
            for partial in list(self._partials.values()):
                self._close(partial)
            self._budget.forget(self)
        self._count_entries()
        self.plain = self.started and not (self._gaps or self._map or self._partials)

    def _end(self) -> None:
        self._account()
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    # ------------------------------------------------------------------ messages and fragments

    def _take(self, sequence: int, flags: int, payload: memoryview, times: _Times) -> None:
        """A message or fragment whose turn it is."""
        if not flags & FLAG_FRAGMENT:
            self._break_off(sequence)
            self._deliver(parts_of(bytes(payload), flags), sequence, sequence, flags, times, None)
            return
        fragment = read_fragment(sequence, payload)
        if fragment is None:
            self._tally.malformed += 1
            self._break_off(sequence, lost_too=True)
        elif self.rules.ordered == RAW:
            info = FragmentInfo(fragment.first, fragment.offset, fragment.total)
            self._tally.completed += sequence == fragment.last
            self._deliver((None, bytes(fragment.piece)), sequence, sequence, flags, times, info)
        else:
            self._assemble(sequence, fragment, flags, times[0])

    def _assemble(self, sequence: int, fragment: Fragment, flags: int, send_ticks: int) -> None:
        partial = self._partials.get(fragment.first)
        if partial is None or not partial.like.same_message(fragment):
            self._break_off(sequence)
            partial = self._open(sequence, fragment, send_ticks)
        if partial is None:
            self._report([(sequence, sequence)])
            return
        if partial.put(fragment, flags, send_ticks):
            self._close(partial)
            self._tally.msgs_reassembled += 1
            self._tally.completed += 1
            info = FragmentInfo(fragment.first, 0, fragment.total)
            parts = partial.parts()
            self._deliver(parts, fragment.first, fragment.last, partial.flags, (partial.send_ticks, 0), info)

    def _open(self, sequence: int, fragment: Fragment, send_ticks: int) -> Partial | None:
        """Returns a new incomplete message; None when it can never become whole, or there is no memory for it."""
        if self.rules.ordered == IN_ORDER:
            possible = fragment.offset == 0
        else:
            behind = min(fragment.last, self.expected - 1)
            possible = (
                self._gaps.cover(fragment.first, sequence - 1)
                and self._gaps.cover(sequence + 1, behind)
                and not any(fragment.overlaps(other.like) for other in self._partials.values())
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

    def _close(self, partial: Partial) -> None:
        del self._partials[partial.like.first]
        self._budget.release(partial.like.total)
        self._tally.reassembly_bytes -= partial.like.total

    def _drop(self, partial: Partial, first: int, last: int) -> list[tuple[int, int]]:
        """Gives up an incomplete message.

        Returns:
            The numbers of it that came, without `first` to `last`: the caller accounts for those itself.
        """
        self._close(partial)
        parts = [
            part
            for begin, end in self._gaps.present(partial.like.first, min(partial.like.last, self._settled(first) - 1))
            for part in ((begin, min(end, first - 1)), (max(begin, last + 1), end))
        ]
        return [(begin, end) for begin, end in parts if begin <= end]

    def _settled(self, first: int) -> int:
        """In order, what came behind `first` is in the order map, and of no incomplete message yet."""
        return first if self.rules.ordered == IN_ORDER else self.expected

    def _break_off(self, sequence: int, *, lost_too: bool = False) -> None:
        """A number that does not belong to an incomplete message, but lies in it, ends it: its source gave it up."""
        lost = [(sequence, sequence)] if lost_too else []
        for partial in list(self._partials.values()):
            if self.rules.ordered == IN_ORDER or partial.like.first <= sequence <= partial.like.last:
                lost += self._drop(partial, sequence, sequence)
        self._report(lost)

    def _deliver(
        self, parts: Parts | None, first: int, last: int, flags: int, times: _Times, info: FragmentInfo | None
    ) -> None:
        if parts is None:
            self._tally.malformed += 1
            self._report([(first, last)])
            return
        self._given += 1
        block, own = parts
        sent, published = times
        message = whole_message(self.origin, own, first, last, flags & _SHOWN_FLAGS, sent, info, block, published)
        self.deliver(message, self._losses)
