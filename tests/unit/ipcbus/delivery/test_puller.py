"""What a thread that pulls takes in compiled code, and when Python goes on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ipcbus.delivery.puller import Puller
from ipcbus.delivery.pump import GUESTS, Pump
from ipcbus.delivery.sink import Sink

FOREVER_NS = 1 << 62
ONE, TWO, THREE = (cast("Any", text) for text in ("one", "two", "three"))


@pytest.fixture
def pump() -> Pump:
    made = Pump()
    made.set_timer(FOREVER_NS)
    return made


@pytest.fixture
def sink() -> Sink:
    return Sink(None, 10)


@pytest.fixture
def puller(pump: Pump, sink: Sink) -> Puller:
    return Puller(pump, sink)


def is_nan(found: object) -> bool:
    return isinstance(found, float) and found != found


def test_it_takes_in_order_and_then_finds_nothing(puller: Puller, sink: Sink) -> None:
    sink.queue.extend([ONE, TWO, THREE])
    assert [puller.take(0) for _ in range(4)] == [ONE, TWO, THREE, None]
    sink.queue.extend([ONE, TWO, THREE])
    assert puller.take_many(2, 0) == [ONE, TWO]
    assert puller.take_many(2, 0) == [THREE]
    assert puller.take_many(2, 0) == []
    assert puller.take_many(0, 0) == []
    sink.queue.extend([ONE, TWO, THREE])
    assert puller.take_many(1 << 100, None) == [ONE, TWO, THREE]


def test_python_goes_on_when_it_has_something_to_do(puller: Puller, pump: Pump, sink: Sink) -> None:
    pump.want(GUESTS)
    assert puller.take(2.0) == puller.take_many(1, 2.0) == 2.0
    sink.queue.extend([ONE, TWO])
    assert puller.take(2.0) == ONE
    # Python looks for more messages, so that the call returns what is there.
    assert puller.take_many(2, 2.0) == 0
    assert list(sink.queue) == [TWO]
    assert puller.take_many(1, 2.0) == [TWO]


def test_a_session_that_waits_for_room_is_told_by_python(puller: Puller, pump: Pump, sink: Sink) -> None:
    pump.blocked = True
    sink.queue.append(ONE)
    assert is_nan(puller.take(0))
    assert is_nan(puller.take_many(1, 0))
    assert list(sink.queue) == [ONE]


@pytest.mark.parametrize("timeout", ["1", True, float("nan")])
def test_python_checks_odd_timeouts_when_there_is_no_message(puller: Puller, sink: Sink, timeout: object) -> None:
    assert is_nan(puller.take(timeout))
    assert is_nan(puller.take_many(1, timeout))
    sink.queue.append(ONE)
    assert puller.take(timeout) == ONE


def test_python_checks_a_receiver_that_is_closed_or_has_an_error(puller: Puller, sink: Sink) -> None:
    puller.error = KeyboardInterrupt()
    assert is_nan(puller.take(0))
    puller.error = None
    sink.closed = True
    sink.queue.append(ONE)
    assert puller.take(0) == ONE
    assert is_nan(puller.take(0))
    assert is_nan(puller.take_many(1, 0))


def test_python_refuses_to_pull_from_a_receiver_with_a_callback(pump: Pump) -> None:
    assert is_nan(Puller(pump, Sink(lambda _: None, 1)).take(0))
    event_queue: Any = object()
    assert is_nan(Puller(pump, Sink(lambda _: None, 1, event_queue)).take(0))
