"""Guaranteed messages: each receiver with a name gets each of them once, in order, and the source learns of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageFlag, MessageType
from ipcbus.wire import gmd_messages
from ipcbus.wire.gmd_messages import Registered
from tests.kit.bus import LBTIPC, LBTIPC_SOURCE_PACED, LBTSMX, Bus, on_all
from tests.kit.forms import FORMS, Taker
from tests.kit.guaranteed import MEMORY, Named, acknowledged, expected, held_up, send, source
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ipcbus import Message

embedded = pytest.mark.parametrize("mode", ["embedded"])
only_ipc = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))


@on_all
@pytest.mark.parametrize("mode_of_delivery", ["some", "all"])
def test_what_is_sent_comes_once_and_is_acknowledged(bus: Bus, mode_of_delivery: str) -> None:
    named, sending = Named(bus), source(bus, delivery_mode=mode_of_delivery)
    expected(bus, sending, "receiver")
    send(bus, sending, 300)
    named.until(300)
    acknowledged(bus, sending)
    named.ledger.balanced(1, 300)
    assert named.ledger.again == set()
    assert sending.gmd_sequence_number == 300


def test_messages_that_are_not_guaranteed_keep_their_place(bus: Bus) -> None:
    sending = source(bus, delivery_mode="best_effort")
    got: list[tuple[int, bytes]] = []
    bus.receiver(
        "t",
        lambda m: got.append((m.gmd_sequence_number, m.data)) if m.type is MessageType.DATA else None,
        gmd_name="receiver",
        **MEMORY,
    )
    expected(bus, sending, "receiver")
    for number in range(50):
        sending.send(b"plain %d" % number)
        sending.send(b"kept %d" % number, delivery_mode="all")
        sending.send(b"ordered %d" % number, delivery_mode="ordered")
    sending.flush()
    bus.until(lambda: len(got) == 150, "all messages")
    acknowledged(bus, sending)
    for number in range(50):
        assert got[3 * number : 3 * number + 3] == [
            (0, b"plain %d" % number),
            (number + 1, b"kept %d" % number),
            (0, b"ordered %d" % number),
        ]


@embedded
@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.name))
def test_every_form_of_receiving_acknowledges(bus: Bus, form: type[Taker]) -> None:
    taker = form(bus, gmd_name="receiver", **MEMORY)
    sending = source(bus)
    expected(bus, sending, "receiver")
    messages = [body(number) for number in range(1, 101)]
    for message in messages:
        sending.send(message)
    sending.flush()
    assert taker.data(100) == messages
    if form.name != "callback":
        # The next pull acknowledges the last message; nothing comes.
        taker.receiver.receive_many(10, 0)
    acknowledged(bus, sending)


@embedded
@pytest.mark.parametrize("plain_first", [True, False])
def test_an_event_queue_of_a_receiver_without_a_name_gets_everything(bus: Bus, plain_first: bool) -> None:
    """Its messages were taken for messages that the source had deleted, counted as delivered, and not called back."""
    queue = ipcbus.EventQueue()
    got: dict[bool, list[bytes]] = {True: [], False: []}

    def receiver(*, plain: bool) -> None:
        def on_message(message: Message) -> None:
            if message.type is MessageType.DATA:
                got[plain].append(message.data)

        named = {} if plain else {"gmd_name": "receiver", **MEMORY}
        bus.context().receiver("t", on_message, event_queue=queue, **named)

    receiver(plain=plain_first)
    receiver(plain=not plain_first)
    sending = source(bus)
    expected(bus, sending, "receiver")
    bus.joined(sending, 2)
    messages = [body(number) for number in range(1, 101)]
    for message in messages:
        sending.send(message)
    sending.flush()

    def all_came() -> bool:
        queue.dispatch(0.01)
        return len(got[True]) == len(got[False]) == 100

    bus.until(all_came, "all messages at both receivers")
    assert got == {True: messages, False: messages}
    acknowledged(bus, sending)
    queue.close()


@embedded
def test_an_event_queue_acknowledges_after_the_dispatch(bus: Bus) -> None:
    got: list[int] = []
    queue = ipcbus.EventQueue()
    context = bus.context()
    context.receiver("t", lambda m: got.append(m.gmd_sequence_number), event_queue=queue, gmd_name="r", **MEMORY)
    sending = source(bus)
    expected(bus, sending, "r")
    send(bus, sending, 100)
    bus.until(lambda: len(queue) >= 101, "messages in the queue")
    assert sending.gmd_num_pending == 100
    while len(got) < 101:
        queue.dispatch(1.0)
    acknowledged(bus, sending)
    assert got == list(range(101))
    queue.close()


@on_all
def test_what_was_sent_before_a_first_receiver_comes_first(bus: Bus) -> None:
    sending = source(bus)
    send(bus, sending, 200)
    assert sending.gmd_num_pending == 200
    named = Named(bus)
    named.until(200)
    send(bus, sending, 100)
    named.until(300)
    acknowledged(bus, sending)
    named.ledger.balanced(1, 300)
    assert named.ledger.again >= set(range(1, 201))


def test_messages_and_receivers_at_once(bus: Bus) -> None:
    """A receiver that registers while messages flow gets the pending ones before the live ones."""
    sending = source(bus)
    send(bus, sending, 300)
    named = Named(bus)
    send(bus, sending, 300)
    named.until(600)
    acknowledged(bus, sending)
    named.ledger.balanced(1, 600)


@on_all
def test_two_names_and_one_without(bus: Bus) -> None:
    first, second = Named(bus, "first"), Named(bus, "second")
    plain: list[int] = []
    bus.receiver("t", lambda m: plain.append(m.gmd_sequence_number) if m.type is MessageType.DATA else None)
    sending = source(bus)
    expected(bus, sending, "first", "second")
    bus.joined(sending, 3)
    send(bus, sending, 200)
    for each in (first, second):
        each.until(200)
        each.ledger.balanced(1, 200)
    acknowledged(bus, sending)
    bus.until(lambda: len(plain) == 200, "the messages of the other one")
    assert plain == list(range(1, 201))


def test_names_and_none_share_a_context(bus: Bus) -> None:
    context = bus.context()
    first, second = Named(bus, "first", context=context), Named(bus, "second", context=context)
    plain: list[Message] = []
    context.receiver("t", lambda m: plain.append(m) if m.type is MessageType.DATA else None)
    sending = source(bus)
    expected(bus, sending, "first", "second")
    send(bus, sending, 100)
    for each in (first, second):
        each.until(100)
        each.ledger.balanced(1, 100)
    acknowledged(bus, sending)
    bus.until(lambda: len(plain) == 100, "the messages of the other one")
    plain[0].ack()  # does nothing


def test_a_later_name_is_expected_from_then_on(bus: Bus) -> None:
    first, sending = Named(bus, "first"), source(bus)
    expected(bus, sending, "first")
    send(bus, sending, 50)
    first.until(50)
    acknowledged(bus, sending)
    second = Named(bus, "second")
    expected(bus, sending, "first", "second")
    send(bus, sending, 50)
    second.until(50)
    first.until(100)
    acknowledged(bus, sending)
    first.ledger.balanced(1, 100)
    second.ledger.balanced(51, 100)


def test_a_receiver_that_returns_gets_what_it_missed_alone(bus: Bus) -> None:
    other, named, sending = Named(bus, "other"), Named(bus), source(bus)
    expected(bus, sending, "other", "receiver")
    send(bus, sending, 100)
    named.until(100)
    bus.until(lambda: not sending.gmd_num_pending, "acknowledgements")
    named.receiver.close()
    send(bus, sending, 100)
    other.until(200)
    bus.until(lambda: sending.gmd_status(200).pending == ("receiver",), "the other one's acknowledgement")
    assert sending.gmd_num_pending == 100
    back = Named(bus)
    back.until(100)
    send(bus, sending, 100)
    back.until(200)
    acknowledged(bus, sending)
    named.ledger.balanced(1, 100)
    back.ledger.balanced(101, 300)
    assert back.ledger.again >= set(range(101, 201))
    other.until(300)
    other.ledger.balanced(1, 300)
    assert other.ledger.again == set()


def test_long_messages_and_headers_come_again_whole(bus: Bus) -> None:
    sending = source(bus)
    sizes = [16, 300, 1000] if bus.kind is LBTSMX else [16, 1000, 20_000, 100_000]
    for size in sizes:
        number = sending.gmd_sequence_number + 1
        sending.send(body(number, size), headers={"size": str(size).encode()}, delivery_mode="all")
    sending.flush()
    got: list[Message] = []

    def keep(message: Message) -> None:
        if message.type is MessageType.DATA:
            got.append(message)

    bus.receiver("t", keep, gmd_name="receiver", **MEMORY)
    bus.until(lambda: len(got) == len(sizes), "messages of before")
    before = time.time_ns()
    for size in sizes:
        sending.send(body(sending.gmd_sequence_number + 1, size), headers={"size": str(size).encode()})
    sending.flush()
    bus.until(lambda: len(got) == 2 * len(sizes), "live messages")
    acknowledged(bus, sending)
    for number, message in enumerate(got, 1):
        size = sizes[(number - 1) % len(sizes)]
        assert message.gmd_sequence_number == number
        assert message.data == body(number, size)
        assert message.headers == (("size", str(size).encode()),)
        assert bool(message.flags & MessageFlag.GMD_RESEND) == (number <= len(sizes))
        assert (message.send_time_ns < before) == (number <= len(sizes))


@pytest.mark.parametrize("kind", [LBTIPC_SOURCE_PACED], ids=lambda kind: str(kind.name))
@embedded
def test_a_gap_is_filled_without_a_loss(bus: Bus) -> None:
    """The receiver is kept busy while the source overwrites its small ring many times."""
    named = Named(bus)
    free = held_up(named, 10)
    sending = source(bus, **bus.kind.small())
    expected(bus, sending, "receiver")
    send(bus, sending, 5000)
    free.set()
    named.until(5000)
    acknowledged(bus, sending)
    named.ledger.balanced(1, 5000)
    assert named.ledger.again


@pytest.mark.parametrize("kind", [LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
@embedded
def test_a_send_that_raises_saves_nothing(bus: Bus) -> None:
    named = Named(bus)
    free = held_up(named, 1)
    sending = source(bus, **bus.kind.small())
    expected(bus, sending, "receiver")
    with pytest.raises(ipcbus.WouldBlock):
        while True:
            sending.send(body(sending.gmd_sequence_number + 1), block=False)
    count = sending.gmd_sequence_number
    assert sending.gmd_num_pending == count
    free.set()
    named.until(count)
    acknowledged(bus, sending)
    send(bus, sending, 10)
    named.until(count + 10)
    acknowledged(bus, sending)
    named.ledger.balanced(1, count + 10)


@only_ipc
@embedded
def test_a_full_area_refuses_and_goes_on(bus: Bus) -> None:
    sending = source(bus, gmd_max_size=10_000)
    with pytest.raises(ipcbus.GmdAreaFull):
        while True:
            sending.send(body(sending.gmd_sequence_number + 1))
    count = sending.gmd_sequence_number
    assert sending.gmd_num_pending == count
    sending.gmd_set_max_size(20_000)
    send(bus, sending, 1)
    named = Named(bus)
    named.until(count + 1)
    acknowledged(bus, sending)
    send(bus, sending, 10)
    named.until(count + 11)
    acknowledged(bus, sending)
    named.ledger.balanced(1, count + 11)


@only_ipc
def test_a_wildcard_receiver_acknowledges_each_topic(bus: Bus) -> None:
    got: dict[str, list[int]] = {"orders.a": [], "orders.b": []}

    def keep(message: Message) -> None:
        if message.type is MessageType.DATA:
            got[message.topic].append(message.gmd_sequence_number)

    bus.context().wildcard_receiver(r"orders\..", keep, gmd_name="receiver", **MEMORY)
    context = bus.context()
    sources = [source(bus, topic, context) for topic in got]
    for each in sources:
        expected(bus, each, "receiver")
        send(bus, each, 50)
    for each in sources:
        acknowledged(bus, each)
    assert got == {topic: list(range(1, 51)) for topic in got}


@only_ipc
def test_a_source_without_a_name_sends_to_named_receivers_as_ever(bus: Bus) -> None:
    got: list[bytes] = []
    bus.receiver("t", lambda m: got.append(m.data), gmd_name="receiver", **MEMORY)
    sending = bus.source()
    bus.joined(sending)
    for number in range(50):
        sending.send(b"%d" % number)
    sending.flush()
    bus.until(lambda: len(got) == 51, "the messages")
    sending.close()
    bus.until(lambda: len(got) == 52, "the end")
    assert got == [b"", *(b"%d" % number for number in range(50)), b""]


def test_a_receiver_counts_when_it_is_registered(bus: Bus) -> None:
    sending = source(bus)
    named = [Named(bus, "first"), Named(bus, "second")]
    plain: list[int] = []
    bus.receiver("t", lambda m: plain.append(m.gmd_sequence_number))
    if bus.sequential:
        bus.until(lambda: sending._joined() >= 3, "three receivers")
    else:
        sending.wait_for_receivers(3, 30)
    assert sorted(sending.gmd_receivers) == ["first", "second"]
    send(bus, sending, 10)
    for each in named:
        each.until(10)
        assert each.ledger.again == set()


@embedded
@only_ipc
def test_one_name_has_one_live_receiver(bus: Bus) -> None:
    named = Named(bus)
    for context in (named.context, bus.context()):
        with pytest.raises(ipcbus.GmdAreaLocked, match="'receiver' lives already, in process"):
            context.receiver("t", gmd_name="receiver", **MEMORY)
    context.receiver("other", gmd_name="receiver", **MEMORY)
    named.receiver.close()
    context.receiver("t", gmd_name="receiver", **MEMORY)


@embedded
@only_ipc
def test_a_message_that_cannot_be_sent_again_is_refused(bus: Bus) -> None:
    limit = 128 << 10
    sending = source(bus, context=bus.context("sending", control_channel_message_maximum=limit))
    with pytest.raises(ipcbus.MessageTooLarge, match="control_channel_message_maximum"):
        sending.send(bytes(limit - 95))
    assert (sending.gmd_sequence_number, sending.gmd_num_pending) == (0, 0)
    sending.send(body(1, limit - 96))
    sending.send(bytes(limit), delivery_mode="best_effort", flush=True)
    named = Named(bus, context=bus.context(control_channel_message_maximum=limit))
    named.until(1)
    acknowledged(bus, sending)
    named.ledger.balanced(1, 1)


@only_ipc
@pytest.mark.parametrize("mode", ["sequential"])
def test_a_receiver_that_comes_too_late_for_a_guaranteed_source_is_not_told_that_it_is_plain(bus: Bus) -> None:
    """It would deliver what it holds as messages without a guarantee, before those that it has missed."""
    context, same = bus.context("sending"), bus.kind.id(7)
    plain = bus.source("plain", context, **same)
    sending = source(bus, context=context, **same)
    sources, session = context._sending_sessions.guaranteed, sending._session
    sending.close()
    refusals: dict[int, int] = {}

    def note(_peer: Hashable, answer: bytes, _more: bool) -> bool:
        found = gmd_messages.decode(answer)
        assert isinstance(found, Registered)
        refusals[found.topic] = found.refusal
        return True

    for each in (plain, sending):
        sources.take(session, "peer", gmd_messages.register(each._number, 1, gmd_messages.WARM, "late"))
    sources.turn(session, 0, note)
    assert refusals == {plain._number: gmd_messages.NOT_GUARANTEED, sending._number: gmd_messages.UNREGISTERED}
