"""Late join, off-transport recovery and responses of a receiver that moves from a ring to UDP, and back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageFlag, MessageType
from ipcbus.runtime.receiving import failover
from tests.conformance.test_late_join import Reader, keeping, send
from tests.kit.bus import GIVE_UP_S, LBTIPC_SOURCE_PACED, RECEIVER_PACED, RINGS, Bus
from tests.kit.payload import balanced, body

if TYPE_CHECKING:
    from ipcbus import Context, Message, Receiver, Source

every_ring = pytest.mark.parametrize("kind", RINGS, ids=lambda kind: str(kind.name))
receiver_paced = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))


@pytest.fixture
def mode() -> str:
    """Contexts deliver in their own threads."""
    return "embedded"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session may go back to its ring at once."""
    monkeypatch.setattr(failover, "_REST_NS", 1_000_000)


def with_one_slot(bus: Bus, **options: object) -> Source:
    """A source that keeps what it sends, whose ring has room for one receiver; the others come over UDP."""
    own = f"transport_{bus.kind.transport}_maximum_receivers_per_transport"
    return keeping(bus, **{own: 1}, **options)


def on_layer(bus: Bus, receiver: Receiver, layer: str) -> None:
    """Waits until a receiver gets its session by a layer."""
    bus.until(lambda: [each.layer for each in receiver.sessions] == [layer], f"the layer {layer}")


def context(bus: Bus) -> Context:
    """The context of a receiver; it looks often whether it can go back."""
    return bus.context("moving", resolution_scan_interval=20)


def requests_are_answered(source: Source, count: int = 5) -> None:
    """Asks some times."""
    for number in range(count):
        assert source.request(b"%d" % number, timeout=GIVE_UP_S).data == b"[%d]" % number


@every_ring
def test_a_late_joiner_over_udp_goes_on_when_it_is_back_on_the_ring(bus: Bus) -> None:
    source = with_one_slot(bus, **bus.kind.small())
    sent = send(bus, source, 500)
    first = Reader(bus)
    first.account(sent)
    late = Reader(bus, context(bus))
    on_layer(bus, late.receiver, "LBT-RU")
    late.account(sent)
    assert late.recovered() == list(range(sent))
    sent = send(bus, source, 100)
    late.account(sent)
    first.receiver.close()
    on_layer(bus, late.receiver, "ring")
    second = Reader(bus, late.context)
    sent = send(bus, source, 100)
    for reader in late, second:
        reader.account(sent)
        assert reader.ledger.lost == 0
    if bus.kind is LBTIPC_SOURCE_PACED:
        assert_the_ring_is_recovered(bus, source, late)


def assert_the_ring_is_recovered(bus: Bus, source: Source, reader: Reader) -> None:
    """The ring goes round while the receiver's callback is stopped."""
    stopped, go, real = threading.Event(), threading.Event(), reader.books.enter

    def enter(message: Message) -> None:
        real(message)
        stopped.set()
        go.wait(GIVE_UP_S)

    reader.books.enter = enter  # type: ignore[method-assign]
    source.send(body(source.sequence_number + 1), flush=True)
    assert stopped.wait(GIVE_UP_S)
    for _ in range(5000):
        source.send(body(source.sequence_number + 1))
    source.flush()
    go.set()
    reader.account(source.sequence_number + 1)
    assert reader.ledger.lost == 0
    assert [number for number, flags in reader.flags.items() if flags & MessageFlag.OTR]


@receiver_paced
def test_a_receiver_that_is_evicted_answers_over_udp_and_again_through_the_ring(bus: Bus) -> None:
    source = keeping(bus, **bus.kind.small(), slow_receiver_behavior="evict", slow_receiver_timeout=20)
    stopped, go = threading.Event(), threading.Event()
    numbers: list[int] = []

    def on_message(message: Message) -> None:
        if message.type is MessageType.REQUEST:
            message.respond(b"[" + message.data + b"]")
        if message.type in (MessageType.DATA, MessageType.REQUEST):
            numbers.append(message.sequence_number)
        if message.data == b"stop":
            stopped.set()
            go.wait(GIVE_UP_S)

    receiver = bus.receiver("t", on_message, context(bus))
    bus.joined(source)
    for _ in range(3):
        requests_are_answered(source)
        stopped.clear()
        go.clear()
        source.send(b"stop", flush=True)
        assert stopped.wait(GIVE_UP_S)
        evictions = source._session.evictor.count if source._session.evictor is not None else 0
        while source._session.evictor is not None and source._session.evictor.count == evictions:
            source.send(bytes(100), flush=True)
        go.set()
        requests_are_answered(source)
        on_layer(bus, receiver, "ring")
    sent = source.sequence_number + 1
    bus.until(lambda: len(numbers) >= sent, f"{sent} messages")
    assert numbers == list(range(sent))


@receiver_paced
def test_a_late_join_goes_on_when_the_receiver_is_evicted_in_the_middle(bus: Bus) -> None:
    source = keeping(bus, **bus.kind.small(), slow_receiver_behavior="evict", slow_receiver_timeout=20)
    sent = send(bus, source, 20_000)
    slow = bus.context("slow", resolution_scan_interval=20)
    reader = Reader(bus, slow)
    stopped, go, real = threading.Event(), threading.Event(), reader.books.enter

    def enter(message: Message) -> None:
        real(message)
        if message.sequence_number == 1000:
            stopped.set()
            go.wait(GIVE_UP_S)

    reader.books.enter = enter  # type: ignore[method-assign]
    assert stopped.wait(GIVE_UP_S)
    evictor = source._session.evictor
    assert evictor is not None
    while not evictor.count:
        source.send(body(source.sequence_number + 1), flush=True)
    go.set()
    sent = source.sequence_number + 1
    reader.account(sent)
    balanced(reader.ledger, sent)
    assert reader.ledger.lost == 0
