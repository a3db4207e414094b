"""A receiver over UDP or TCP that nobody drives, in the thread of its source: it takes what it can, as a ring does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.transport.udp import udp_sender
from tests.kit.bus import LBTRM, LBTRU, LBTTCP, Bus
from tests.kit.payload import Books, balanced, body

if TYPE_CHECKING:
    from ipcbus import Context, Source

pytestmark = pytest.mark.parametrize("mode", ["sequential"])
KINDS = [LBTRU, LBTRM, LBTTCP]
_SILENT_NS = udp_sender._SILENT_NS


@pytest.fixture
def books() -> Books:
    return Books()


@pytest.fixture
def receiving(bus: Bus, books: Books) -> Context:
    context = bus.context("receiving")
    context.receiver("t", books.enter)
    return context


def send(bus: Bus, count: int, size: int) -> Source:
    source = bus.source("t", bus.context("sending"))
    bus.joined(source)
    for number in range(count):
        source.send(body(number, size))
    return source


@pytest.mark.parametrize(
    ("kind", "count", "size"),
    [*((kind, 5000, 64) for kind in KINDS), (LBTRU, 2200, 1000), (LBTRM, 2200, 1000), (LBTTCP, 3000, 1000)],
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_all_that_was_sent_comes_although_the_sending_context_is_closed_first(
    bus: Bus, books: Books, receiving: Context, count: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second stream is larger than the receiver's ring: what finds no room there waits beside it."""
    monkeypatch.setattr(udp_sender, "_SILENT_NS", _SILENT_NS)  # the bus has shortened it
    source = send(bus, count, size)
    source._context.close()
    bus.until(lambda: any(ledger.ended for ledger in books.ledgers.values()), "the end")
    (ledger,) = books.ledgers.values()
    balanced(ledger, count)
    assert ledger.lost == 0
    del receiving


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
def test_nothing_is_delivered_while_the_source_waits(bus: Bus, books: Books, receiving: Context) -> None:
    source = send(bus, 1500, 1000)
    assert not any(ledger.delivered for ledger in books.ledgers.values())
    bus.until(lambda: books.accounted == 1500, "the messages")
    del source, receiving
