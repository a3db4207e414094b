"""The delivery controller of a topic whose source may send messages again: late join and off-transport recovery.

A recovery asks the source for numbers again: for those from before the receivers joined (late join,
`begin_late_join`), and, with `recovers`, for missing ones (off-transport recovery). Time alone does not give up the
gaps that it fills. In order, messages behind such a gap wait in the order map. When too many wait, or the gap is
long in a late join, the demux skips live messages (`skips_live`): only their numbers are noted, and they are
missing until the source sends them again. Not in order, live messages are delivered as ever.
`delivery.retransmitted_feed` delivers what the source sends again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.delivery.delivery_controller import DeliveryController
from ipcbus.delivery.delivery_rules import IN_ORDER
from ipcbus.delivery.demux import DROPPED
from ipcbus.delivery.message_types import MessageFlag

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class LeftOff:
    """Where the controller of an earlier stay in the session stopped, for that of the next stay."""

    first: int
    """The first number that the receivers have not got; where the next stay joins late again, the first live number."""
    expected: int
    """The number after all that are known to be published."""
    got: tuple[tuple[int, int], ...]
    """The ranges of numbers below `expected` that the receivers have got; below `first` only for another late join."""
    resumes: bool
    """Whether the next stay goes on at `first`, instead of a new late join."""


class RecoveringController(DeliveryController):
    """Delivers one topic of one session, of which a recovery brings messages again (a `topic_recovery.Target`)."""

    _got: tuple[tuple[int, int], ...] = ()
    """What the receivers have got in an earlier stay."""

    def begin_late_join(self, now_ns: int) -> None:
        """Waits for the messages from before the receivers joined; call it before the first message.

        Until `promise` says which messages those are, receivers in order get nothing.
        """
        self._live_floor, self.floor = self.floor, 0
        self.joins_late, self._promised_from = True, None
        self._sync()
        try:
            self._note_next_sequence(self._live_floor or 0, now_ns)
            self._drop_got()
            if not self.only_history:  # its receiver would not learn yet what the others give up to make room
                self._deliver_and_give_up(now_ns)
        finally:
            self._finish_call()

    @property
    def live_floor(self) -> int | None:
        """The number of the first live message that the receivers of a late join get; None while that is not known."""
        return self._live_floor

    @property
    def is_promised(self) -> bool:
        """Whether it does not wait for the source to say how much it keeps (`promise`)."""
        return self._promised_from is not None

    def promise(self, first: int, next_sequence: int, now_ns: int) -> None:
        """Handles the source's word on what it keeps, in a late join; later words change nothing.

        Args:
            first: the first number that the receivers get; no message below it is a loss.
            next_sequence: all messages below it are published.
            now_ns: the time.
        """
        self._sync()
        try:
            known = self.started or self._live_floor is not None
            self._settle_history(first)
            if not known:  # else the messages from the first live one on are on their way
                self._note_next_sequence(next_sequence, now_ns)
            self._deliver_and_give_up(now_ns)
        finally:
            self._finish_call()

    @property
    def boundary(self) -> int:
        """In order: the first number of which the sinks have got nothing yet, neither message nor loss."""
        self._sync()
        if not self.started:
            return self.floor or 0
        return min([self._next, *(partial.span.first for partial in self._partials.values())])

    @property
    def untouched(self) -> bool:
        """Whether the sinks have got no message and no loss yet."""
        in_order = self.rules.ordered == IN_ORDER
        return not self.started or (in_order and not self.is_promised and not self.boundary)

    @property
    def begins_at(self) -> int:
        """The first number that the source, or its end, has promised; 0 before."""
        return self._promised_from or 0

    @property
    def next_live(self) -> int | None:
        """The number of the next message that the source sends, as far as is known; None before anything is known."""
        self._sync()
        if self.started:
            return self.expected
        return self.floor if self.is_promised else self._live_floor

    @property
    def is_behind(self) -> bool:
        """Whether messages from before now may still come: others that join would get them too."""
        self._sync()
        return not self.is_promised or (self.started and not self.settled)

    @property
    def is_complete(self) -> bool:
        """Whether it has nothing more to bring, as far as is known."""
        return self.is_promised and (not self.started or self.settled)

    def is_settled_below(self, number: int) -> bool:
        """Returns whether each message below a number was delivered or reported lost."""
        self._sync()
        if not self.is_promised or (self.started and self.expected < number):
            return False
        ends = [self._gaps.first] if self._gaps else []
        if self.rules.ordered == IN_ORDER and self.started:
            ends.append(self._next)
        return number <= min([*ends, *(partial.span.first for partial in self._partials.values())], default=number)

    def begin_history(self, live_from: int | None, now_ns: int) -> None:
        """Waits for the messages below a number, and for those only.

        Args:
            live_from: the number; None when it is not known (`set_floor` says it).
            now_ns: the time.
        """
        self.only_history = self.recovers = True
        self.floor = live_from
        self.begin_late_join(now_ns)

    def go_on_with_history(self, left_off: LeftOff, begins_at: int, now_ns: int) -> None:
        """Goes on where the history of an earlier stay stopped; `miss_again` follows, or, without promise, its promise.

        Args:
            left_off: where it stopped.
            begins_at: the first number that was promised.
            now_ns: the time.
        """
        self.go_on(left_off)
        if not left_off.resumes:
            self.begin_history(left_off.first, now_ns)
            self._miss(left_off)  # its first live message may be after `first`
            self._finish_call()
            return
        self.only_history = self.recovers = True
        self._promised_from = begins_at

    def first_live(self, *, brings_all: bool) -> int | None:
        """Returns the number from which on a receiver that is made now gets messages with the others; None if unknown.

        Args:
            brings_all: whether it wants everything that this controller still brings, too.
        """
        if not self.started and self.is_promised and self.floor is not None:
            self._start_at(self.floor)  # an older message, which may still come, belongs to the history
        if brings_all and self.is_promised and self.rules.ordered == IN_ORDER and self.started:
            return self.boundary
        following = self.next_live
        spans = [partial.span for partial in self._partials.values()]
        return min((span.first for span in spans if span.last >= (following or 0)), default=following)

    def leave_off(self) -> LeftOff | None:
        """Gives up nothing and delivers nothing more; returns where the next stay goes on, None if that is not known.

        Messages and fragments that waited here are missing again.
        """
        self._sync()
        # Without promise, receivers in order have got all from 0 on if they have got, or lost, anything.
        began_in_order = self.rules.ordered == IN_ORDER and self.started and self.boundary > 0
        resumes = self.is_promised or began_in_order
        first = self.stopped_before if resumes else self._live_floor
        if first is None:
            return None
        missing: list[tuple[int, int]] = []
        if self.started and self.rules.ordered == IN_ORDER:
            missing = [(self.boundary, self.expected - 1)]
        elif self.started:
            spans = [(partial.span.first, partial.span.last) for partial in self._partials.values()]
            missing = sorted([*self._gaps.ranges(), *spans])
        if resumes and missing:
            first = min(first, missing[0][0])
        expected = max(first, self.expected) if self.started else first
        got, at = [], first if resumes else 0  # live messages come from below the first live number too
        for begin, last in [*missing, (expected, expected)]:
            if begin > at:
                got.append((at, min(begin, expected) - 1))
            at = max(at, last + 1)
        self.forget()
        if self.rules.ordered == IN_ORDER and self.started:
            self.expected = self._next = missing[0][0]
        return LeftOff(first, expected, tuple(got), resumes)

    def go_on(self, left_off: LeftOff) -> None:
        """Goes on where an earlier stay stopped; call it before the first message, and `miss_again` next."""
        if left_off.resumes:
            self.resume_at(left_off.first)
        else:
            self.floor = left_off.first
        self._got = left_off.got

    def miss_again(self, left_off: LeftOff) -> None:
        """Misses what an earlier stay did not get; call it when the recovery of this stay is ready."""
        self._sync()
        try:
            self._miss(left_off)
            self._deliver_and_give_up(-1)  # nothing is due at -1, but the gaps may exceed the limits of the context
        finally:
            self._finish_call()

    def _miss(self, left_off: LeftOff) -> None:
        self._note_next_sequence(left_off.expected, 0)
        self._drop_got()

    def _drop_got(self) -> None:
        """Does not miss what the receivers have got in an earlier stay."""
        for first, last in self._got:
            self._gaps.drop(first, last)

    @property
    def recovering(self) -> bool:
        """Whether it waits for a recovery: for numbers, or for what the source keeps."""
        return self._promised_from is None or next(self.missing(), None) is not None

    @property
    def recovery_flag(self) -> int:
        """The flag of the messages that a recovery brings now."""
        return MessageFlag.LATE_JOIN if self.joins_late else MessageFlag.OTR

    def missing(self, first: int = 0) -> Iterator[tuple[int, int]]:
        """Yields the ranges of numbers from `first` on that a recovery has to bring, ascending."""
        self._sync()
        return self._gaps.recovering(first)

    def take_retransmitted(self, sequence: int, flags: int, payload: memoryview, send_ticks: int, now_ns: int) -> int:
        """Takes a message that the source has sent again, and that is not simply the next missing one.

        Args:
            sequence: its number.
            flags: flags of `wire.wire_layout` without FLAG_TSNI, and the bit of `MessageFlag`.
            payload: its bytes, valid only during the call.
            send_ticks: when it was first sent.
            now_ns: the time.

        Returns:
            The number of messages that were delivered, or `DROPPED`.
        """
        before = self._delivered
        self._sync()
        try:
            missing = self._gaps.fill(sequence)
            if missing:
                self._take_or_buffer(sequence, flags, payload, (send_ticks, 0))
            self._deliver_and_give_up(now_ns)  # also what waits behind those that the feed has delivered itself
        finally:
            self._finish_call()
        return self._delivered - before if missing else DROPPED

    def give_up_missing(self, first: int, last: int, now_ns: int) -> None:
        """Gives up the numbers from `first` to `last` that did not arrive: the source does not have them any more.

        They are reported lost when they are next.
        """
        self._sync()
        try:
            self._gaps.set_due(first, last, now_ns)
            self._deliver_and_give_up(now_ns)
        finally:
            self._finish_call()
            self._losses.changed()

    def end_recovery(self, now_ns: int) -> None:
        """Goes on without the messages that a recovery has not brought: those that were promised are lost."""
        self._sync()
        try:
            self._settle_history(None)
        finally:
            self.give_up_missing(0, self.expected, now_ns)

    def set_floor(self, floor: int) -> None:
        """Sets the floor if it was not known."""
        if self.is_promised:
            super().set_floor(floor)
            return
        self._live_floor = floor if self._live_floor is None else self._live_floor
        self.note_next_sequence(floor, 0)

    def finish(self, next_sequence: int) -> None:
        """Reports all missing messages below `next_sequence`; what the source has not promised is not missing."""
        self._sync()
        self._settle_history(None)
        self.recovers = self.joins_late = False
        super().finish(next_sequence)

    def _settle_history(self, first: int | None) -> None:
        """Begins the history at `first`, or, with None, at the first live message."""
        if self._promised_from is not None:
            return
        if self.started:
            until = min(self._gaps.first_end, self._live_floor or 0) if self._gaps and self._gaps.first == 0 else 0
            self.floor = self._promised_from = until if first is None else min(first, until)
            self._gaps.drop_below(self._promised_from)
            self._next = max(self._next, self._promised_from)
            for partial in list(self._partials.values()):
                if partial.span.first < self._promised_from:
                    self._close_partial(partial)
                    came = self._gaps.present(self._promised_from, min(partial.span.last, self.expected - 1))
                    self._begin_history_at(max((last + 1 for _, last in came), default=self._promised_from))
            # Without history, fragments of a message that began before the receivers joined are not losses.
            self.started = self.only_history or bool(self._order_map) or self.expected > self.floor
        elif self._live_floor is None:
            self.floor, self._promised_from = first, first or 0
        else:
            self.floor = self._promised_from = self._live_floor if first is None else min(first, self._live_floor)
