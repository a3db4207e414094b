"""The datagrams of a burst over TCP are filled: each costs the source a system call, and the receiver a wakeup."""

from __future__ import annotations

import pytest

from tests.kit.bus import LBTTCP, Bus
from tests.kit.payload import Books, balanced, body

pytestmark = [
    pytest.mark.parametrize("kind", [LBTTCP], ids=lambda kind: str(kind.name)),
    pytest.mark.parametrize("mode", ["embedded"]),
]


@pytest.mark.parametrize(("minimum", "filled"), [(2048, True), (1000, False)])
def test_a_burst_takes_few_datagrams(bus: Bus, minimum: int, filled: bool) -> None:
    books = Books()
    bus.receiver("t", books.enter)
    source = bus.source("t", implicit_batching_minimum_length=minimum)
    bus.joined(source)
    sender = source._session.udp_sender
    assert sender is not None
    before = sender.reliable_sender.counts.msgs_sent
    source.send_many([body(number, 500) for number in range(1000)], flush=True)
    datagrams = sender.reliable_sender.counts.msgs_sent - before
    assert (datagrams < 150) is filled
    bus.until(lambda: books.ledgers and books.ledgers[source.source].next == 1000, "all messages")
    balanced(books.ledgers[source.source], 1000)
