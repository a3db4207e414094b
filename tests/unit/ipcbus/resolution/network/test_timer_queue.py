from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.resolution.network.timer_queue import NEVER, TimerQueue


class Thing:
    def __init__(self) -> None:
        self.due_ns = NEVER


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 20)), max_size=300))
def test_the_earliest_comes_first_whatever_was_put_before(puts: list[tuple[int, int]]) -> None:
    things = [Thing() for _ in range(6)]
    deadlines: TimerQueue[Thing] = TimerQueue()
    for which, due_ns in puts:
        things[which].due_ns = due_ns
        if due_ns != NEVER:
            deadlines.put(things[which])
        waiting = [thing.due_ns for thing in things if thing.due_ns != NEVER]
        first = deadlines.first()
        assert (None if first is None else first.due_ns) == min(waiting, default=None)
        assert len(deadlines) <= 2 * len(things) + 64


def test_popped_is_gone() -> None:
    thing, deadlines = Thing(), TimerQueue[Thing]()
    thing.due_ns = 5
    deadlines.put(thing)
    assert deadlines.first() is thing
    deadlines.pop()
    assert deadlines.first() is None


def test_what_is_put_again_and_again_does_not_grow() -> None:
    thing, deadlines = Thing(), TimerQueue[Thing]()
    for due_ns in range(100_000):
        thing.due_ns = due_ns
        deadlines.put(thing)
        assert len(deadlines) <= 66
