"""Responses of a receiver that moves from a ring to UDP, and back: each one comes, and comes once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from ipcbus.runtime.receiving import failover
from tests.conformance.test_moving_recovery import on_layer, requests_are_answered
from tests.kit.bus import GIVE_UP_S, RECEIVER_PACED, Bus

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message, Receiver, Request, Source

pytestmark = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
warm = pytest.mark.parametrize("answered", [0, 5], ids=["first response", "later response"])


@pytest.fixture
def mode() -> str:
    """Contexts deliver in their own threads."""
    return "embedded"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session may go back to its ring at once."""
    monkeypatch.setattr(failover, "_REST_NS", 1_000_000)


class Scene:
    """A source that asks, and a receiver that keeps a request until its callback goes on, evicted meanwhile."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.kept: list[Message] = []
        self.stopped, self.go = threading.Event(), threading.Event()
        self.inside: Callable[[], object] = lambda: None
        self.responses: list[bytes] = []
        self.evictions = 0
        self.source: Source = bus.source(
            "t", bus.context("asking"), **bus.kind.small(), slow_receiver_behavior="evict", slow_receiver_timeout=20
        )
        self.receiver: Receiver = bus.receiver(
            "t", self._on_message, bus.context("moving", resolution_scan_interval=20)
        )
        bus.joined(self.source)

    def _on_message(self, message: Message) -> None:
        if message.type is MessageType.REQUEST and message.data.startswith(b"keep"):
            self.kept.append(message)
        elif message.type is MessageType.REQUEST:
            message.respond(b"[" + message.data + b"]")
        elif message.data == b"stop":
            self.stopped.set()
            self.go.wait(GIVE_UP_S)
            self.inside()

    def ask(self, name: bytes) -> None:
        """Sends a request that is kept."""
        before = len(self.kept)
        self.source.requests(name, lambda message: self.responses.append(message.data), timeout=GIVE_UP_S)
        self.bus.until(lambda: len(self.kept) > before, "the request")

    def evict(self) -> None:
        """Stops the receiver's callback, and evicts it; a busy machine may have done that in earlier sends."""
        session = self.source._session
        assert session.evictor is not None
        self.stopped.clear()
        self.go.clear()
        self.source.send(b"stop", flush=True)
        assert self.stopped.wait(GIVE_UP_S)
        while session.joined_slots(self.source._number):
            self.source.send(bytes(100), flush=True)
        assert session.evictor.count > self.evictions
        self.evictions = session.evictor.count

    def answer(self) -> None:
        """Answers the kept requests."""
        for message in self.kept:
            message.respond(b"[" + message.data + b"]")

    def come(self, *expected: bytes) -> None:
        """Waits for the responses, and that no other ones come."""
        self.bus.until(lambda: len(self.responses) >= len(expected), f"{expected}, not {self.responses}")
        requests_are_answered(self.source)
        assert self.responses == list(expected)


@warm
def test_a_response_given_after_the_eviction_and_before_the_receiver_notices(bus: Bus, answered: int) -> None:
    scene = Scene(bus)
    requests_are_answered(scene.source, answered)
    scene.ask(b"keep 1")
    scene.evict()
    scene.inside = scene.answer
    scene.go.set()
    scene.come(b"[keep 1]")


@warm
@pytest.mark.parametrize("waits", ["LBT-RU", "ring"])
def test_a_request_from_before_the_move_is_answered_after_it(bus: Bus, answered: int, waits: str) -> None:
    scene = Scene(bus)
    requests_are_answered(scene.source, answered)
    scene.ask(b"keep 1")
    scene.evict()
    scene.go.set()
    scene.ask(b"keep 2")
    if waits == "ring":
        on_layer(bus, scene.receiver, "ring")
        scene.ask(b"keep 3")
    scene.answer()
    scene.come(*(b"[" + each.data + b"]" for each in scene.kept))


def test_responses_from_another_thread_come_each_once_while_the_receiver_moves_there_and_back(bus: Bus) -> None:
    scene = Scene(bus)
    over = threading.Event()
    requests: list[Request] = []

    def answer() -> None:
        done = 0
        while not over.is_set() or done < len(scene.kept):
            if done < len(scene.kept):
                message = scene.kept[done]
                done += 1
                message.respond(b"[" + message.data + b"]")
            else:
                over.wait(0.0002)

    def ask(count: int) -> None:
        for _ in range(count):
            data = b"keep %d" % len(requests)
            requests.append(
                scene.source.requests(data, lambda message: scene.responses.append(message.data), timeout=GIVE_UP_S)
            )

    thread = threading.Thread(target=answer)
    thread.start()
    for _ in range(5):
        ask(50)
        scene.evict()
        scene.go.set()
        ask(250)
        on_layer(bus, scene.receiver, "ring")
    bus.until(lambda: all(each.responses or each.closed for each in requests), "the responses")
    over.set()
    thread.join()
    requests_are_answered(scene.source)
    ended = enumerate((each.responses, each.error) for each in requests)
    assert not [(number, *each) for number, each in ended if each != (1, None)]
    assert sorted(scene.responses) == sorted(b"[keep %d]" % number for number in range(len(requests)))
