from __future__ import annotations

from ipcbus.recovery.range_requests import NUMBERS_A_REQUEST, RangeRequests, RequestTimes

TIMES = RequestTimes(interval_ns=10, interval_max_ns=25, timeout_ns=100, outstanding_max=3)
N = NUMBERS_A_REQUEST


def test_requests_are_large_and_limited_in_number() -> None:
    requests = RangeRequests(TIMES)
    assert requests.ask(0, 10 * N, 0) == [(0, N - 1), (N, 2 * N - 1), (2 * N, 3 * N - 1)]
    assert requests.ask(0, 10 * N, 1) == []
    assert requests.accepts(0, 9)
    assert not requests.accepts(1, 9)
    assert not requests.accepts(0, 3 * N)
    requests.answered(9, 2)
    assert requests.ask(10, 10 * N, 2) == []  # a small request can wait
    requests.answered(N - 1, 3)
    assert requests.ask(N, 10 * N, 3) == [(3 * N, 4 * N - 1)]


def test_the_end_of_a_range_is_asked_for_however_small() -> None:
    requests = RangeRequests(TIMES)
    assert requests.ask(5, 5, 0) == [(5, 5)]
    assert requests.ask(5, 7, 1) == [(6, 7)]


def test_without_an_answer_it_asks_again_less_often_and_gives_up() -> None:
    requests = RangeRequests(TIMES)
    assert requests.ask(0, 5, 0)
    asked = [now for now in range(1, 100) if requests.ask(0, 5, now)]
    assert asked == [10, 30, 55, 80]
    assert not requests.is_hopeless(99)
    assert requests.is_hopeless(100)
    requests.answered(2, 100)
    assert not requests.is_hopeless(199)
    assert requests.next_ns == 110


def test_time_does_not_count_while_a_receiver_has_no_room() -> None:
    requests = RangeRequests(TIMES)
    requests.ask(0, 5, 0)
    requests.hold(90)
    assert not requests.is_hopeless(189)


def test_another_range_begins_afresh() -> None:
    requests = RangeRequests(TIMES)
    requests.ask(0, 5, 0)
    assert requests.ask(100, 105, 50) == [(100, 105)]
    assert not requests.is_hopeless(149)


def test_requests_that_could_not_be_sent_are_made_again() -> None:
    requests = RangeRequests(TIMES)
    requests.ask(0, 5, 0)
    requests.refused()
    assert requests.ask(0, 5, 1) == [(0, 5)]
