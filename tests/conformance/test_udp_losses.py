"""Datagrams that never come, at the places where nothing else tells of them: each message is there or reported lost."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from ipcbus.archive import Archive, Recorder
from ipcbus.transport.udp import udp_receiver, udp_sender
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.wire import udp_packets
from tests.kit.bus import LBTRM, LBTRU, Bus
from tests.kit.forms import CallbackTaker
from tests.kit.payload import Books, balanced, body
from tests.kit.recording import messages, rows_of
from tests.kit.udp_hooks import replace_receive

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

    from ipcbus import Source

pytestmark = pytest.mark.parametrize("kind", [LBTRU, LBTRM], ids=lambda kind: str(kind.name))

embedded = pytest.mark.parametrize("mode", ["embedded"])

BOS, DATA, EOS = MessageType.BOS, MessageType.DATA, MessageType.EOS


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[udp_packets.Packet], bool]], None]:
    """Has packets lost on their way to receivers."""

    def lose(lost: Callable[[udp_packets.Packet], bool]) -> None:
        real = UdpReceiver.receive

        def receive(udp_receiver: UdpReceiver, packet: bytes, address: Hashable, now_ns: int) -> None:
            found = udp_packets.parse(packet)
            if found is None or not lost(found):
                real(udp_receiver, packet, address, now_ns)

        replace_receive(monkeypatch, receive)

    return lose


def options(bus: Bus, generation_ms: int = 400) -> dict[str, object]:
    """Receiver options with which what does not come is asked for soon, and given up soon."""
    own = f"transport_{bus.kind.transport}_nak_"
    return {
        f"{own}initial_backoff_interval": 1,
        f"{own}generation_interval": generation_ms,
        "delivery_control_loss_check_interval": 5,
    }


def send(source: Source, count: int) -> int:
    """Sends so many messages, each in a datagram of its own."""
    for number in range(source.sequence_number + 1, source.sequence_number + 1 + count):
        source.send(body(number), flush=True)
    return source.sequence_number + 1


def test_the_first_datagram_is_repaired_before_the_second_is_delivered(
    bus: Bus, lose: Callable[[Callable[[udp_packets.Packet], bool]], None]
) -> None:
    lose(
        lambda packet: (
            isinstance(packet, udp_packets.Data) and packet.number == 0 and not packet.flags & udp_packets.AGAIN
        )
    )
    source = bus.source()
    taker = CallbackTaker(bus, **options(bus, 59_000))
    bus.joined(source)
    send(source, 10)
    assert taker.data(10) == [body(number) for number in range(10)]
    assert taker.kinds == [BOS] + [DATA] * 10
    assert taker.receiver.lost == 0


def test_the_wait_in_the_batch_is_recorded_of_what_is_repaired_and_of_what_waits_for_it(
    bus: Bus, tmp_path: Path, lose: Callable[[Callable[[udp_packets.Packet], bool]], None]
) -> None:
    again = udp_packets.AGAIN
    lose(lambda packet: isinstance(packet, udp_packets.Data) and packet.number == 1 and not packet.flags & again)
    source = bus.source(implicit_batching_interval=3_600_000, implicit_batching_minimum_length=2**20)
    archive = Archive.create(tmp_path)
    recorder = Recorder(bus.context("recording"), archive, ["t"], flush_seconds=0.001)
    recorder.start()
    bus.joined(source)
    for _ in range(3):
        for _ in range(4):
            source.send(b"waits")
            begun = time.monotonic_ns()
            while time.monotonic_ns() < begun + 2_000_000:
                pass
        source.flush()
    bus.until(lambda: recorder.stats.messages == 12, "everything to be recorded")
    recorder.stop()
    found = [row.batch_wait_ns for row in messages(rows_of(archive))]
    for batch in (found[:4], found[4:8], found[8:]):
        # Of four messages 2 ms apart.
        assert all(before - after >= 1_900_000 for before, after in pairwise([*batch, 0])), found


def test_the_same_of_a_topic_that_joins_a_session_later(
    bus: Bus, lose: Callable[[Callable[[udp_packets.Packet], bool]], None]
) -> None:
    lost: list[int] = []

    def first_of_other(packet: udp_packets.Packet) -> bool:
        if isinstance(packet, udp_packets.Data) and b"other" in bytes(packet.datagram) and not lost:
            lost.append(packet.number)
            return True
        return False

    lose(first_of_other)
    context, receiving = bus.context("sending"), bus.context("receiving")
    early, late = (bus.source(topic, context, **bus.kind.id(100)) for topic in ("early", "late"))
    one = CallbackTaker(bus, "early", receiving, **options(bus, 59_000))
    bus.joined(early)
    send(early, 3)
    late.send(b"before", flush=True)
    other = CallbackTaker(bus, "late", receiving, **options(bus, 59_000))
    bus.joined(late)
    late.send(b"other 1", flush=True)
    late.send(b"other 2", flush=True)
    # What was sent before it had joined may come or not, and is not lost.
    bus.until(lambda: other.count() and other.got[-1].data == b"other 2", "the last message")
    assert [got.data for got in other.got if got.type is not BOS][-2:] == [b"other 1", b"other 2"]
    assert other.receiver.lost == 0
    assert one.data(3) == [body(number) for number in range(3)]
    assert lost


@pytest.mark.parametrize("repaired", [True, False], ids=["repaired", "lost"])
@embedded
def test_a_receiver_of_a_silent_source_asks_what_it_missed(
    bus: Bus, lose: Callable[[Callable[[udp_packets.Packet], bool]], None], repaired: bool
) -> None:
    """Without a session message or an info of the source, nothing but a request shows that something was sent."""
    answers = udp_packets.WELCOME | (udp_packets.AGAIN if repaired else 0)
    kinds = (udp_packets.SessionMessage, udp_packets.Data)
    lose(lambda packet: isinstance(packet, kinds) and not packet.flags & answers)
    source = bus.source(transport_topic_sequence_number_info_interval=0)
    books = Books()
    asks = {"transport_topic_sequence_number_info_request_interval": 20}
    bus.receiver("t", books.enter, **options(bus, 59_000 if repaired else 400), **asks)
    bus.joined(source)
    sent = send(source, 3)
    bus.until(lambda: books.accounted == sent, "messages or losses")
    (ledger,) = books.ledgers.values()
    balanced(ledger, sent)
    assert (ledger.delivered, ledger.lost) == ((3, 0) if repaired else (0, 3))


@embedded
def test_what_the_source_does_not_hold_any_more_is_reported_long_before_it_is_too_old(
    bus: Bus, lose: Callable[[Callable[[udp_packets.Packet], bool]], None]
) -> None:
    lose(lambda packet: isinstance(packet, udp_packets.Data) and 3 <= packet.number < 6)
    own = f"transport_{bus.kind.transport}"
    source = bus.source(**{f"{own}_transmission_window_size": 65536, f"{own}_behavior": "source_paced"})
    longer = {f"transport_{bus.kind.transport}_activity_timeout": 900_000}
    taker = CallbackTaker(bus, **options(bus, 600_000), **longer)
    bus.joined(source)
    for number in range(30):
        source.send(bytes([number]) * 4000, flush=True)
    bus.until(lambda: taker.count() == 27, "what came after the loss")
    assert taker.receiver.lost == 3
    assert [each.data[0] for each in taker.got if each.type is DATA] == [*range(3), *range(6, 30)]


@embedded
def test_a_first_datagram_that_never_comes_is_reported(
    bus: Bus, lose: Callable[[Callable[[udp_packets.Packet], bool]], None]
) -> None:
    lose(lambda packet: isinstance(packet, udp_packets.Data) and packet.number < 3)
    source = bus.source()
    books = Books()
    bus.receiver("t", books.enter, **options(bus))
    bus.joined(source)
    sent = send(source, 10)
    bus.until(lambda: books.accounted >= sent, "the messages, or news of their loss")
    balanced(books.ledgers[source.source], sent)
    assert books.ledgers[source.source].lost == 3


@embedded
@pytest.mark.parametrize("ends", ["context", "source", "one of two"])
def test_a_last_datagram_that_never_comes_is_reported(
    bus: Bus, lose: Callable[[Callable[[udp_packets.Packet], bool]], None], ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp_sender, "_SILENT_NS", 5_000_000_000)  # the receiver is driven while the context closes
    lose(lambda packet: isinstance(packet, udp_packets.Data) and packet.number >= 7)
    context = bus.context("sending", mode="embedded")
    source = bus.source("t", context, **bus.kind.id(100))
    other = bus.source("other", context, **bus.kind.id(100)) if ends == "one of two" else None
    books = Books()
    bus.receiver("t", books.enter, **options(bus))
    bus.joined(source)
    sent = send(source, 10)
    closing = threading.Thread(target=context.close if ends == "context" else source.close)
    closing.start()
    bus.until(lambda: books.ended, "the end")
    closing.join()
    balanced(books.ledgers[source.source], sent)
    assert books.ledgers[source.source].lost == 3
    assert other is None or other.receivers == 0


def test_the_word_on_where_a_topic_begins_may_be_lost_too(
    bus: Bus, lose: Callable[[Callable[[udp_packets.Packet], bool]], None]
) -> None:
    told: list[udp_packets.Packet] = []

    def lost(packet: udp_packets.Packet) -> bool:
        if isinstance(packet, udp_packets.Topics):
            told.append(packet)
            return len(told) == 1
        return isinstance(packet, udp_packets.Data) and packet.number == 0 and not packet.flags & udp_packets.AGAIN

    lose(lost)
    source = bus.source()
    taker = CallbackTaker(bus, **options(bus, 59_000), **{f"transport_{bus.kind.transport}_connect_interval": 10})
    bus.joined(source)
    send(source, 5)
    assert taker.data(5) == [body(number) for number in range(5)]
    assert len(told) >= 2


@embedded
def test_a_flood_does_not_end_the_wait_for_the_word_on_where_a_topic_begins(
    bus: Bus, lose: Callable[[Callable[[udp_packets.Packet], bool]], None]
) -> None:
    """The first datagram has to be repaired, and many others come before the source says where the topic begins."""
    came: list[int] = []

    def lost(packet: udp_packets.Packet) -> bool:
        if isinstance(packet, udp_packets.Data) and not packet.flags & udp_packets.AGAIN:
            came.append(packet.number)
            return packet.number == 0
        return len(came) < 150 and isinstance(packet, udp_packets.Topics | udp_packets.Data)

    lose(lost)
    source = bus.source()
    books = Books()
    bus.receiver("t", books.enter, **options(bus, 59_000), **{f"transport_{bus.kind.transport}_connect_interval": 10})
    bus.joined(source)
    sent = send(source, 300)
    bus.until(lambda: books.accounted == sent, "messages or losses")
    (ledger,) = books.ledgers.values()
    balanced(ledger, sent)
    assert (ledger.first, ledger.lost) == (0, 0)


def test_a_source_that_never_says_where_a_topic_begins_holds_nothing_up(
    bus: Bus, lose: Callable[[Callable[[udp_packets.Packet], bool]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp_receiver, "_START_TIMEOUT_NS", 1_000_000_000)
    monkeypatch.setattr(udp_sender, "_LINGER_NS", 1_000_000_000)
    lose(lambda packet: isinstance(packet, udp_packets.Topics))
    source = bus.source()
    taker = CallbackTaker(bus, **options(bus, 59_000))
    bus.joined(source)
    send(source, 100)
    assert taker.data(100) == [body(number) for number in range(100)]
    source.close()
    taker.event(EOS)


@embedded
def test_a_topic_ends_though_the_answer_that_says_how_far_it_went_is_lost(
    bus: Bus, lose: Callable[[Callable[[udp_packets.Packet], bool]], None]
) -> None:
    closed: list[int] = []

    def lost(packet: udp_packets.Packet) -> bool:
        if closed and isinstance(packet, udp_packets.SessionMessage | udp_packets.Topics):
            closed.append(packet.type)
            return closed.count(packet.type) == 1
        return False

    lose(lost)
    context = bus.context("sending", mode="embedded")
    source, other = (bus.source(topic, context, **bus.kind.id(100)) for topic in ("t", "other"))
    taker = CallbackTaker(bus, **options(bus))
    control = CallbackTaker(bus, "other", taker.context)
    bus.joined(source)
    bus.joined(other)
    send(source, 3)
    other.send(b"x", flush=True)
    assert control.data(1) == [b"x"]
    closed.append(0)
    source.close()
    taker.event(EOS)
    assert taker.numbers == [0, 1, 2]
    assert closed.count(udp_packets.SM) >= 2
    assert control.kinds == [BOS, DATA]
