"""A receiver of any form that is evicted gets the rest over UDP and goes back to its ring: nothing lost or doubled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.runtime import moving
from tests.kit.bus import GIVE_UP_S, RECEIVER_PACED, Bus
from tests.kit.loops import run
from tests.kit.payload import Books, balanced, body
from tests.kit.queues import dispatch_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Receiver, Source

pytestmark = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))

LONG = 20_000
ROUNDS = 2


class Slow:
    """Takes nothing until it is told to; one message of it fills its queue."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.context = bus.context("slow", resolution_scan_interval=20)
        self.books = Books()
        self.receiver = self.make()

    def make(self) -> Receiver:
        """The receiver."""
        return self.context.receiver("t", receive_queue_maximum=1)

    def take(self, enough: Callable[[], object]) -> None:
        """Takes until `enough` says so."""
        while not enough():
            message = self.receiver.receive(GIVE_UP_S)
            assert message is not None, "waited in vain"
            self.books.enter(message)

    def close(self) -> None:
        """Lets go of what the context does not own."""


class SlowInALoop(Slow):
    """The same with asyncio."""

    def take(self, enough: Callable[[], object]) -> None:
        async def loop() -> None:
            if enough():
                return
            async for message in self.receiver:
                self.books.enter(message)
                if enough():
                    return

        run(asyncio.wait_for(loop(), GIVE_UP_S), "asyncio")


class SlowQueue(Slow):
    """The same with an event queue."""

    def make(self) -> Receiver:
        self.queue = ipcbus.EventQueue(8)
        return self.context.receiver("t", self.books.enter, event_queue=self.queue, receive_queue_maximum=1)

    def take(self, enough: Callable[[], object]) -> None:
        dispatch_until(self.bus, self.queue, enough, "the messages")

    def close(self) -> None:
        self.queue.close()


def send_more_than_fits(bus: Bus, source: Source) -> int:
    """Sends what fits five rings, some of it in pieces; returns how many numbers the source has used."""
    window = source._session.channel.writer.capacity
    sent = turn = 0
    while sent < 5 * window:
        size = LONG if bus.kind.batches and turn % 50 == 0 else 64 if turn % 3 else 500
        source.send(body(source.sequence_number + 1, size))
        turn, sent = turn + 1, sent + size
    source.flush()
    return source.sequence_number + 1


@pytest.mark.parametrize(
    ("mode", "taking"),
    [
        ("embedded", Slow),
        ("sequential", Slow),
        ("split", SlowQueue),
        ("embedded", SlowInALoop),
        ("sequential", SlowQueue),
    ],
)
def test_it_gets_everything_again_and_again(bus: Bus, taking: type[Slow], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "_REST_NS", 0)
    sending = bus.context("sending", mode="embedded")  # which repairs while others are driven here
    source = bus.source("t", sending, **bus.kind.small(), slow_receiver_behavior="evict", slow_receiver_timeout=20)
    slow = taking(bus)
    bus.joined(source)
    for evictions in range(1, ROUNDS + 1):
        sent = send_more_than_fits(bus, source)
        slow.take(lambda: slow.books.accounted >= sent)  # noqa: B023 - called before the next round
        bus.until(lambda: slow.receiver.sessions[0].layer == "ring", "the return to the ring")
        (session,) = slow.receiver.sessions
        assert (session.state, session.reason) == ("joined", "")
        assert session.counters["evictions"] >= evictions
    source.close()
    slow.take(lambda: slow.books.ended)
    (ledger,) = slow.books.ledgers.values()
    balanced(ledger, sent)
    assert (ledger.lost, slow.receiver.lost) == (0, 0)
    slow.close()
