"""Late join and off-transport recovery for many rounds, and of messages of 10 MiB; each ledger is exact."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from tests.conformance.test_late_join import Reader, keeping
from tests.conformance.test_otr_evicted import Evicting, Stopping
from tests.kit.bus import GIVE_UP_S, LBTRM, LBTRU, LBTSMX, Bus, Kind
from tests.kit.network import isolated_or_skip
from tests.kit.payload import balanced, body
from tests.kit.waiting import repeated
from tests.system.test_udp_recovery import lost_with_a_small_window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message, Source

pytestmark = pytest.mark.long

ROUNDS = 30
MIB = 1 << 20
KEPT = {"retransmit_retention_size_limit": 256 * MIB}
every_udp = pytest.mark.parametrize("kind", [LBTRU, LBTRM], ids=lambda kind: str(kind.name))


@pytest.fixture
def mode() -> str:
    """Contexts deliver in their own threads."""
    return "embedded"


@pytest.fixture
def percent() -> int:
    """How many of the datagrams that come are lost."""
    return 0


@pytest.fixture
def bus(domain: str, kind: Kind, percent: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    """Contexts on one host, for multicast in a network of their own."""
    for name in ("LBTRU", "LBTRM"):
        for variable in (f"{name}_LOSS_RATE", f"{name}_SRC_LOSS_RATE"):
            monkeypatch.setenv(variable, str(percent))
    with isolated_or_skip() if kind is LBTRM else contextlib.nullcontext():
        made = Bus(domain, kind, "embedded")
        yield made
        made.close()


@contextlib.contextmanager
def sending(source: Source) -> Iterator[None]:
    """A thread sends all the time inside."""

    def send() -> None:
        for _ in range(20):
            source.send(body(source.sequence_number + 1))
        source.flush()

    with repeated(send, 0.01):
        yield


def reached(readers: list[Reader], number: int) -> bool:
    """Whether all of them have got so many messages."""
    return all(each.books.accounted >= number for each in readers)


@pytest.mark.parametrize("kind", [LBTSMX, LBTRM], ids=lambda kind: str(kind.name))
def test_late_joiners_come_and_go(bus: Bus) -> None:
    source = keeping(bus, **KEPT)
    for _ in range(ROUNDS):
        with sending(source):
            late = [Reader(bus) for _ in range(2)]
            behind = source.sequence_number + 500
            bus.until(partial(reached, late, behind), f"{behind} messages")
        sent = source.sequence_number + 1
        for each in late:
            each.account(sent)
            assert each.ledger.lost == 0
            each.context.close()
            bus.contexts.remove(each.context)


@pytest.mark.parametrize("kind", [LBTSMX], ids=lambda kind: str(kind.name))
def test_a_receiver_that_is_evicted_again_and_again_loses_nothing(bus: Bus) -> None:
    evicting = Evicting(bus, **KEPT)
    slow = Stopping(bus)
    bus.joined(evicting.source)
    for _ in range(ROUNDS):
        slow.stops_at = {evicting.sent}
        evicting.send(1)
        slow.wait()
        evicting.evict()
        slow.go.set()
        slow.account(evicting.sent)
    balanced(slow.ledger, evicting.sent, joins=slow.ledger.begun)
    assert (slow.ledger.lost, slow.twice) == (0, [])
    assert evicting.evictions >= ROUNDS


@every_udp
@pytest.mark.parametrize("percent", [5])
@pytest.mark.parametrize("covered", [True, False])
def test_what_the_transport_gives_up_comes_from_the_source(bus: Bus, covered: bool) -> None:
    """Ten times the length of `tests.system.test_udp_recovery`."""
    lost = lost_with_a_small_window(bus, 200_000, **(KEPT if covered else {"retransmit_retention_size_limit": 65536}))
    assert not covered or lost == 0


@every_udp
@pytest.mark.parametrize("percent", [0, 5])
def test_a_late_joiner_gets_messages_of_10_mib(bus: Bus) -> None:
    source = keeping(bus, **KEPT)
    whole = [body(number, 10 * MIB) for number in range(3)]
    for each in whole:
        source.send(each, flush=True)
    got: list[Message] = []
    bus.receiver("t", got.append)
    bus.until(lambda: sum(message.type is MessageType.DATA for message in got) == 3, "the messages")
    assert [message.data for message in got if message.type is MessageType.DATA] == whole
    assert [message.type for message in got] == [MessageType.BOS, *[MessageType.DATA] * 3]


@every_udp
@pytest.mark.parametrize("percent", [0, 5])
def test_a_response_of_10_mib(bus: Bus) -> None:
    def answer(message: Message) -> None:
        if message.type is MessageType.REQUEST:
            message.respond(body(int(message.data), 10 * MIB))

    bus.receiver("t", answer)
    source = bus.source("t")
    for number in range(3):
        assert source.request(b"%d" % number, timeout=GIVE_UP_S).data == body(number, 10 * MIB)
