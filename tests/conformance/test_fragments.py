"""Messages larger than a datagram: sent in fragments, put together again, or given as they are."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import FragmentInfo, MessageType
from ringbuf.layout import RECORD_ALIGN, RECORD_HEADER
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, LBTSMX, LBTTCP
from tests.kit.forms import CallbackTaker, ReceiveTaker
from tests.kit.look import published

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message, Receiver, Source
    from tests.kit.bus import Bus

PIECE = 8192 - 32
"""Bytes of a message in a fragment of the small ring of `Bus`."""
LONGEST = LBTIPC.window - 8 * (RECORD_HEADER + 2 * 16 + RECORD_ALIGN) - RECORD_HEADER - RECORD_ALIGN
"""Of a message that fits that ring, when it is empty, as a whole; it has 8 fragments."""

fragmenting = pytest.mark.parametrize(
    "kind", [LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, LBTTCP], ids=lambda kind: str(kind.name)
)
embedded = pytest.mark.parametrize("mode", ["embedded"])
sequential = pytest.mark.parametrize("mode", ["sequential"])
waiting = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))


def random_bytes(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def pull(receiver: Receiver) -> Message:
    """The next message or event."""
    message = receiver.receive(20)
    assert message is not None
    return message


def whole(message: Message) -> tuple[bytes, int, int, FragmentInfo | None]:
    return message.data, message.first_sequence_number, message.sequence_number, message.fragment_info


@fragmenting
@pytest.mark.parametrize("length", [8177, PIECE * 2, PIECE * 2 + 1, PIECE * 5 - 1])
def test_a_message_in_fragments_comes_whole_with_the_last_number(bus: Bus, length: int) -> None:
    source = bus.source()
    receiver = bus.receiver()
    bus.joined(source)
    source.send(b"before")
    source.send(random_bytes(length))
    source.send(b"behind", flush=True)
    pieces = -(-length // PIECE)
    assert source.sequence_number == pieces + 1
    taken = [pull(receiver) for _ in range(4)]
    assert [whole(message) for message in taken if message.type == MessageType.DATA] == [
        (b"before", 0, 0, None),
        (random_bytes(length), 1, pieces, FragmentInfo(1, 0, length)),
        (b"behind", pieces + 1, pieces + 1, None),
    ]
    assert receiver.sessions[0].counters["msgs_reassembled"] == 1
    assert receiver.sessions[0].counters["reassembly_bytes"] == 0


@fragmenting
def test_what_just_fits_a_datagram_is_not_fragmented(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver()
    bus.joined(source)
    source.send(bytes(source.message_max), flush=True)
    assert source.sequence_number == 0
    pull(receiver)
    message = pull(receiver)
    assert (len(message), message.fragment_info) == (source.message_max, None)


@fragmenting
def test_a_long_message_does_not_wait_for_the_batch_interval(bus: Bus) -> None:
    source = bus.source(implicit_batching_interval=1_000_000, transport_topic_sequence_number_info_interval=0)
    receiver = bus.receiver()
    bus.joined(source)
    source.send(b"", flush=True)
    pulled = [pull(receiver) for _ in range(2)]
    for length in (8177, PIECE + 1, PIECE * 2 + 1, PIECE * 4 + 8):
        source.send(bytes(length))
        pulled.append(pull(receiver))
    assert [len(each.data) for each in pulled] == [0, 0, 8177, PIECE + 1, PIECE * 2 + 1, PIECE * 4 + 8]


@fragmenting
@embedded
def test_a_long_message_does_not_end_an_explicit_batch(bus: Bus) -> None:
    source = bus.source(implicit_batching_interval=1_000_000)
    receiver = bus.receiver()
    bus.joined(source)
    source.send(bytes(100), start_batch=True)
    source.send(bytes(PIECE + 1000))
    held = published(source)  # the second fragment waits
    source.send(b"end", end_batch=True)
    assert (held, published(source)) == (1, 2)
    assert [len(pull(receiver).data) for _ in range(4)] == [0, 100, PIECE + 1000, 3]


@fragmenting
def test_raw_fragments_say_where_they_belong(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver(ordered_delivery=0)
    bus.joined(source)
    sent = random_bytes(PIECE * 2 + 100)
    source.send(sent, start_batch=True, end_batch=True)
    source.send(b"plain", flush=True)
    assert pull(receiver).type == MessageType.BOS
    fragments = [pull(receiver) for _ in range(3)]
    assert b"".join(fragment.data for fragment in fragments) == sent
    assert [(each.sequence_number, each.first_sequence_number) for each in fragments] == [(0, 0), (1, 1), (2, 2)]
    piece = -(-len(sent) // 3 // 8) * 8  # of one length, a multiple of 8, so that UDP sends a run of them in one go
    assert [each.fragment_info for each in fragments] == [FragmentInfo(0, k * piece, len(sent)) for k in range(3)]
    assert {each.flags for each in fragments} == {3}
    assert pull(receiver).fragment_info is None


@pytest.mark.parametrize("kind", [LBTIPC, LBTRU, LBTTCP], ids=lambda kind: str(kind.name))
@pytest.mark.parametrize("ordered", [1, -1])
def test_a_message_larger_than_the_window_comes_through(bus: Bus, ordered: int) -> None:
    source = bus.source(**bus.kind.small())
    taker = (
        CallbackTaker(bus, ordered_delivery=ordered) if bus.sequential else ReceiveTaker(bus, ordered_delivery=ordered)
    )
    bus.joined(source)
    sent = random_bytes(10 * bus.kind.window)
    if bus.sequential:
        # One context that sends to itself: the blocked send drives it.
        own = bus.source("own", taker.context, **bus.kind.small(), **bus.kind.id(99))
        mine = CallbackTaker(bus, "own", taker.context)
        bus.joined(own)
        own.send(sent, flush=True)
        assert mine.data(1) == [sent]
        return
    thread = in_thread(lambda: source.send(sent, flush=True))
    assert taker.data(1) == [sent]
    thread.join()


@waiting
@sequential
def test_what_must_not_wait_is_sent_whole_or_not_at_all(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    taker = CallbackTaker(bus)
    bus.joined(source)
    for _ in range(4):
        source.send(bytes(8000), flush=True)
    with pytest.raises(ipcbus.WouldBlock):
        source.send(bytes(40_000), block=False)
    assert source.sequence_number == 3
    with pytest.raises(ipcbus.MessageTooLarge, match="transport_lbtipc_transmission_window_size"):
        source.send(bytes(bus.kind.window + 1), block=False)
    taker.data(4)
    source.send(random_bytes(40_000), block=False, flush=True)
    assert taker.data(5)[4] == random_bytes(40_000)
    assert source.sequence_number == 3 + 5


@waiting
@sequential
def test_what_never_fits_the_window_is_refused_for_good(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    for length in (LONGEST + 1, LONGEST + RECORD_HEADER + RECORD_ALIGN):
        with pytest.raises(ipcbus.MessageTooLarge, match="transport_lbtipc_transmission_window_size"):
            source.send(bytes(length), block=False)
    receiver = bus.receiver()
    bus.joined(source)
    source.send(bytes(LONGEST), block=False, flush=True)
    pull(receiver)
    assert len(pull(receiver)) == LONGEST


@waiting
@sequential
def test_an_open_batch_does_not_keep_a_large_message_out_for_ever(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    taker = CallbackTaker(bus)
    bus.joined(source)
    source.send(b"open", start_batch=True)
    with pytest.raises(ipcbus.WouldBlock):
        source.send(bytes(LONGEST), block=False)
    assert taker.data(1) == [b"open"]
    source.send(bytes(LONGEST), block=False, flush=True)
    assert len(taker.data(2)[1]) == LONGEST


@waiting
@embedded
def test_threads_that_send_large_messages_on_one_source_do_not_mix_them(bus: Bus) -> None:
    sources = [bus.source("t", context := bus.context("sending"), **bus.kind.small(), **bus.kind.id(5))]
    sources.append(bus.source("other", context, **bus.kind.small(), **bus.kind.id(5)))
    takers = [ReceiveTaker(bus, "t"), ReceiveTaker(bus, "other")]
    for source in sources:
        bus.joined(source)
    sent = [random_bytes(40_000 + 1000 * n, n) for n in range(6)]

    def send(source: Source, mine: list[bytes]) -> None:
        for message in mine:
            source.send(message)
            source.send(message[:10])

    threads = [in_thread(lambda s=s, k=k: send(s, sent[k::2])) for s in sources for k in range(2)]  # type: ignore[misc]
    for taker in takers:
        got = taker.data(12)
        assert sorted(got) == sorted(sent + [message[:10] for message in sent])
        assert MessageType.UNRECOVERABLE_LOSS not in taker.kinds
    for thread in threads:
        thread.join()


@waiting
@embedded
def test_a_thread_sleeps_while_another_one_sends_fragments_on_its_source(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = bus.source(**bus.kind.small())
    receiver = bus.receiver(receive_queue_maximum=1)
    bus.joined(source)
    sent, sleeps = random_bytes(4 * bus.kind.window), threading.Event()
    free = source._session.policy._free  # type: ignore[attr-defined]
    wait = free.wait

    def slept(seconds: float) -> bool:
        sleeps.set()
        return bool(wait(seconds))

    monkeypatch.setattr(free, "wait", slept)
    fragments = in_thread(lambda: source.send(sent, flush=True))
    bus.until(source._is_shut, "the fragments have begun")
    behind = in_thread(lambda: source.send(b"behind", flush=True))
    asleep = sleeps.wait(GIVE_UP_S)
    assert [pull(receiver).data for _ in range(3)][1:] == [sent, b"behind"]
    fragments.join()
    behind.join()
    assert asleep


@waiting
@embedded
def test_a_message_given_up_in_the_middle_is_reported_lost(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    other = bus.source("t", **bus.kind.id(77))
    receiver = bus.receiver(receive_queue_maximum=1)
    for each in (source, other):
        bus.joined(each)
    raised: list[BaseException] = []

    def send() -> None:
        try:
            source.send(bytes(10 * bus.kind.window))
        except ipcbus.ClosedError as error:
            raised.append(error)

    # Two messages stop the receiver; then the large one fills the window and waits.
    other.send(b"1", flush=True)
    bus.until(lambda: len(receiver._sink.queue) >= 1, "a full receiver")
    for _ in range(2):
        source.send(b"x", flush=True)
    thread = in_thread(send)
    bus.until(lambda: source._session.channel.writer.head > 40_000, "a part of the message")
    source.close()
    thread.join()
    assert len(raised) == 1
    lost = delivered = 0
    while (message := pull(receiver)).type != MessageType.EOS:
        if message.type in (MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST):
            lost += message.sequence_number - message.first_sequence_number + 1
        delivered += message.type == MessageType.DATA
    assert (delivered, lost) == (3, source.sequence_number - 1)


@pytest.mark.parametrize("kind", [LBTSMX], ids=lambda kind: str(kind.name))
def test_lbtsmx_sends_no_fragments(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    with pytest.raises(ipcbus.MessageTooLarge, match="make the source with message_max="):
        source.send(bytes(source.message_max + 1))
    assert source.sequence_number == -1


@waiting
@embedded
@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_messages_of_64047_bytes_through_datagrams_of_1500(bus: Bus, count: int) -> None:
    context = bus.context("sending", transport_lbtipc_datagram_max_size=1500)
    source = bus.source("t", context)
    receiver = bus.receiver()
    bus.joined(source)
    pattern = random_bytes(64_047 + count)

    def send() -> None:
        for number in range(count):
            source.send(memoryview(pattern)[number : number + 64_047])
        source.flush()

    thread = in_thread(send)
    assert pull(receiver).type == MessageType.BOS
    view = memoryview(pattern)
    for number in range(count):
        message = pull(receiver)
        assert message.data == view[number : number + 64_047]
        assert message.sequence_number == 44 * (number + 1) - 1
    thread.join()
