"""What a step of `async for` does without a task or a future, and when it waits or lets other tasks run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from ipcbus.delivery.async_messages import AsyncMessages
from ipcbus.delivery.pump import HURRIED, Pump
from ipcbus.delivery.sink import Sink
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

FOREVER_NS = 1 << 62
ONE, TWO, LATER = (cast("Any", text) for text in ("one", "two", "later"))


class Stand:
    """Steps over a queue, with what they call noted."""

    def __init__(self, linger_ns: int = 0) -> None:
        self.pump, self.sink = Pump(linger_ns=linger_ns), Sink(None, 10)
        self.pump.set_timer(FOREVER_NS)
        self.calls: list[str] = []
        self.messages = AsyncMessages(
            self.pump, self.sink, self.wait, lambda: self.calls.append("turn"), lambda: self.calls.append("room")
        )

    async def wait(self) -> Any:  # noqa: ANN401 - a sign instead of a message
        self.calls.append("wait")
        await Pause()
        return LATER

    def step(self) -> Generator[Any, Any, object]:
        """The next step, as a task would run it."""
        return self.messages.__anext__().__await__()


class Pause:
    """Ends after the task was suspended once."""

    def __await__(self) -> Generator[str, None, None]:
        yield "suspended"


async def awaited(step: Awaitable[object]) -> object:
    return await step


def result(step: Any) -> object:  # noqa: ANN401 - a coroutine or a step
    """What a step that is done at once brings."""
    with pytest.raises(StopIteration) as stopped:
        until_suspended(step)
    return stopped.value.value


def until_suspended(step: Any) -> object:  # noqa: ANN401
    """Sends until the step waits; it may let other tasks run before, as on a busy machine its share is over soon."""
    while (found := step.send(None)) is None:
        pass
    return found


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_a_step_is_done_at_once_while_there_are_messages(stand: Stand) -> None:
    stand.sink.queue.extend([ONE, TWO, ONE])
    assert result(stand.step()) == ONE
    assert result(awaited(stand.messages.__anext__())) == TWO
    iterated = stand.step()
    with pytest.raises(StopIteration, match="one"):
        while next(iterated) is None:
            pass
    assert stand.calls == []
    assert aiter(stand.messages) is stand.messages


def test_a_step_waits_where_no_message_has_come_for_a_time(stand: Stand) -> None:
    step = stand.step()
    assert until_suspended(step) == "suspended"
    assert result(step) == LATER
    assert stand.calls == ["wait"]


def test_after_a_message_a_step_looks_again_before_it_waits(stand: Stand) -> None:
    stand.sink.queue.append(ONE)
    result(stand.step())
    assert until_suspended(stand.step()) == "suspended"
    stand.sink.queue.append(ONE)
    result(stand.step())
    step = stand.step()
    if step.send(None) is None:  # else this process was held up meanwhile
        stand.sink.queue.append(TWO)
        assert result(step) == TWO


def test_after_a_short_wait_a_step_looks_again_for_as_long(stand: Stand) -> None:
    for each, spins in ((stand, False), (Stand(int(GIVE_UP_S * 1e9)), True)):
        waits = each.step()
        assert until_suspended(waits) == "suspended"
        assert result(waits) == LATER
        step, begin = each.step(), time.monotonic_ns()
        while step.send(None) is None and time.monotonic_ns() - begin < 2_000_000:
            pass
        assert each.calls == ["wait"] * (1 if spins else 2)
    each.sink.queue.append(TWO)
    assert result(step) == TWO


def test_a_step_that_never_waits_lets_others_run_in_between(stand: Stand) -> None:
    stand.sink.queue.extend([ONE] * 100_000)
    pauses = 0
    while stand.sink.queue:
        step = stand.step()
        try:
            assert step.send(None) is None
        except StopIteration:
            continue
        pauses += 1
        assert result(step) == ONE  # a pause never follows a pause
    assert 0 < pauses < 50_000


def test_a_step_takes_nothing_before_it_is_awaited(stand: Stand) -> None:
    stand.sink.queue.append(ONE)
    stand.step()
    cancelled = stand.step()
    with pytest.raises(KeyError):
        cancelled.throw(KeyError("cancelled"))
    closed = stand.step()
    closed.close()
    for step in (cancelled, closed):
        with pytest.raises(RuntimeError, match="awaited before"):
            step.send(None)
    assert list(stand.sink.queue) == [ONE]


def test_what_is_thrown_ends_the_wait(stand: Stand) -> None:
    thrown, closed = stand.step(), stand.step()
    assert [until_suspended(step) for step in (thrown, closed)] == ["suspended"] * 2
    with pytest.raises(KeyError):
        thrown.throw(KeyError("cancelled"))
    closed.close()
    for step in (thrown, closed):
        with pytest.raises(RuntimeError):
            step.send(None)


def test_python_runs_a_turn_when_it_has_something_to_do(stand: Stand) -> None:
    stand.pump.want(HURRIED)
    until_suspended(stand.step())
    assert stand.calls == ["turn", "wait"]


def test_python_hears_of_room(stand: Stand) -> None:
    stand.pump.blocked = True
    stand.sink.queue.append(ONE)
    assert result(stand.step()) == ONE
    assert stand.calls == ["room"]


def test_a_closed_receiver_gives_what_it_has_and_then_asks_python(stand: Stand) -> None:
    stand.sink.queue.append(ONE)
    stand.sink.closed = True
    assert result(stand.step()) == ONE
    assert until_suspended(stand.step()) == "suspended"


@pytest.mark.parametrize("sink", [Sink(print, 10), Sink(print, 10, cast("Any", "an event queue"))])
def test_what_cannot_be_pulled_or_is_not_direct_is_up_to_python(sink: Sink) -> None:
    stand = Stand()
    sink.queue.append(ONE)
    stand.sink.queue.append(ONE)
    for each in (
        AsyncMessages(stand.pump, sink, stand.wait, print, print),
        AsyncMessages(stand.pump, stand.sink, stand.wait, print, print, direct=False),
    ):
        step = cast("Any", each.__anext__()).__await__()
        assert until_suspended(step) == "suspended"
    assert list(sink.queue) == list(stand.sink.queue) == [ONE]
