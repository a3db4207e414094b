"""Who is in the way of a waiting source, with a clock of the test's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.topic.slow_receivers import CHECKS_MIN, SlowReceivers

PATIENCE = 1000
A, B = (0, 1), (1, 1)


class Clock:
    """Looks every so often."""

    def __init__(self, step: int = 100) -> None:
        self.slow_receivers = SlowReceivers(PATIENCE)
        self.now = 5_000_000
        self.step = step

    def look(self, needed: int, **positions: int) -> list[str]:
        names = {"a": A, "b": B}
        late = self.slow_receivers.find_late(
            needed, {names[name]: position for name, position in positions.items()}, self.now
        )
        self.now += self.step
        return [name for name, reader in names.items() if reader in late]


def test_a_reader_that_stands_still_is_late_after_the_patience_and_not_before() -> None:
    clock = Clock()
    begin = clock.now
    while not (late := clock.look(500, a=100)):
        assert clock.now - clock.step - begin < PATIENCE
    assert late == ["a"]
    assert clock.now - clock.step - begin == PATIENCE


def test_a_reader_that_moves_but_not_far_enough_is_late_too() -> None:
    clock = Clock()
    assert [clock.look(500, a=position) for position in range(0, 110, 10)] == [[]] * 10 + [["a"]]


def test_a_reader_that_makes_each_room_in_time_is_never_late() -> None:
    """However long the source waits in all, and though it is full whenever anybody looks."""
    clock = Clock()
    needed = 500
    for _ in range(1000):
        for _ in range(9):
            assert clock.look(needed, a=needed - 1) == []
        needed += 500  # it has read what was needed, and the next send needs more at once
    assert clock.look(needed, a=needed) == []


def test_only_who_is_in_the_way_is_late() -> None:
    clock = Clock()
    late = [clock.look(500, a=499, b=500) for _ in range(11)]
    assert late[-1] == ["a"]
    assert not any(late[:-1])


def test_time_in_which_the_source_does_not_wait_does_not_count() -> None:
    clock = Clock()
    for _ in range(9):
        assert clock.look(500, a=100) == []
        assert clock.look(500, a=100) == []
        clock.slow_receivers.resume()
        clock.now += 100 * PATIENCE
    assert clock.look(500, a=100) == []
    assert clock.look(500, a=100) == ["a"]


def test_time_in_which_nobody_looked_counts_only_a_little() -> None:
    """Source and reader may have been stopped together."""
    clock = Clock(step=50 * PATIENCE)
    assert [clock.look(500, a=100) for _ in range(CHECKS_MIN + 1)] == [[]] * CHECKS_MIN + [["a"]]


def test_a_newcomer_in_the_slot_begins_anew() -> None:
    slow_receivers = SlowReceivers(PATIENCE)
    for now in range(0, 1000, 100):
        assert slow_receivers.find_late(500, {(0, 1): 100}, now) == []
    assert slow_receivers.find_late(500, {(0, 2): 100}, 1000) == []
    assert slow_receivers.find_late(500, {(0, 2): 100}, 1100) == []


def test_who_was_late_is_forgotten() -> None:
    clock = Clock()
    for _ in range(10):
        clock.look(500, a=100)
    assert clock.look(500, a=100) == ["a"]
    assert clock.look(500, a=100) == []


def test_next_look_is_in_time() -> None:
    slow_receivers = SlowReceivers(PATIENCE)
    now = 0
    while not slow_receivers.find_late(500, {A: 100}, now):
        assert 0 < slow_receivers.next_check_ns <= PATIENCE // CHECKS_MIN
        now += slow_receivers.next_check_ns
    assert now == PATIENCE


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 50), st.booleans()), max_size=200))
def test_nobody_is_late_who_was_never_in_the_way_for_that_long(turns: list[tuple[int, int, bool]]) -> None:
    """Against an oracle that knows when the reader last reached what was needed at the time."""
    slow_receivers = SlowReceivers(PATIENCE)
    now = position = needed = 0
    since: int | None = None
    for passed, progress, send in turns:
        now += passed
        position += progress
        if position >= needed:
            since = None
            needed = position + 100 if send else needed
        if position < needed and since is None:
            since = now
        late = slow_receivers.find_late(needed, {A: position}, now)
        if late:
            assert since is not None
            assert now - since >= PATIENCE
            since = now if position < needed else None
            needed = position


def test_a_reader_that_has_come_just_as_far_as_was_needed_is_in_the_way_anew() -> None:
    clock = Clock()
    for _ in range(8):
        assert clock.look(500, a=499) == []
    # Both looks find it where the first matter has ended; the second matter has its own time.
    assert [clock.look(1000, a=500) for _ in range(11)] == [[]] * 10 + [["a"]]


def test_the_next_look_comes_when_the_first_reader_would_be_late() -> None:
    clock = Clock(step=100)
    assert clock.slow_receivers.next_check_ns == PATIENCE // CHECKS_MIN
    for _ in range(10):
        clock.look(500, a=100)
    # It has been in the way for 900 of 1000: another quarter would be too late.
    assert clock.slow_receivers.next_check_ns == 100
