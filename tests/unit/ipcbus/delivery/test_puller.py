"""What a thread that pulls takes in compiled code, and when Python goes on."""

from __future__ import annotations

import math
import threading
from typing import Any, cast

import pytest

from ipcbus.delivery.puller import Puller
from ipcbus.delivery.pump import URGENT, Pump
from ipcbus.delivery.sink import Sink
from ipcbus.errors import ClosedError

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


class Slow(Puller):
    """A receiver whose parts in Python are noted."""

    def __init__(self, pump: Pump, sink: Sink, acknowledges: bool = False) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.lock = threading.Lock()
        super().__init__(pump, sink, self.lock, lambda error: self.calls.append((type(error),)), acknowledges)

    def _take_slowly(self, timeout: object) -> Any:  # noqa: ANN401 - a sign instead of a message
        self.calls.append((timeout,))
        return SLOWLY

    def _take_many_slowly(self, limit: int, timeout: object) -> Any:  # noqa: ANN401
        self.calls.append((limit, timeout))
        return [SLOWLY]

    def _take_into_slowly(self, array: object, timeout: object, filled: int) -> Any:  # noqa: ANN401
        self.calls.append((array, timeout, filled))
        return SLOWLY

    _take_acknowledging, _take_many_acknowledging = _take_slowly, _take_many_slowly

    def _take_into_acknowledging(self, array: object, timeout: object) -> Any:  # noqa: ANN401
        return self._take_into_slowly(array, timeout, -1)

    def _check_limit(self, limit: object) -> None:
        raise TypeError(limit)

    def _check_timeout(self, timeout: object) -> None:
        if not isinstance(timeout, int):
            raise TypeError(timeout)


@pytest.fixture
def puller(pump: Pump, sink: Sink) -> Slow:
    return Slow(pump, sink)


def test_it_takes_in_order_and_then_finds_nothing(puller: Slow, sink: Sink) -> None:
    sink.queue.extend([ONE, TWO, THREE])
    assert [puller.receive(0) for _ in range(4)] == [ONE, TWO, THREE, None]
    sink.queue.extend([ONE, TWO, THREE])
    assert puller.receive_many(2, 0) == [ONE, TWO]
    assert puller.receive_many(2, 0) == [THREE]
    assert puller.receive_many(2, 0) == []
    assert puller.receive_many(0, 0) == []
    sink.queue.extend([ONE, TWO, THREE])
    assert not puller.calls
    assert puller.receive_many(1 << 100, None) == [ONE, TWO, THREE]


def test_python_goes_on_when_it_has_something_to_do(puller: Slow, pump: Pump, sink: Sink) -> None:
    pump.want(URGENT)
    assert [puller.receive(2.0), puller.receive_many(1, 2.0)] == [SLOWLY, [SLOWLY]]
    sink.queue.extend([ONE, TWO])
    assert puller.receive(2.0) == ONE
    # Python looks for more messages, so that the call returns what is there.
    assert puller.receive_many(2, 2.0) == [SLOWLY]
    assert list(sink.queue) == [TWO]
    assert puller.receive_many(1, 2.0) == [TWO]
    assert puller.calls == [(2.0,), (1, 2.0), (2, 0.0)]


def test_a_session_that_waits_for_room_is_told_by_python(puller: Slow, pump: Pump, sink: Sink) -> None:
    pump.blocked = True
    sink.queue.append(ONE)
    assert [puller.receive(3), puller.receive_many(1, None)] == [SLOWLY, [SLOWLY]]
    assert list(sink.queue) == [ONE]
    assert puller.calls == [(3,), (1, None)]


@pytest.mark.parametrize("timeout", [True, 1 << 2000])
def test_python_checks_odd_timeouts_when_there_is_no_message(puller: Slow, sink: Sink, timeout: object) -> None:
    odd = cast("Any", timeout)
    assert [puller.receive(odd), puller.receive_many(1, odd)] == [SLOWLY, [SLOWLY]]
    assert puller.calls == [(timeout,), (1, timeout)]
    sink.queue.append(ONE)
    assert puller.receive(odd) == ONE


@pytest.mark.parametrize("waiting", [[], [ONE]])
@pytest.mark.parametrize("timeout", ["1", b"", math.nan, [1.0]])
def test_what_is_no_time_is_refused_before_a_message_is_taken(
    puller: Slow, sink: Sink, timeout: object, waiting: list[Any]
) -> None:
    sink.queue.extend(waiting)
    for pull in (puller.receive, lambda odd: puller.receive_many(1, odd)):
        with pytest.raises(TypeError):
            pull(cast("Any", timeout))
    assert list(sink.queue) == waiting
    assert not puller.calls


