from __future__ import annotations

import time

from ringbuf import clock

SECOND = 1_000_000_000


def test_ticks_never_go_back() -> None:
    before = clock.ticks()
    for _ in range(1000):
        now = clock.ticks()
        assert now >= before
        before = now


def test_monotonic_kind_ticks_in_nanoseconds() -> None:
    assert clock.kind() in (clock.KIND_MONOTONIC, clock.KIND_TSC)
    assert clock.tick_ns() > 0
    assert clock.kind() != clock.KIND_MONOTONIC or clock.tick_ns() == 1.0


def test_tick_lasts_what_it_says() -> None:
    clock.recalibrate()
    outer_begin = time.monotonic_ns()
    first = clock.ticks()
    inner_begin = time.monotonic_ns()
    while time.monotonic_ns() < inner_begin + 5_000_000:
        pass
    inner = time.monotonic_ns() - inner_begin
    last = clock.ticks()
    outer = time.monotonic_ns() - outer_begin
    assert inner * 0.999 <= (last - first) * clock.tick_ns() <= outer * 1.001


def test_moment_of_a_tick_lies_between_two_looks_at_the_real_clock() -> None:
    clock.recalibrate()
    before = time.time_ns()
    moment = clock.ticks_to_epoch_ns(clock.ticks())
    after = time.time_ns()
    assert before - 1_000_000 <= moment <= after + 1_000_000


def test_ticks_before_the_anchor_have_a_moment_too() -> None:
    ticks = clock.ticks()
    clock.recalibrate()
    second = round(SECOND / clock.tick_ns())
    moments = [clock.ticks_to_epoch_ns(ticks + shift) for shift in (-second, 0, second)]
    assert abs(moments[1] - moments[0] - SECOND) < 10
    assert abs(moments[2] - moments[1] - SECOND) < 10
