"""Message headers, on every transport and in every form of receiving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from ipcbus import EventQueue, FragmentInfo, MessageType
from ipcbus.stats import take_snapshot
from ipcbus.wire.properties import pack, unpack
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, LBTSMX, LBTTCP, RINGS, on_all
from tests.kit.forms import ReceiveIntoTaker
from tests.kit.payload import body
from tests.kit.queues import dispatch_until

if TYPE_CHECKING:
    from ipcbus import Message, Receiver
    from tests.kit.bus import Bus
    from tests.kit.forms import Taker

HEADERS = (("key", b"AAPL"), ("trace", bytes(range(32))), ("key", b""))
COUNT = 60

fragmenting = pytest.mark.parametrize(
    "kind", [LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, LBTTCP], ids=lambda kind: str(kind.name)
)
one_mode = pytest.mark.parametrize("mode", ["embedded"])


def headers_of(number: int) -> tuple[tuple[str, bytes], ...]:
    """Those of a message: every third has none."""
    return HEADERS[: number % 3] + ((("number", b"%d" % number),) if number % 3 else ())


def take(receiver: Receiver, count: int) -> list[Message]:
    """Pulls so many messages; BOS is left out."""
    found: list[Message] = []
    while len(found) < count:
        messages = receiver.receive_many(count - len(found), GIVE_UP_S)
        assert messages, f"waited in vain for more than {found[-3:]}"
        found += [message for message in messages if message.type is MessageType.DATA]
    return found


@on_all
@one_mode
def test_headers_come_with_their_messages_in_order(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver()
    bus.joined(source)
    for number in range(COUNT):
        source.send(body(number), headers=headers_of(number))
    source.flush()
    messages = take(receiver, COUNT)
    assert [message.headers for message in messages] == [headers_of(number) for number in range(COUNT)]
    assert [message.data for message in messages] == [body(number) for number in range(COUNT)]
    assert [message.sequence_number for message in messages] == list(range(COUNT))
    assert {message.flags for message in messages} == {0}
    assert receiver.lost == 0


@pytest.mark.parametrize("kind", [LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
def test_every_form_of_receiving_gives_values_without_their_headers(bus: Bus, form: type[Taker]) -> None:
    source = bus.source()
    taker = form(bus)
    bus.joined(source)
    for number in range(COUNT):
        source.send(body(number), headers=headers_of(number))
    source.flush()
    assert taker.data(COUNT) == [body(number) for number in range(COUNT)]
    if form is ReceiveIntoTaker:
        # A row has no place for headers, so those messages come singly, with their numbers.
        assert taker.numbers == [number for number in range(COUNT) if number % 3]


@pytest.mark.parametrize("kind", RINGS, ids=lambda kind: str(kind.name))
def test_in_a_callback_and_kept_after_it(bus: Bus) -> None:
    source = bus.source()
    kept: list[Message] = []
    views: list[bytes] = []

    def on_message(message: Message) -> None:
        if message.type is MessageType.DATA:
            views.append(bytes(message.view))
            assert unpack(message.properties_block) == message.headers
            kept.append(message)

    receiver = bus.receiver("t", on_message)
    bus.joined(source)
    for number in range(COUNT):
        source.send(body(number), headers=headers_of(number))
    source.flush()
    bus.until(lambda: len(kept) == COUNT, "the messages")
    bus.close()
    assert views == [message.data for message in kept] == [body(number) for number in range(COUNT)]
    assert [message.headers for message in kept] == [headers_of(number) for number in range(COUNT)]
    assert receiver.delivered == COUNT


@one_mode
@pytest.mark.parametrize("kind", [LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
def test_through_an_event_queue_and_to_several_receivers(bus: Bus) -> None:
    source = bus.source()
    context = bus.context("several")
    queued: list[Message] = []
    called: list[Message] = []
    with EventQueue(2 * COUNT) as queue:
        context.receiver("t", queued.append, event_queue=queue)
        context.receiver("t", called.append)
        pulled = context.wildcard_receiver("t.*")
        bus.joined(source)
        for number in range(COUNT):
            source.send(body(number), headers=headers_of(number))
        source.flush()
        found = take(pulled, COUNT)
        dispatch_until(bus, queue, lambda: len(queued) > COUNT, "what is queued")
        bus.until(lambda: len(called) > COUNT, "the messages")
    for messages in (queued[1:], called[1:], found):
        assert [message.headers for message in messages] == [headers_of(number) for number in range(COUNT)]
        assert [message.data for message in messages] == [body(number) for number in range(COUNT)]


@fragmenting
@one_mode
@pytest.mark.parametrize(("header", "value"), [(10, 30_000), (60_000, 10), (60_000, 60_000), (60_000, 0)])
def test_longer_than_a_datagram_they_come_whole(bus: Bus, header: int, value: int) -> None:
    source = bus.source()
    receiver = bus.receiver()
    bus.joined(source)
    headers = [("first", bytes(range(250)) * (header // 250 + 1)), ("last", b"!")]
    data = body(1, max(16, value))[:value]
    source.send(b"before", headers=HEADERS)
    source.send(data, headers=headers)
    source.send(b"behind", flush=True)
    before, message, behind = take(receiver, 3)
    assert (before.data, before.headers, behind.data, behind.headers) == (b"before", HEADERS, b"behind", ())
    assert (message.data, message.headers, len(message)) == (data, tuple(headers), value)
    assert message.fragment_info == FragmentInfo(1, 0, len(pack(headers)) + value)
    assert message.sequence_number == source.sequence_number - 1


@fragmenting
@one_mode
def test_raw_fragments_are_pieces_of_both(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver(ordered_delivery=0)
    bus.joined(source)
    source.send(bytes(20_000), headers=HEADERS)
    source.send(b"short", headers=HEADERS, flush=True)
    *fragments, short = take(receiver, 4)
    assert b"".join(each.data for each in fragments) == pack(HEADERS) + bytes(20_000)
    assert [(each.flags, each.headers) for each in fragments] == [(0x10, ())] * 3
    assert (short.data, short.headers, short.flags) == (b"short", HEADERS, 0)


@one_mode
@pytest.mark.parametrize("kind", [LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
def test_rows_stop_before_a_message_with_headers(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver()
    bus.joined(source)
    for headers in (None, None, HEADERS, None):
        source.send(b"12345678", headers=headers)
    source.flush()
    bus.until(lambda: receiver.receive(0) is not None, "BOS")
    rows = np.zeros((10, 8), np.uint8)
    filled = 0
    while filled < 2:
        filled += receiver.receive_into(rows, GIVE_UP_S)
    assert filled == 2
    with pytest.raises(ValueError, match="next message has 8 bytes and headers"):
        receiver.receive_into(rows, GIVE_UP_S)
    message = receiver.receive(GIVE_UP_S)
    assert message is not None
    assert message.headers == HEADERS
    assert receiver.receive_into(rows, GIVE_UP_S) == 1


@pytest.mark.parametrize("kind", [LBTSMX], ids=lambda kind: str(kind.name))
@one_mode
def test_lbtsmx_counts_headers_against_its_datagram(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver()
    bus.joined(source)
    room = source.message_max - len(pack({"name": b""}))
    source.send(b"", headers={"name": bytes(room)})
    with pytest.raises(ipcbus.MessageTooLarge, match="with its headers"):
        source.send(b"x", headers={"name": bytes(room)})
    assert take(receiver, 1)[0].headers == (("name", bytes(room)),)
    assert source.sequence_number == 0


@one_mode
def test_both_ends_count_the_same_bytes(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver()
    bus.joined(source)
    for _ in range(10):
        source.send(b"value", headers=HEADERS)
    source.flush()
    take(receiver, 10)
    found = take_snapshot(bus.domain)
    (sent,) = (each.counters["bytes_sent"] for session in found.sessions for each in session.sources)
    (received,) = (each.counters["bytes_rcved"] for context in found.contexts for each in context.receivers)
    assert sent == received == 10 * len(pack(HEADERS) + b"value")
