"""The timer of the open datagram: when it runs again, and when the next send starts it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ipcbus.topic.batch_timer import TimerResult, publish_old
from tests.kit.cases import each_of


class Batch(SimpleNamespace):
    """What the timer knows of an open datagram; `fill_ns` in a burst."""

    fill_ns: int | None = None

    def watch_burst(self, goes_on: bool) -> int | None:
        return self.fill_ns if goes_on else None

    def end_timer(self) -> bool:
        self.timer_runs = self.ring.open_bytes != 0
        return not self.timer_runs


@each_of(
    ("rest_ns", "open_bytes", "result", "runs"),
    [
        (40, 100, TimerResult(40, False), True),  # not old enough yet
        (-1, 0, TimerResult(None, False), False),
        (-2, 0, TimerResult(None, True), False),
        (-1, 8, TimerResult(1000, False), True),  # another thread has sent since
        (-2, 8, TimerResult(1000, True), True),
    ],
)
def test_the_timer_runs_while_a_datagram_is_open(
    rest_ns: int, open_bytes: int, result: TimerResult, runs: bool
) -> None:
    asked: list[tuple[int, ...]] = []

    def flush_older(*args: int) -> int:
        asked.append(args)
        return rest_ns

    ring = SimpleNamespace(open_bytes=open_bytes, head=64)
    batch: Any = Batch(flush_older=flush_older, timer_runs=True, timer_head=64, ring=ring)
    assert publish_old(batch, 7, 1000, 5000) == result
    assert batch.timer_runs == runs
    assert asked == [(7, 1000, 5000)]


def test_the_timer_of_a_stream_goes_on_until_an_interval_passes_without_a_datagram() -> None:
    ring = SimpleNamespace(open_bytes=0, head=64)
    batch: Any = Batch(flush_older=lambda *_: -1, timer_runs=True, timer_head=0, ring=ring)
    assert publish_old(batch, 7, 1000, 0) == TimerResult(1000, False)
    assert batch.timer_runs
    assert publish_old(batch, 7, 1000, 0) == TimerResult(None, False)
    assert not batch.timer_runs
    ring.head = 128
    assert publish_old(batch, 7, 1000, 0) == TimerResult(None, False)


def test_in_a_burst_the_timer_looks_more_often() -> None:
    ring = SimpleNamespace(open_bytes=8, head=64)
    batch: Any = Batch(flush_older=lambda *_: 900, timer_runs=True, timer_head=0, ring=ring, fill_ns=10)
    assert publish_old(batch, 7, 1000, 0) == TimerResult(10, False)
    assert publish_old(batch, 7, 1000, 0) == TimerResult(900, False)
    ring.head = 128
    batch.flush_older = lambda *_: -1
    assert publish_old(batch, 7, 1000, 0) == TimerResult(10, False)
    ring.head = 192
    assert publish_old(batch, 7, 5, 0) == TimerResult(5, False)  # the interval of the option is shorter
