"""A commit of the sink that is killed at each of its steps, and done again: a receiver gets every row once."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.spark.identity import POSSIBLE_DUPLICATE, Deduplicator, identity_of
from tests.kit.bus import GIVE_UP_S
from tests.kit.committing import Committing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.stress

FIRST = [[b"a", b"b", b"c"], [b"d", b"e"]]
AGAIN = [[b"e"], [b"c", b"d", b"a", b"b"]]
"""The same rows, as a replay may deliver them: in another order, and other partitions."""
ALL = [b"a", b"b", b"c", b"d", b"e"]


class Books:
    """What a receiver gets, by application."""

    def __init__(self) -> None:
        self.every: dict[str, list[ipcbus.Message]] = {}
        self.once: dict[str, list[bytes]] = {}
        self._fresh = Deduplicator(self._new)
        self._began = self._ended = 0

    def __call__(self, message: ipcbus.Message) -> None:
        self._began += message.type == ipcbus.MessageType.BOS
        self._ended += message.type == ipcbus.MessageType.EOS
        if message.type == ipcbus.MessageType.DATA:
            self.every.setdefault(self.application(message), []).append(message)
            self._fresh(message)

    def _new(self, message: ipcbus.Message) -> None:
        self.once.setdefault(self.application(message), []).append(message.data)

    @staticmethod
    def application(message: ipcbus.Message) -> str:
        found = identity_of(message.headers)
        assert found is not None
        return found.query

    def settled(self, application: str) -> list[bytes]:
        """Values of an application without doubles, when everything is there that comes."""
        deadline = time.monotonic() + GIVE_UP_S
        while len(self.once.get(application, ())) < len(ALL) or self._began > self._ended:
            assert time.monotonic() < deadline, f"{application} has sent {self.once.get(application)}"
            threading.Event().wait(0.001)
        return self.once[application]


@pytest.fixture(scope="module")
def committing() -> Iterator[Committing]:
    with Committing() as started:
        yield started


@pytest.fixture
def books(domain: str) -> Iterator[Books]:
    found = Books()
    with ipcbus.Context({"context": {"liveness_check_interval": 20}}, domain=domain) as context:
        context.receiver("t", found)
        yield found


def killed_at(step: int, committing: Committing, books: Books, staging: Path, domain: str) -> None:
    """Kills a commit at a step, has it done again, and looks at what came."""
    name = f"killed-{step}"
    status, _ = committing.commit(staging, name, FIRST, domain=domain, kill_at=step)
    assert status == -signal.SIGKILL
    for _ in range(2):  # and once more, for nothing
        status, _ = committing.commit(staging, name, AGAIN, domain=domain)
        assert status == 0
    once = books.settled(name)
    assert sorted(once) == ALL
    every = books.every[name]
    flagged = [message.data for message in every if (POSSIBLE_DUPLICATE, b"1") in message.headers]
    doubles = len(every) - len(once)
    assert doubles <= len(flagged) <= 1, f"{[message.data for message in every]}, flagged {flagged}"
    assert sorted(path.name for path in (staging / name).iterdir()) == ["ledger", "lock"]


def steps_of(committing: Committing, books: Books, staging: Path, domain: str) -> int:
    """How many steps a commit has."""
    status, steps = committing.commit(staging, "whole", FIRST, domain=domain)
    assert status == 0
    assert books.settled("whole") == ALL
    return steps


def test_killed_at_some_steps(committing: Committing, books: Books, tmp_path: Path, domain: str) -> None:
    steps = steps_of(committing, books, tmp_path, domain)
    for step in range(0, steps, 15):
        killed_at(step, committing, books, tmp_path, domain)


@pytest.mark.long
def test_killed_at_every_step(committing: Committing, books: Books, tmp_path: Path, domain: str) -> None:
    steps = steps_of(committing, books, tmp_path, domain)
    for step in range(steps):
        killed_at(step, committing, books, tmp_path, domain)
