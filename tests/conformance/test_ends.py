"""Beginnings, ends, and who sees what of them."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType, WouldBlock
from tests.kit.bus import GIVE_UP_S, LBTIPC_SOURCE_PACED, LBTRM, LBTRU, LBTTCP, RECEIVER_PACED, Bus, Kind, on_all
from tests.kit.forms import CallbackTaker, ForTaker, ReceiveTaker
from tests.kit.payload import body

if TYPE_CHECKING:
    from ipcbus import Message
    from tests.kit.forms import Taker

BOS, DATA, EOS = MessageType.BOS, MessageType.DATA, MessageType.EOS


def test_closing_the_context_of_the_source_ends_the_stream(bus: Bus, form: type[Taker]) -> None:
    context = bus.context("sending")
    source = bus.source("t", context)
    taker = form(bus)
    bus.joined(source)
    for number in range(30):
        source.send(body(number))
    context.close()  # publishes the open batch
    taker.event(EOS)
    assert taker.kinds == [BOS] + [DATA] * 30 + [EOS]


@on_all
def test_one_of_two_topics_of_a_session_ends_alone(bus: Bus) -> None:
    context = bus.context("sending")
    one, other = (bus.source(topic, context, **bus.kind.id(100)) for topic in "ab")
    first, second = CallbackTaker(bus, "a"), CallbackTaker(bus, "b")
    bus.joined(one)
    bus.joined(other)
    one.send(body(0))
    other.send(body(0), flush=True)
    first.data(1)
    second.data(1)
    one.close()
    first.event(EOS)
    other.send(body(1), flush=True)
    second.data(2)
    assert first.kinds == [BOS, DATA, EOS]
    assert second.kinds == [BOS, DATA, DATA]


@pytest.mark.parametrize("goes_on", [False, True], ids=["alone", "other topic goes on"])
@pytest.mark.parametrize("kind", [LBTRU, LBTRM, LBTTCP], ids=lambda kind: str(kind.name))
def test_a_topic_ends_behind_what_still_waits_with_the_source(bus: Bus, goes_on: bool) -> None:
    """At this data rate, which LBT-TCP does not have, two thirds are in the ring when the source closes."""
    prefix = bus.kind.prefix
    rate = {f"{prefix}_{name}_rate_limit": 1_000_000 for name in ("data", "retransmit")}
    context = bus.context("sending", **({} if bus.kind is LBTTCP else rate))
    other, source = (bus.source(topic, context, **bus.kind.id(100)) for topic in "ba")
    taker = CallbackTaker(bus, "a")
    bus.receiver("b", lambda message: None)
    bus.joined(source)
    bus.joined(other)
    for _ in range(50):
        source.send(bytes(1000))
    source.close()

    def is_over() -> bool:
        if goes_on:
            with contextlib.suppress(WouldBlock):
                other.send(bytes(1000), block=False)
        return EOS in taker.kinds

    bus.until(is_over, "the end of the topic")
    assert taker.kinds == [BOS] + [DATA] * 50 + [EOS]


@on_all
def test_a_source_made_again_begins_anew(bus: Bus) -> None:
    context = bus.context("sending")
    bus.source("keeps the session", context, **bus.kind.id(100))
    taker = CallbackTaker(bus, "t")
    for life in range(1, 5):
        source = bus.source("t", context, **bus.kind.id(100))
        bus.joined(source)
        assert source.sequence_number == -1
        for number in range(3):
            source.send(body(number))
        source.close()
        taker.event(EOS, life)
    assert taker.kinds == [BOS, DATA, DATA, DATA, EOS] * 4
    assert taker.numbers == [0, 1, 2] * 4


def bodies(stay: int) -> list[bytes]:
    """What the source of a topic sends in one of its stays."""
    return [body(10 * stay + number) for number in range(10)]


@on_all
@pytest.mark.parametrize("mode", ["embedded"])
@pytest.mark.parametrize("ending", [True, False], ids=["ended", "goes on"])
def test_a_topic_that_comes_back_ends_before_it_begins_again(bus: Bus, ending: bool) -> None:
    """The receiver is behind: it joins each stay of the topic before it has read the one before."""
    context, same = bus.context("sending"), bus.kind.id(5)
    bus.source("keeps the session", context, **same)
    receiver = bus.receiver(receive_queue_maximum=1)
    for stay in range(3):
        source = bus.source("t", context, **same)
        bus.joined(source)
        for each in bodies(stay):
            source.send(each, flush=True)
        if ending or stay < 2:
            source.close()
    got: list[MessageType | bytes] = []
    while len(got) < 36 - (not ending):
        message = receiver.receive(GIVE_UP_S)
        assert message is not None
        got.append(message.data if message.type is DATA else message.type)
    expected = [each for stay in range(3) for each in (BOS, *bodies(stay), EOS)]
    assert got == expected[: len(got)]


@on_all
@pytest.mark.parametrize("mode", ["embedded"])
def test_a_receiver_that_is_made_in_an_end_changes_nothing_for_the_others(bus: Bus) -> None:
    context, same, receiving = bus.context("sending"), bus.kind.id(5), bus.context("receiving")
    bus.source("keeps the session", context, **same)
    back = threading.Event()
    first: list[MessageType | bytes] = []
    second: list[MessageType | bytes] = []

    def note(message: Message, got: list[MessageType | bytes]) -> None:
        got.append(message.data if message.type is DATA else message.type)
        if got is first and got.count(EOS) == 1 and message.type is EOS:
            assert back.wait(GIVE_UP_S)
            receiving.receiver("t", lambda _: None)

    for got in (first, second):
        bus.receiver("t", lambda message, got=got: note(message, got), receiving)  # type: ignore[misc]
    expected: list[MessageType | bytes] = []
    for stay in range(2):
        source = bus.source("t", context, **same)
        if stay:
            back.set()
        bus.joined(source)
        for each in bodies(stay):
            source.send(each, flush=True)
        source.close()
        if not stay:
            bus.until(lambda: EOS in first, "the first end")
        expected += [BOS, *bodies(stay), EOS]
    bus.until(lambda: first.count(EOS) == second.count(EOS) == 2, "all ends")
    assert first == second == expected


@on_all
def test_an_end_comes_to_who_had_a_beginning_only(bus: Bus) -> None:
    context = bus.context("sending")
    source = bus.source("t", context)
    other = bus.source("other", context)
    taker, control = CallbackTaker(bus), CallbackTaker(bus, "other")
    bus.joined(source)
    bus.joined(other)
    other.send(b"x", flush=True)
    control.data(1)
    context.close()
    control.event(EOS)
    bus.until(lambda: not taker.receiver.sessions, "leaving the session that ended")
    assert taker.kinds in ([], [BOS, EOS])
    assert control.kinds == [BOS, DATA, EOS]


def test_every_receiver_of_a_topic_gets_its_own_beginning(bus: Bus) -> None:
    source = bus.source()
    context = bus.context("receiving")
    first = CallbackTaker(bus, context=context)
    bus.joined(source)
    source.send(body(0), flush=True)
    first.data(1)
    for life in range(1, 6):  # a closed one's place in memory may be used again
        later = CallbackTaker(bus, context=context)
        source.send(body(life), flush=True)
        assert later.data(1) == [body(life)]
        assert later.kinds == [BOS, DATA]
        later.receiver.close()
        del later
    assert first.data(6) == [body(number) for number in range(6)]
    source.close()
    first.event(EOS)
    assert first.kinds == [BOS] + [DATA] * 6 + [EOS]


def test_a_late_receiver_gets_the_rest_without_any_loss(bus: Bus, form: type[Taker]) -> None:
    source = bus.source()
    early = CallbackTaker(bus)
    bus.joined(source)
    for number in range(40):
        source.send(body(number))
    late = form(bus)
    bus.joined(source, 2)
    for number in range(40, 80):
        source.send(body(number))
    source.close()
    late.event(EOS)
    early.event(EOS)
    assert early.numbers == list(range(80))
    got = [item.data for item in late.got if item.type is DATA]
    assert got == [body(number) for number in range(80 - len(got), 80)]
    assert len(got) >= 40
    assert set(late.kinds) == {BOS, DATA, EOS}
    assert late.receiver.lost == 0


def test_a_receiver_made_after_the_end_gets_nothing(bus: Bus) -> None:
    source = bus.source()
    source.send(body(0))
    source.close()
    receiver = bus.receiver()
    bus.turn()
    assert receiver.receive(0) is None
    assert receiver.sessions == []


def test_a_loop_ends_when_its_receiver_is_closed(domain: str, kind: Kind) -> None:
    bus = Bus(domain, kind, "embedded")
    source = bus.source()
    taker = ForTaker(bus)
    source.wait_for_receivers(1, GIVE_UP_S)
    begun = threading.Event()

    def loop() -> None:
        for message in taker.receiver:
            taker._enter(message)
            begun.set()

    thread = threading.Thread(target=loop)
    thread.start()
    source.send(body(0), flush=True)
    assert begun.wait(GIVE_UP_S)
    taker.receiver.close()
    thread.join(GIVE_UP_S)
    assert not thread.is_alive()
    assert taker.kinds[0] is BOS
    bus.close()


@pytest.mark.parametrize("ends", ["receiver", "context"])
def test_a_waiting_receive_ends_with_its_handle(domain: str, kind: Kind, ends: str) -> None:
    bus = Bus(domain, kind, "embedded")
    taker = ReceiveTaker(bus)
    raised: list[BaseException] = []
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        try:
            taker.receiver.receive()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert begun.wait(GIVE_UP_S)
    thread.join(0.02)  # lets it go to sleep; either order is right
    (taker.receiver if ends == "receiver" else taker.context).close()
    thread.join(GIVE_UP_S)
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [ipcbus.ClosedError]
    bus.close()


@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_a_waiting_send_ends_with_its_context(domain: str, kind: Kind) -> None:
    bus = Bus(domain, kind, "embedded")
    context = bus.context("sending")
    source = bus.source("t", context, **kind.small())
    receiver = bus.receiver("t", receive_queue_maximum=1)
    source.wait_for_receivers(1, GIVE_UP_S)
    raised: list[BaseException] = []

    def send() -> None:
        try:
            while True:
                source.send(bytes(500))
        except ipcbus.IpcBusError as error:
            raised.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    bus.until(lambda: source.sequence_number * 500 > kind.window // 2, "a full ring")
    context.close()
    thread.join(GIVE_UP_S)
    assert [type(error) for error in raised] == [ipcbus.ClosedError]
    # All that was sent arrives, and then the end.
    numbers: list[int] = []
    for message in receiver:
        if message.type is EOS:
            break
        if message.type is DATA:
            numbers.append(message.sequence_number)
    assert numbers == list(range(source.sequence_number + 1))
    bus.close()


@pytest.mark.parametrize("mode", ["sequential"])
@pytest.mark.parametrize("kind", [LBTIPC_SOURCE_PACED], ids=lambda kind: str(kind.name))
def test_the_loss_check_of_a_receiver_is_not_tied_to_that_of_liveness(bus: Bus) -> None:
    context = bus.context("taking", liveness_check_interval=60_000, resolution_scan_interval=60_000)
    taker = CallbackTaker(bus, context=context, delivery_control_loss_check_interval=5)
    source = bus.source(**bus.kind.small())
    bus.joined(source)
    source.send(b"seen", flush=True)
    assert taker.data(1) == [b"seen"]
    for _ in range(100):  # nobody drives the receiving context meanwhile
        source.send(bytes(8000), flush=True)
    taker.take(lambda: taker.count() - 1 + taker.receiver.lost >= 100)
    assert taker.receiver.lost > 0
