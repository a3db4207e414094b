"""What a thread that pulls takes in compiled code, and when Python goes on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ipcbus.delivery.puller import Puller
from ipcbus.delivery.pump import GUESTS, Pump
from ipcbus.delivery.sink import Sink

FOREVER_NS = 1 << 62
ONE, TWO, THREE, SLOWLY = (cast("Any", text) for text in ("one", "two", "three", "slowly"))


@pytest.fixture
def pump() -> Pump:
    made = Pump()
    made.set_timer(FOREVER_NS)
    return made


@pytest.fixture
def sink() -> Sink:
    return Sink(None, 10)


class Slow:
    """Python's parts, noted."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def take(self, timeout: object) -> Any:  # noqa: ANN401 - a sign instead of a message
        self.calls.append((timeout,))
        return SLOWLY

    def take_many(self, limit: int, timeout: object) -> Any:  # noqa: ANN401
        self.calls.append((limit, timeout))
        return SLOWLY


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def puller(pump: Pump, sink: Sink, slow: Slow) -> Puller:
    return Puller(pump, sink, slow.take, slow.take_many)


def test_it_takes_in_order_and_then_finds_nothing(puller: Puller, sink: Sink, slow: Slow) -> None:
    sink.queue.extend([ONE, TWO, THREE])
    assert [puller.take(0) for _ in range(4)] == [ONE, TWO, THREE, None]
    sink.queue.extend([ONE, TWO, THREE])
    assert puller.take_many(2, 0) == [ONE, TWO]
    assert puller.take_many(2, 0) == [THREE]
    assert puller.take_many(2, 0) == []
    assert puller.take_many(0, 0) == []
    sink.queue.extend([ONE, TWO, THREE])
    assert not slow.calls
    assert puller.take_many(1 << 100, None) == [ONE, TWO, THREE]


def test_python_goes_on_when_it_has_something_to_do(puller: Puller, pump: Pump, sink: Sink, slow: Slow) -> None:
    pump.want(GUESTS)
    assert [puller.take(2.0), puller.take_many(1, 2.0)] == [SLOWLY, SLOWLY]
    sink.queue.extend([ONE, TWO])
    assert puller.take(2.0) == ONE
    # Python looks for more messages, so that the call returns what is there.
    assert puller.take_many(2, 2.0) == SLOWLY
    assert list(sink.queue) == [TWO]
    assert puller.take_many(1, 2.0) == [TWO]
    assert slow.calls == [(2.0,), (1, 2.0), (2, 0.0)]


def test_a_session_that_waits_for_room_is_told_by_python(puller: Puller, pump: Pump, sink: Sink, slow: Slow) -> None:
    pump.blocked = True
    sink.queue.append(ONE)
    assert [puller.take(3), puller.take_many(1, None)] == [SLOWLY, SLOWLY]
    assert list(sink.queue) == [ONE]
    assert slow.calls == [(3,), (1, None)]


@pytest.mark.parametrize("timeout", ["1", True, 1 << 2000])
def test_python_checks_odd_timeouts_when_there_is_no_message(
    puller: Puller, sink: Sink, slow: Slow, timeout: object
) -> None:
    odd = cast("Any", timeout)
    assert [puller.take(odd), puller.take_many(1, odd)] == [SLOWLY, SLOWLY]
    assert slow.calls == [(timeout,), (1, timeout)]
    sink.queue.append(ONE)
    assert puller.take(odd) == ONE


def test_python_checks_a_receiver_that_is_closed_or_has_an_error(puller: Puller, sink: Sink, slow: Slow) -> None:
    puller.error = KeyboardInterrupt()
    assert puller.take(0) == SLOWLY
    puller.error = None
    sink.closed = True
    sink.queue.append(ONE)
    assert puller.take(0) == ONE
    assert [puller.take(None), puller.take_many(1, 5)] == [SLOWLY, SLOWLY]
    assert slow.calls == [(0,), (None,), (1, 5)]


def test_python_refuses_to_pull_from_a_receiver_with_a_callback(pump: Pump, slow: Slow) -> None:
    event_queue: Any = object()
    for sink in (Sink(lambda _: None, 1), Sink(lambda _: None, 1, event_queue)):
        assert Puller(pump, sink, slow.take, slow.take_many).take(0) == SLOWLY


def test_a_wait_leaves_the_message_in_the_queue(puller: Puller, pump: Pump, sink: Sink) -> None:
    pump.want(GUESTS)
    assert puller.wait(2.0) == 2.0
    pump.unwant(GUESTS)
    assert puller.wait(0) < 0
    sink.queue.append(ONE)
    assert puller.wait(None) < 0
    assert list(sink.queue) == [ONE]


def test_a_task_takes_what_waits_and_lets_others_run_in_between(puller: Puller, pump: Pump, sink: Sink) -> None:
    assert puller.take_queued() is None
    sink.queue.extend([ONE] * 100_000)
    taken = [puller.take_queued() for _ in range(100_000)]
    assert 0 < taken.count(None) < 50_000
    assert len(sink.queue) == taken.count(None)
    pump.blocked = True
    assert puller.take_queued() is None
