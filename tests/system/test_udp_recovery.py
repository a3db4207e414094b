"""Late join, off-transport recovery and requests over UDP while datagrams are lost in both directions."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from tests.conformance.test_late_join import Reader, keeping, send
from tests.kit.bus import GIVE_UP_S, LBTRM, LBTRU, Bus, Kind
from tests.kit.network import isolated_or_skip
from tests.kit.payload import balanced, body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message

PERCENT = "5"

pytestmark = pytest.mark.parametrize("kind", [LBTRU, LBTRM], ids=lambda kind: str(kind.name))


@pytest.fixture
def mode() -> str:
    """Contexts deliver in their own threads."""
    return "embedded"


@pytest.fixture
def bus(domain: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    """Contexts whose sockets lose datagrams that come."""
    for name in ("LBTRU", "LBTRM"):
        for variable in (f"{name}_LOSS_RATE", f"{name}_SRC_LOSS_RATE"):
            monkeypatch.setenv(variable, PERCENT)
    with isolated_or_skip() if kind is LBTRM else contextlib.nullcontext():
        made = Bus(domain, kind, "embedded")
        yield made
        made.close()


def test_late_joiners_get_everything(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 5000, 200)
    readers = [Reader(bus) for _ in range(3)]
    for late in readers:
        late.account(sent)
    sent = send(bus, source, 500)
    for late in readers:
        late.account(sent)
        assert late.ledger.lost == 0
        assert late.recovered()[:5000] == list(range(5000))


def test_a_late_joiner_gets_everything_while_the_source_sends_on(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 3000)
    late = Reader(bus)
    while late.ledger.delivered < 6000:
        for _ in range(20):
            source.send(body(source.sequence_number + 1))
        source.flush()
        bus.turn()
    sent = source.sequence_number + 1
    late.account(sent)
    assert late.ledger.lost == 0
    assert late.recovered()[:3000] == list(range(3000))


@pytest.mark.parametrize("covered", [True, False])
def test_what_the_transport_gives_up_comes_from_the_source_as_far_as_it_is_kept(bus: Bus, covered: bool) -> None:
    lost = lost_with_a_small_window(bus, 20_000, **({} if covered else {"retransmit_retention_size_limit": 65536}))
    assert not covered or lost == 0


def lost_with_a_small_window(bus: Bus, sent: int, **options: object) -> int:
    """Sends messages through a window of few datagrams, so that the transport loses many; returns how many are lost."""
    window = {f"transport_{bus.kind.transport}_transmission_window_size": 65536}
    source = keeping(bus, **window, **options)
    reader = Reader(bus, otr_request_initial_delay=20, use_late_join=0)
    bus.joined(source)
    for number in range(sent):
        source.send(body(number))
    source.flush()
    reader.account(sent)
    source.close()
    bus.until(lambda: reader.ledger.ended, "the end")
    balanced(reader.ledger, sent)
    return reader.ledger.lost


def test_a_source_that_closes_gives_a_late_joiner_everything_first(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 2000)
    late = Reader(bus)
    bus.joined(source)
    source.close()
    bus.until(lambda: late.ledger.ended, "the end")
    balanced(late.ledger, sent)
    assert late.ledger.lost == 0


def test_each_request_is_answered_once(bus: Bus) -> None:
    """A request is a message, which the transport repairs; a response is sent until it is acknowledged."""
    counts: dict[bytes, int] = {}

    def answer(message: Message) -> None:
        if message.type is MessageType.REQUEST:
            counts[message.data] = counts.get(message.data, 0) + 1
            message.respond(message.data * 100)

    bus.receiver("t", answer)
    source = bus.source("t")

    def ask(which: int) -> None:
        for number in range(50):
            data = b"%d/%d " % (which, number)
            assert source.request(data, timeout=GIVE_UP_S).data == data * 100

    threads = [threading.Thread(target=ask, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(counts.values()) == {1}
    assert len(counts) == 200
    assert source._context._sending_sessions.requests.counters()["resps_rcved"] == 200
