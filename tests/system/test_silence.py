"""A source in a process that is stopped: its receivers are told of its end, and of what they missed when it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from tests.kit.bus import LBTIPC, MODES, RINGS, Bus, Kind, mode_options
from tests.kit.payload import Books, balanced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.peers import PeerProcess, Peers

INTERVAL_MS, TIMEOUT_MS = 20, 100


@pytest.fixture(params=[MODES[0], *(pytest.param(mode, marks=pytest.mark.long) for mode in MODES[1:])])
def mode(request: pytest.FixtureRequest) -> str:
    """Who drives the receiving context."""
    return str(request.param)


@pytest.fixture(params=RINGS, ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    """A transport with its pacing."""
    found: Kind = request.param
    return found


@pytest.fixture
def bus(domain: str, kind: Kind, mode: str) -> Iterator[Bus]:
    made = Bus(domain, kind, mode)
    yield made
    made.close()


def listening(bus: Bus) -> tuple[Books, ipcbus.Receiver]:
    """A receiver that notices a silence soon."""
    transport = bus.kind.transport
    given: dict[str, Any] = {
        "context": {"liveness_check_interval": 10, **mode_options(bus.mode)},
        "source": {f"transport_{transport}_sm_interval": INTERVAL_MS},
        "receiver": {
            f"transport_{transport}_activity_timeout": TIMEOUT_MS,
            "delivery_control_loss_check_interval": 10,
        },
    }
    bus.contexts.append(ipcbus.Context(given, domain=bus.domain))
    books = Books()
    return books, bus.contexts[-1].receiver("t", books.enter)


def sending(peers: Peers, kind: Kind) -> tuple[PeerProcess, str]:
    """A process with a source, and its source string."""
    sender = peers.start()
    interval = {f"transport_{kind.transport}_sm_interval": INTERVAL_MS}
    return sender, sender.do("source", topic="t", transport=kind.transport, **kind.options, **interval)


def test_a_stopped_source_ends_and_begins_again_with_an_exact_account(bus: Bus, peers: Peers) -> None:
    books, receiver = listening(bus)
    sender, source = sending(peers, bus.kind)
    bus.until(lambda: [each.state for each in receiver.sessions] == ["joined"], "being joined")
    sent = sender.do("send", topic="t", count=100)
    bus.until(lambda: books.accounted >= sent, "the messages")
    ledger = books.ledgers[source]
    for _ in range(3):
        before = ledger.begun
        sender.pause()
        bus.until(lambda: ledger.ended == ledger.begun, "the end")
        bus.until(lambda: [each.state for each in receiver.sessions] == ["ended"], "the silence")
        # It goes on with what it is told to at once, so nobody is joined for the first of these.
        sender.start("send", topic="t", count=100)
        sender.resume()
        sent = sender.finish()
        bus.until(lambda sent=sent: books.accounted >= sent, "the messages, or news of their loss")  # type: ignore[misc]
        assert ledger.begun > before
        balanced(ledger, sent, joins=ledger.begun)
        bus.until(lambda: [each.state for each in receiver.sessions] == ["joined"], "being joined again")
    sent = sender.do("end", topic="t")
    bus.until(lambda: ledger.ended == ledger.begun, "the end")
    balanced(ledger, sent, joins=ledger.ended)


@pytest.mark.parametrize("kind", [LBTIPC], ids=["lbtipc"])
def test_a_source_that_is_killed_while_it_is_stopped_ends_once(bus: Bus, peers: Peers) -> None:
    books, receiver = listening(bus)
    sender, source = sending(peers, bus.kind)
    bus.until(lambda: [each.state for each in receiver.sessions] == ["joined"], "being joined")
    sent = sender.do("send", topic="t", count=10)
    bus.until(lambda: books.accounted >= sent, "the messages")
    sender.pause()
    ledger = books.ledgers[source]
    bus.until(lambda: ledger.ended == ledger.begun, "the end")
    ends = ledger.ended
    sender.kill()
    bus.until(lambda: receiver.sessions == [], "the session to be gone")
    assert ledger.ended == ledger.begun == ends
    balanced(ledger, sent, joins=ends)
