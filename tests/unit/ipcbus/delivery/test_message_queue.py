"""The queue of a receiver that is pulled from behaves as a deque."""

from __future__ import annotations

import gc
import itertools
import random
import weakref
from collections import deque
from typing import Any, cast

import pytest

from ipcbus.delivery.message_queue import MessageQueue
from ipcbus.delivery.received_message import Message, Origin, whole_message
from ipcbus.delivery.sink import Sink
from tests.kit.cases import each_of


@each_of("seed", range(5))
def test_it_does_what_a_deque_does(seed: int) -> None:
    chance = random.Random(seed)
    queue, model, numbers = cast("Any", MessageQueue()), deque[int](), itertools.count(1)
    for _ in range(2000):
        step = chance.choice(
            ["append", "append", "append", "appendleft", "popleft", "popleft", "remove", "clear", "many"]
        )
        if step == "many":
            more = [next(numbers) for _ in range(chance.randrange(200))]
            queue.extend(more)
            model.extend(more)
        elif step == "remove" and model:
            taken = chance.choice(model)
            queue.remove(taken)
            model.remove(taken)
        elif step == "clear" and chance.random() < 0.1:
            queue.clear()
            model.clear()
        elif step == "popleft" and model:
            assert queue.popleft() == model.popleft()
        elif step.startswith("append"):
            added = next(numbers)
            getattr(queue, step)(added)
            getattr(model, step)(added)
        assert len(queue) == len(model)
        assert not model or (queue[0], queue[-1], queue[len(model) // 2]) == (
            model[0],
            model[-1],
            model[len(model) // 2],
        )
    assert list(queue) == list(model)


def test_what_is_not_there_is_an_error() -> None:
    queue = cast("Any", MessageQueue())
    queue.append("one")
    queue.popleft()
    with pytest.raises(IndexError):
        queue.popleft()
    for place in (0, -1):
        with pytest.raises(IndexError):
            queue[place]
    with pytest.raises(ValueError, match="does not wait"):
        queue.remove("one")


def test_it_keeps_nothing_that_was_taken_and_no_cycle() -> None:
    class Kept:
        pass

    queue = cast("Any", MessageQueue())
    taken, cyclic = Kept(), Kept()
    queue.append(taken)
    queue.popleft()
    cyclic.queue = queue  # type: ignore[attr-defined]
    queue.append(cyclic)
    found = weakref.ref(taken), weakref.ref(cyclic)
    del taken
    assert found[0]() is None
    del queue, cyclic
    gc.collect()
    assert found[1]() is None


@pytest.mark.parametrize("allocations", range(1, 5))
@pytest.mark.parametrize("step", ["clear", "append", "appendleft", "iterate"])
def test_code_that_the_garbage_collector_runs_in_the_middle_of_a_step_may_take_a_message(
    step: str, allocations: int
) -> None:
    queue = cast("Any", MessageQueue())
    queue.extend(range(64))  # full: one more makes it grow
    taken: list[int] = []

    def take_one(phase: str, _info: dict[str, int]) -> None:
        if phase == "start" and not taken and len(queue):  # Python 3.14 collects later
            taken.append(queue.popleft())

    run = {"clear": queue.clear, "iterate": lambda: list(queue)}.get(step) or (lambda: getattr(queue, step)(64))
    threshold = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(take_one)
    try:
        gc.set_threshold(allocations)
        run()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(take_one)
    assert sorted([*taken, *queue]) == (taken if step == "clear" else list(range(64 + step.startswith("append"))))
    assert len(queue) == len(list(queue))


def test_the_bytes_that_wait_fill_it() -> None:
    sink = Sink(None, 100, queue_bytes_max=1000)
    queue = sink.queue

    def put(length: int, number: int) -> Message:
        message = whole_message(Origin("t", "s"), bytes(length), number, number, 0, 0, None)
        sink.take(message, cast("Any", None))
        return message

    put(5000, 0)  # an empty one takes any message
    assert (sink.is_full_now(), queue.has_room_again()) == (True, False)
    queue.popleft()
    for number in range(1, 60):
        put(10, number)
    assert (sink.is_full_now(), queue.has_room_again()) == (False, False)
    last = put(410, 60)
    assert sink.is_full_now()
    queue.remove(last)
    assert not sink.is_full_now()
    queue.appendleft(last)
    assert sink.is_full_now()
    queue.clear()
    assert (sink.is_full_now(), queue.has_room_again()) == (False, True)
    headers = whole_message(Origin("t", "s"), b"", 1, 1, 0, 0, None, bytes(1000))
    sink.take(headers, cast("Any", None))
    assert sink.is_full_now()  # headers count
    queue.popleft()
    for number in range(100):
        put(0, number)
    assert sink.is_full_now()