def test_python_checks_a_receiver_that_is_closed_or_has_an_error(puller: Slow, sink: Sink) -> None:
    puller._error = KeyboardInterrupt()
    assert puller.receive(0) == SLOWLY
    puller._error = None
    sink.closed = True
    sink.queue.append(ONE)
    assert puller.receive(0) == ONE
    assert [puller.receive(None), puller.receive_many(1, 5)] == [SLOWLY, [SLOWLY]]
    assert puller.calls == [(0,), (None,), (1, 5)]


def test_python_refuses_to_pull_from_a_receiver_with_a_callback(pump: Pump) -> None:
    event_queue: Any = object()
    for sink in (Sink(lambda _: None, 1), Sink(lambda _: None, 1, event_queue)):
        assert Slow(pump, sink).receive(0) == SLOWLY


def test_python_fills_rows_when_it_has_something_to_do(puller: Slow, pump: Pump, sink: Sink) -> None:
    rows = bytearray(8)
    assert puller.receive_into(memoryview(rows).cast("B", (2, 4)), 0) == 0
    rows.append(0)  # nothing holds it any more
    with pytest.raises(TypeError, match="0-byte|1-byte"):
        puller.receive_into(rows, 0)
    with puller.lock:
        assert puller.receive_into(rows, 2.0) == SLOWLY
    pump.want(URGENT)
    assert puller.receive_into(rows, 3.0) == SLOWLY
    pump.unwant(URGENT)
    sink.queue.append(ONE)
    assert puller.receive_into(rows, None) == SLOWLY
    sink.queue.clear()
    puller._error = KeyboardInterrupt()
    assert puller.receive_into(rows, 1) == SLOWLY
    assert puller.calls == [(rows, 2.0, 0), (rows, 3.0, 0), (rows, None, 0), (rows, 1, 0)]


def test_a_wait_leaves_the_message_in_the_queue(puller: Slow, pump: Pump, sink: Sink) -> None:
    pump.want(URGENT)
    assert puller._wait(2.0) == 2.0
    pump.unwant(URGENT)
    assert puller._wait(0) < 0
    sink.queue.append(ONE)
    assert puller._wait(None) < 0
    assert list(sink.queue) == [ONE]


def test_a_for_takes_what_waits_and_ends_when_python_says_closed(puller: Slow, pump: Pump, sink: Sink) -> None:
    sink.queue.extend([ONE, TWO])
    pulls = iter(puller)
    assert iter(pulls) is pulls
    assert [next(pulls), next(puller.__iter__())] == [ONE, TWO]
    pump.want(URGENT)
    assert next(pulls) == SLOWLY
    assert puller.calls == [(math.inf,)]
    puller._error = KeyboardInterrupt()  # the timeout is handed on as it is
    assert next(pulls) == SLOWLY
    assert puller.calls[1:] == [(None,)]


def test_closing_ends_a_for_and_an_interrupt_is_shortened(
    puller: Slow, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.closed = True
    for kind, raised in ((ClosedError, StopIteration), (KeyboardInterrupt, KeyboardInterrupt)):

        def fail(_: Slow, __: object, kind: type[BaseException] = kind) -> Any:  # noqa: ANN401
            raise kind

        monkeypatch.setattr(Slow, "_take_slowly", fail)
        with pytest.raises(raised):
            next(iter(puller))
    assert puller.calls == [(KeyboardInterrupt,)]


def test_each_pull_of_a_named_receiver_is_python_s(pump: Pump, sink: Sink) -> None:
    puller = Slow(pump, sink, True)
    sink.queue.extend([ONE, TWO, THREE])
    assert [puller.receive(1), puller.receive_many(2, 3), next(iter(puller))] == [SLOWLY, [SLOWLY], SLOWLY]
    assert puller.receive_into(bytearray(8), 4) == SLOWLY
    assert puller.calls == [(1,), (2, 3), (None,), (bytearray(8), 4, -1)]
    assert len(sink.queue) == 3


def test_a_receiver_that_was_not_made_does_not_crash() -> None:
    class Unmade(Puller):
        def __init__(self) -> None:
            pass

    with pytest.raises(AttributeError):
        Unmade().receive(0)
    with pytest.raises(AttributeError):
        next(iter(Unmade()))


@pytest.mark.parametrize("limit", [-1, 1.5, True, "1"])
def test_python_checks_odd_limits(puller: Slow, limit: object) -> None:
    with pytest.raises(TypeError):
        puller.receive_many(cast("Any", limit))
