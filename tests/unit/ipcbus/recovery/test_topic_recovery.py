"""What a receiver asks for, and when: in virtual time, against a target that is a list of missing ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.recovery.recovery_settings import LATE_JOIN, OTR, RecoverySettings, RequestTerms
from ipcbus.recovery.topic_recovery import TopicRecovery
from ipcbus.wire import control_messages
from ipcbus.wire.control_messages import Info, InfoRequest, RangeRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.wire.control_messages import ControlMessage

MS = 1_000_000
TERMS = RequestTerms(
    initial_delay_ns=100, interval_ns=10, interval_max_ns=40, timeout_ns=1000, requests_max=3, numbers_max=5
)


class Missing:
    """A target that misses some numbers."""

    def __init__(self, *ranges: tuple[int, int], joins_late: bool = False) -> None:
        self.ranges = list(ranges)
        self.skips_live = False
        self.relieved = 0
        self.live_floor: int | None = None
        self.joins_late = joins_late
        self.is_promised = True
        self.promises: list[tuple[int, int]] = []
        self.ended = 0

    def begin_late_join(self, now_ns: int) -> None:
        """Waits for the promise."""
        self.joins_late, self.is_promised = True, False

    def promise(self, first: int, next_sequence: int, now_ns: int) -> None:
        """Misses what was promised."""
        self.is_promised = True
        self.promises.append((first, next_sequence))
        self.ranges = [(first, next_sequence - 1)] if first < next_sequence else []

    def missing(self, first: int = 0) -> Iterator[tuple[int, int]]:
        """What is missing."""
        return ((max(begin, first), last) for begin, last in self.ranges if last >= first)

    def end_recovery(self, now_ns: int) -> None:
        """Misses nothing any more."""
        self.ended += 1
        self.is_promised, self.ranges = True, []


class Bench:
    """A recovery and what it sends."""

    def __init__(
        self, target: Missing, settings: RecoverySettings | None = None, *, at_once: bool = True, number: int = 0
    ) -> None:
        self.target = target
        settings = settings or RecoverySettings(TERMS, TERMS, info_interval_ns=10, info_requests_max=3)
        self.recovery = TopicRecovery(7, target, settings, asks_at_once=at_once, number=number)
        self.room = 100

    def work(self, now_ns: int) -> list[ControlMessage]:
        """What it sends now."""
        sent: list[ControlMessage] = []

        def send(message: bytes) -> bool:
            if len(sent) >= self.room:
                return False
            found = control_messages.decode(message)
            assert found is not None
            sent.append(found)
            return True

        self.recovery.work(now_ns, send)
        return sent

    def asked(self, now_ns: int) -> list[tuple[int, int]]:
        """The ranges that it asks for now."""
        sent = self.work(now_ns)
        assert all(isinstance(each, RangeRequest) and each.topic == 7 for each in sent)
        return [(each.first, each.last) for each in sent if isinstance(each, RangeRequest)]


def test_the_defaults_are_those_of_the_options() -> None:
    assert RequestTerms(0, 500 * MS, 500 * MS, 10_000 * MS, 10, 1000) == LATE_JOIN
    assert RequestTerms(2000 * MS, 1000 * MS, 10_000 * MS, 60_000 * MS, 200, 50) == OTR
    settings = RecoverySettings()
    assert (settings.info_interval_ns, settings.info_requests_max, settings.history) == (1000 * MS, 60, None)


def test_a_late_join_asks_what_the_source_keeps_and_then_for_the_oldest() -> None:
    bench = Bench(Missing())
    bench.recovery.begin_late_join(0)
    assert bench.work(0) == [InfoRequest(7)]
    assert bench.work(9) == []
    assert bench.recovery.due_ns == 10
    assert bench.work(10) == [InfoRequest(7)]
    bench.recovery.info(Info(7, 3, 30), 12)
    assert bench.target.promises == [(3, 30)]
    assert bench.asked(12) == [(3, 7), (8, 12), (13, 17)]
    bench.recovery.info(Info(7, 0, 99), 13)
    assert len(bench.target.promises) == 1


def test_without_an_answer_it_goes_on_without_history() -> None:
    bench = Bench(Missing())
    bench.recovery.begin_late_join(0)
    assert [len(bench.work(now_ns)) for now_ns in (0, 10, 20, 30)] == [1, 1, 1, 0]
    assert bench.target.ended == 1
    assert bench.recovery.due_ns is None


def test_no_history_is_not_asked_for_and_some_is_counted_by_the_source() -> None:
    bench = Bench(Missing(), RecoverySettings(history=0))
    bench.recovery.begin_late_join(0)
    assert (bench.work(0), bench.target.ended) == ([], 1)
    bench = Bench(Missing(), RecoverySettings(history=5))
    bench.target.live_floor = 9
    bench.recovery.begin_late_join(0)
    assert bench.work(0) == [InfoRequest(7, 5, before=9)]


def test_a_number_of_messages_is_asked_for_when_the_first_live_one_is_known_or_after_a_while() -> None:
    for later_ns, floor in (5 * MS, 9), (1000 * MS, None):
        bench = Bench(Missing(), RecoverySettings(history=5))
        bench.recovery.begin_late_join(0)
        assert (bench.work(0), bench.recovery.due_ns) == ([], 5 * MS)
        bench.target.live_floor = floor
        assert bench.work(later_ns) == [InfoRequest(7, 5, before=floor)]


def test_it_takes_only_the_answer_to_its_own_question() -> None:
    bench = Bench(Missing(), number=3)
    bench.target.live_floor = 40
    bench.recovery.begin_late_join(0)
    assert bench.work(0) == [InfoRequest(7, before=40, request=3)]
    bench.recovery.info(Info(7, 10, 50, 2), 1)
    assert bench.target.promises == []
    bench.recovery.info(Info(7, 20, 50, 3), 2)
    assert bench.target.promises == [(20, 50)]


def test_a_silent_source_is_asked_unless_the_option_says_no() -> None:
    bench = Bench(Missing(), RecoverySettings(asks_silent_sources=False))
    bench.recovery.begin_late_join(0, has_sent=False)
    assert bench.target.ended == 1
    bench.recovery.begin_late_join(0, has_sent=True)
    assert bench.work(0) == [InfoRequest(7)]


def test_answers_make_room_for_more_requests() -> None:
    target = Missing((0, 40), joins_late=True)
    bench = Bench(target)
    assert bench.asked(0) == [(0, 4), (5, 9), (10, 14)]
    assert bench.asked(1) == []
    target.ranges = [(7, 40)]
    bench.recovery.retransmitted(0, 6, 2)
    assert bench.asked(2) == [(15, 19)]
    assert bench.recovery.requests == 3


def test_requests_reach_no_further_than_their_number_allows() -> None:
    target = Missing((0, 0), (10, 12), (14, 14), (20, 20), joins_late=True)
    bench = Bench(target)
    assert bench.asked(0) == [(0, 0), (10, 12), (14, 14)]
    target.ranges = [(0, 0), (20, 20)]
    bench.recovery.retransmitted(10, 14, 1)
    assert bench.asked(1) == []


def test_a_request_without_answer_is_sent_again_and_intervals_double() -> None:
    bench = Bench(Missing((0, 2), joins_late=True))
    times = [now_ns for now_ns in range(300) if bench.asked(now_ns)]
    assert times == [0, 10, 30, 70, 110, 150, 190, 230, 270]


def test_while_earlier_numbers_are_answered_a_request_waits_its_turn() -> None:
    target = Missing((0, 9), joins_late=True)
    bench = Bench(target)
    assert bench.asked(0) == [(0, 4), (5, 9)]
    target.ranges = [(2, 9)]
    bench.recovery.retransmitted(0, 1, 9)
    assert bench.asked(10) == [(2, 4)]
    assert bench.asked(19) == [(5, 9)]


def test_without_any_answer_all_is_given_up() -> None:
    bench = Bench(Missing((0, 90), joins_late=True))
    bench.asked(0)
    bench.target.ranges = [(5, 90)]
    bench.recovery.retransmitted(0, 4, 500)
    bench.asked(1499)
    assert bench.target.ended == 0
    assert bench.recovery.due_ns is not None
    assert bench.recovery.due_ns <= 1500
    bench.asked(1500)
    assert bench.target.ended == 1
    assert bench.recovery.due_ns is None


def test_a_gap_is_asked_for_after_the_delay_and_on_rings_at_once() -> None:
    bench = Bench(Missing((5, 6)), at_once=False)
    bench.recovery.missing(5, 6, 0)
    assert bench.asked(99) == []
    assert bench.recovery.due_ns == 100
    assert bench.asked(100) == [(5, 6)]
    bench = Bench(Missing((5, 6)))
    bench.recovery.missing(5, 6, 0)
    assert bench.asked(0) == [(5, 6)]


def test_when_too_many_wait_the_delay_is_over() -> None:
    bench = Bench(Missing((5, 6)), at_once=False)
    bench.recovery.missing(5, 6, 0)
    bench.target.skips_live = True
    assert bench.asked(1) == [(5, 6)]


def test_each_gap_has_its_own_delay() -> None:
    target = Missing((5, 6), (9, 9))
    bench = Bench(target, at_once=False)
    bench.recovery.missing(5, 6, 0)
    bench.recovery.missing(9, 9, 60)
    assert bench.asked(100) == [(5, 6)]
    target.ranges = [(9, 9)]
    bench.recovery.retransmitted(5, 6, 101)
    assert bench.asked(159) == []
    assert bench.asked(160) == [(9, 9)]


def test_a_channel_without_room_is_asked_later() -> None:
    bench = Bench(Missing((0, 40), joins_late=True))
    bench.room = 1
    assert bench.asked(0) == [(0, 4)]
    assert bench.recovery.due_ns == 1000
    bench.room = 100
    assert bench.asked(1) == [(5, 9), (10, 14)]
    bench.recovery.begin_late_join(2)
    bench.room = 0
    assert bench.work(2) == []
    assert bench.recovery.due_ns == 32


def test_a_new_channel_is_asked_for_everything() -> None:
    bench = Bench(Missing((0, 9), joins_late=True))
    assert bench.asked(0) == [(0, 4), (5, 9)]
    bench.recovery.channel_lost(5)
    bench.recovery.channel_ready(6)
    assert bench.asked(6) == [(0, 4), (5, 9)]


def test_the_time_in_which_a_receiver_has_no_room_is_not_the_sources() -> None:
    bench = Bench(Missing((0, 4), joins_late=True))
    bench.asked(0)
    bench.recovery.hold(995)
    assert bench.asked(1000) == []
    assert bench.target.ended == 0
    assert bench.asked(1005) == [(0, 4)]


def test_a_context_that_buffered_too_much_is_asked_for_one_range_at_a_time() -> None:
    bench = Bench(Missing((0, 40), joins_late=True))
    bench.target.relieved = 1
    assert bench.asked(0) == [(0, 4)]
    assert bench.recovery.due_ns == 10
    bench.target.ranges = [(5, 40)]
    bench.recovery.retransmitted(0, 4, 5)
    assert bench.asked(5) == [(5, 9)]
    assert bench.asked(10) == [(10, 14), (15, 19)]


def test_the_source_is_asked_only_for_what_nothing_else_brings() -> None:
    bench = Bench(Missing((0, 9), (20, 29)))
    bench.recovery.asks_from, bench.recovery.asks_below = 5, 8
    bench.recovery.missing(0, 29, 0)
    assert [number for first, last in bench.asked(0) for number in range(first, last + 1)] == [5, 6, 7]
    bench.recovery.asks_below = 5
    assert bench.recovery.due_ns is None
