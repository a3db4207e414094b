"""A queue between processes: start methods, the sentinel idiom, and a ledger of many that are killed."""

from __future__ import annotations

import collections
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ipcbus
from tests.kit.queue_work import counted_up, echo, put_all, taken
from tests.rings.children import Children
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

Start = Any
"""Multiprocessing with a start method; its three classes have no public base with these methods."""

GIVE_UP_S = 60.0
ITEMS: list[Any] = [b"bytes", "text", 1, 2.5, None.__class__, (1, "a"), {"a": [1]}, np.arange(6).reshape(2, 3)]


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Multiprocessing with a start method."""
    yield multiprocessing.get_context(request.param)
    if request.param == "forkserver":
        from multiprocessing import forkserver

        forkserver._forkserver._stop()  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer Pythons warn of a fork beside threads
def test_a_queue_goes_to_a_process_as_an_argument(start: Start) -> None:
    questions: ipcbus.Queue[Any] = ipcbus.Queue()
    answers: ipcbus.Queue[Any] = ipcbus.Queue(maxsize=3)
    process = start.Process(target=echo, args=(questions, answers))
    process.start()
    for item in [*ITEMS, None]:
        questions.put(item)
    for item in ITEMS:
        np.testing.assert_equal(answers.get(timeout=GIVE_UP_S), item)
    process.join()
    assert process.exitcode == 0
    assert answers.empty()


def test_what_is_put_after_a_join_never_overtakes(start: Start) -> None:
    queue: ipcbus.Queue[Any] = ipcbus.Queue()
    rounds = 20 if start.get_start_method() == "fork" else 1
    with Children() as children:
        for number in range(rounds):
            items = [(number, n) for n in range(20)]
            if rounds == 1:
                process = start.Process(target=put_all, args=(queue, items))
                process.start()
                process.join()
            else:
                children.run(put_all, queue, items).wait()
            queue.put(None)
            assert taken(queue) == items


# The others are about the thread that feeds a pipe, and about JoinableQueue.
OF_CPYTHON = [
    *("test_put", "test_get", "test_fork", "test_qsize", "test_timeout"),
    *("test_no_import_lock_contention", "test_closed_queue_put_get_exceptions"),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_tests_of_cpython_pass(method: str) -> None:
    pytest.importorskip("test._test_multiprocessing", reason="the tests of this interpreter are not installed")
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.cpython_queue", method, *OF_CPYTHON],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"Ran {len(OF_CPYTHON)} tests" in done.stderr


def test_many_producers_and_consumers() -> None:
    queue: ipcbus.Queue[Any] = ipcbus.Queue(maxsize=50)
    producers, consumers, items = 4, 3, 500
    with Children() as children:
        takers = [children.run(taken, queue) for _ in range(consumers)]
        putters = [children.run(counted_up, queue, producer, items) for producer in range(producers)]
        children.results(putters)
        for _ in takers:
            queue.put(None)
        found = [[pair(item) for item in each] for each in children.results(takers)]
    ledger = collections.Counter(item for each in found for item in each)
    assert ledger == {(producer, number): 1 for producer in range(producers) for number in range(items)}
    for each in found:
        for producer in range(producers):
            own = [number for who, number in each if who == producer]
            assert own == sorted(own)
    assert queue.counts == ipcbus.QueueCounts(producers * items + consumers, producers * items + consumers, 0, 0, 0)


def pair(item: tuple[int, int] | bytes | set[tuple[int, int]]) -> tuple[int, int]:
    """An item of `counted_up` as a pair."""
    if isinstance(item, bytes):
        producer, number = item.split()
        return int(producer), int(number)
    return next(iter(item)) if isinstance(item, set) else item


def dies(queue: ipcbus.Queue[Any], results: ipcbus.Queue[Any], step: str, after: int) -> None:
    """Uses a queue until its own death, at a step of this number."""
    left = after

    def checkpoint(name: str) -> None:
        nonlocal left
        left -= name == step
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    queue._ring.checkpoint = checkpoint
    number = 0
    while True:
        if step.startswith("put"):
            queue.put((os.getpid(), number))
            number += 1
        else:
            results.put(queue.get())


def test_kills_at_any_time_lose_and_double_nothing_that_was_in_the_queue() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    queue: ipcbus.Queue[Any] = ipcbus.Queue(maxsize=20)
    results: ipcbus.Queue[Any] = ipcbus.Queue()
    steps = [
        *("put: begun", "put: half copied", "put: copied", "put: noted", "put: counted", "put: unlocked"),
        *("get: begun", "get: copied", "get: noted", "get: counted", "get: unlocked"),
    ]

    def collects() -> None:
        while (item := queue.get()) is not None:
            results.put(item)

    with Children() as children:
        collector = children.run(collects)
        killed = collections.Counter[str]()
        for round_number in range(3):
            draw.shuffle(steps)
            mortal = [(step, children.run(dies, queue, results, step, draw.randrange(20))) for step in steps]
            fed = 0
            # As long as it takes: the collector may get all but a few of the items.
            while not all(child.ended() for _, child in mortal):
                put_all(queue, [(round_number, number) for number in range(fed, fed + 20)])
                fed += 20
            assert {child.wait() for _, child in mortal} == {-signal.SIGKILL}
            killed.update(step for step, _ in mortal)
        queue.put(None)
        collector.result()
        found = []
        while not results.empty():
            found.append(pair(results.get()))
    counts = queue.counts
    gone = counts.put - 1 - len(found)
    # What a killed consumer had taken off went with it; nothing else is gone, and nothing came twice.
    assert gone == killed["get: counted"] + killed["get: unlocked"]
    assert len(set(found)) == len(found)
    assert counts.taken == counts.put
    assert counts.cut_puts == sum(killed[f"put: {step}"] for step in ("begun", "half copied", "copied", "noted"))
    assert counts.cut_gets == sum(killed[f"get: {step}"] for step in ("begun", "copied", "noted"))
    assert counts.refused == results.counts.refused == 0
    by_producer = collections.defaultdict(set)
    for producer, number in found:
        by_producer[producer].add(number)
    assert sum(max(numbers) + 1 - len(numbers) for numbers in by_producer.values()) <= gone
