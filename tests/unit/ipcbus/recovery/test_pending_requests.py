"""Requests in flight: each response reaches its own asker or nobody, and each request ends once."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ipcbus.recovery.pending_requests import FOREVER_NS, PendingRequests
from tests.kit.cases import each_of

LAST = (1 << 64) - 1
MAXIMUM = 5


def begin(pending: PendingRequests[Any], asker: object, *, is_single: bool = True) -> int:
    """Begins a request for which there is room."""
    number = pending.begin(asker, is_single=is_single)
    assert number is not None
    return number


@each_of("first", [0, 12345, LAST, LAST - 1])
def test_numbers_follow_each_other_and_wrap_around(first: int) -> None:
    pending: PendingRequests[str] = PendingRequests(first, 10)
    numbers = [begin(pending, "asker") for _ in range(4)]
    assert numbers == [(first + place) & LAST for place in range(4)]
    assert pending.take_response((first - 1) & LAST) is None
    assert pending.take_response((first + 4) & LAST) is None
    assert (pending.late, pending.unknown) == (0, 2)


def test_the_first_response_ends_a_single_request_and_a_later_one_is_late() -> None:
    pending: PendingRequests[str] = PendingRequests(5, 10)
    number = begin(pending, "one")
    assert pending.take_response(number) == "one"
    assert pending.take_response(number) is None
    assert (len(pending), pending.responses, pending.late, pending.unknown) == (0, 1, 1, 0)
    assert not pending.end(number)


def test_several_responses_come_until_the_request_ends() -> None:
    pending: PendingRequests[str] = PendingRequests(5, 10)
    number = begin(pending, "many", is_single=False)
    assert [pending.take_response(number) for _ in range(3)] == ["many"] * 3
    assert pending.end(number)
    assert pending.take_response(number) is None
    assert (pending.responses, pending.late) == (3, 1)


def test_it_is_full_until_a_request_ends() -> None:
    pending: PendingRequests[int] = PendingRequests(0, 2)
    numbers = [begin(pending, each) for each in range(2)]
    assert pending.begin(2, is_single=True) is None
    assert pending.begun == 2
    pending.take_response(numbers[0])
    assert begin(pending, 3) == 2
    assert pending.askers() == [1, 3]


def test_requests_end_when_their_time_is_over() -> None:
    pending: PendingRequests[str] = PendingRequests(0, 10)
    pending.begin("never", is_single=True)
    assert pending.check_at_ns == FOREVER_NS
    pending.begin("later", is_single=True, until_ns=200)
    soon = pending.begin("soon", is_single=False, until_ns=100)
    assert soon is not None
    assert pending.check_at_ns == 100
    assert pending.end_due(99) == []
    assert pending.end_due(100) == ["soon"]
    assert pending.take_response(soon) is None
    assert pending.check_at_ns == 200
    assert pending.end_due(1000) == ["later"]
    assert (len(pending), pending.check_at_ns) == (1, FOREVER_NS)


class Machine(RuleBasedStateMachine):
    """Any order of calls, beside a model that knows only sets."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: PendingRequests[int] = PendingRequests(LAST - 3, MAXIMUM)
        self.now = 0
        self.count = 0
        self.live: dict[int, tuple[int, bool, int]] = {}
        self.ended: set[int] = set()

    @rule(single=st.booleans(), wait=st.sampled_from([1, 3, 10, FOREVER_NS]))
    def begin(self, single: bool, wait: int) -> None:
        until = min(FOREVER_NS, self.now + wait)
        number = self.pending.begin(self.count, is_single=single, until_ns=until)
        assert (number is None) == (len(self.live) == MAXIMUM)
        if number is None:
            return
        assert number not in self.live
        assert number not in self.ended
        self.live[number] = (self.count, single, until)
        self.count += 1

    @rule(step=st.integers(0, 8))
    def respond(self, step: int) -> None:
        number = (LAST - 3 + step) & LAST
        late, unknown = self.pending.late, self.pending.unknown
        found = self.pending.take_response(number)
        if number in self.live:
            assert found == self.live[number][0]
            if self.live[number][1]:
                self.ended.add(number)
                del self.live[number]
        else:
            assert found is None
            is_late = number in self.ended
            assert (self.pending.late, self.pending.unknown) == (late + is_late, unknown + (not is_late))

    @rule(step=st.integers(0, 8))
    def end(self, step: int) -> None:
        number = (LAST - 3 + step) & LAST
        assert self.pending.end(number) == (number in self.live)
        if self.live.pop(number, None) is not None:
            self.ended.add(number)

    @rule(more=st.integers(0, 4))
    def pass_time(self, more: int) -> None:
        self.now += more
        due = [number for number, (_, _, until) in self.live.items() if until <= self.now]
        assert self.pending.end_due(self.now) == [self.live[number][0] for number in due]
        for number in due:
            self.ended.add(number)
            del self.live[number]

    @invariant()
    def agrees(self) -> None:
        assert self.pending.askers() == [asker for asker, _, _ in self.live.values()]
        assert all(until > self.now for _, _, until in self.live.values())
        assert self.pending.check_at_ns <= min([FOREVER_NS, *(until for _, _, until in self.live.values())])


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=40)  # of up to 50 calls each
