"""The receiving handle."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from ipcbus import MessageType
from ipcbus.runtime.loop.event_loop import EventLoop
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, MODES, Bus
from tests.kit.look import advert
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message


@pytest.fixture
def bus(domain: str) -> Iterator[Bus]:
    made = Bus(domain, LBTIPC, "sequential")
    yield made
    made.close()


def test_a_new_receiver_has_nothing(bus: Bus) -> None:
    receiver = bus.receiver("quotes.AAPL")
    assert (receiver.topic, receiver.delivered, receiver.lost) == ("quotes.AAPL", 0, 0)
    assert receiver.sessions == []
    assert not receiver.closed
    assert "'quotes.AAPL'" in repr(receiver)
    receiver.close()
    assert "closed" in repr(receiver)


def test_what_it_counts_others_can_read(bus: Bus) -> None:
    context = bus.context("counting")
    receiver = bus.receiver("t", lambda message: None, context)
    source = bus.source()
    bus.joined(source)
    for number in range(10):
        source.send(body(number, 100))
    source.close()
    bus.until(lambda: not receiver.sessions, "the end")
    (row,) = advert(context).receivers
    assert (row.topic, row.lbm_msgs_rcved, row.bytes_rcved, row.lost, row.events) == ("t", 10, 1000, 0, 2)
    receiver.close()
    assert advert(context).receivers == ()
    assert receiver.delivered == 10


def test_a_closed_pull_receiver_still_gives_what_it_has(bus: Bus) -> None:
    receiver = bus.receiver()
    source = bus.source()
    bus.joined(source)
    for number in range(3):
        source.send(body(number))
    source.flush()
    bus.until(lambda: receiver.delivered == 3, "the messages")
    receiver.close()
    assert [message.type for message in receiver] == [MessageType.BOS] + [MessageType.DATA] * 3
    with pytest.raises(ipcbus.ClosedError):
        receiver.receive(0)


def test_receive_many_takes_no_more_than_its_limit(bus: Bus) -> None:
    receiver = bus.receiver()
    source = bus.source()
    bus.joined(source)
    for number in range(20):
        source.send(body(number))
    source.flush()
    bus.until(lambda: receiver.delivered == 20, "all messages")  # a slow machine publishes them in several batches
    taken = [len(receiver.receive_many(6, GIVE_UP_S)) for _ in range(3)]
    assert taken == [6, 6, 6]
    assert len(receiver.receive_many(100, GIVE_UP_S)) == 3
    assert receiver.receive_many(0, 0) == []


@pytest.mark.parametrize("kind", [np.float32, np.dtype([("a", "<u2"), ("b", "<f8")])], ids=["numbers", "records"])
def test_rows_may_be_items_of_any_type(bus: Bus, kind: np.dtype[np.void]) -> None:
    receiver = bus.receiver()
    source = bus.source()
    bus.joined(source)
    items = np.arange(20 * np.dtype(kind).itemsize, dtype=np.uint8).view(kind)
    source.send_many(items, flush=True)
    place = np.zeros(20, kind)
    assert receiver.receive_into(place, GIVE_UP_S) == 0
    receiver.receive(0)
    filled = 0
    while filled < 20:
        filled += receiver.receive_into(place[filled:], GIVE_UP_S)
    assert place.tobytes() == items.tobytes()
    assert receiver.delivered == 20


@pytest.mark.parametrize(
    "rows", [np.zeros(2, object), memoryview(np.zeros(2, object)), np.zeros(2, [("a", "<i8"), ("b", object)])]
)
def test_rows_may_not_hold_references(bus: Bus, rows: object) -> None:
    receiver = bus.receiver()
    with pytest.raises(TypeError, match="references to objects"):
        receiver.receive_into(rows, 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("forever", [float("inf"), 1e12])
def test_a_wait_of_any_length_is_one(domain: str, mode: str, forever: float) -> None:
    bus = Bus(domain, LBTIPC, mode)
    context = bus.context()
    source = bus.source(context=context, implicit_batching_minimum_length=1)
    receiver = bus.receiver(context=context)
    queue = ipcbus.EventQueue(10)
    bus.receiver(on_message=lambda message: None, context=context, event_queue=queue)
    source.wait_for_receivers(1, forever)
    for _ in range(3):
        source.send(b"a")
    taken = [receiver.receive(forever)]
    while len(taken) < 3:
        taken += receiver.receive_many(1, forever)
    assert receiver.receive_into(np.zeros((1, 1), np.uint8), forever) == 1
    assert queue.dispatch(forever) > 0
    if mode != "embedded":
        source.send(b"b")
        assert context.process_events(forever) > 0
    queue.close()
    bus.close()


def test_rows_take_what_is_queued_first_and_then_what_comes(bus: Bus) -> None:
    receiver = bus.receiver()
    source = bus.source()
    bus.joined(source)
    for number in range(5):
        source.send(body(number, 16), flush=True)
    bus.until(lambda: receiver.delivered == 5, "the first five")
    for number in range(5, 8):
        source.send(body(number, 16), flush=True)
    receiver.receive(0)
    rows = np.zeros((8, 16), np.uint8)
    filled = 0
    while filled < 8:
        filled += receiver.receive_into(rows[filled:], GIVE_UP_S)
    assert [row.tobytes() for row in rows] == [body(number, 16) for number in range(8)]


def test_losses_stand_between_the_messages_where_they_happened(domain: str) -> None:
    bus = Bus(domain, LBTIPC_SOURCE_PACED, "sequential")
    source = bus.source(**LBTIPC_SOURCE_PACED.small())
    receiver = bus.receiver("t", None, delivery_control_maximum_burst_loss=2)
    bus.joined(source)
    source.send(body(0), flush=True)
    bus.until(lambda: receiver.delivered == 1, "the first")
    for number in range(1, 3000):
        source.send(body(number))
    source.flush()
    bus.until(lambda: receiver.delivered + receiver.lost >= 3000, "the rest, or news of it")
    source.send(body(3000), flush=True)
    source.close()
    bus.until(lambda: receiver.sessions == [], "the end")
    got: list[Message] = []
    while (message := receiver.receive(0)) is not None:
        got.append(message)
    assert got[0].type is MessageType.BOS
    assert got[-1].type is MessageType.EOS
    expected = 0
    for message in got[1:-1]:
        assert message.first_sequence_number == expected
        expected = message.sequence_number + 1
    assert expected == 3001
    assert receiver.lost > 0
    bus.close()


def test_receivers_of_one_topic_have_queues_of_their_own(bus: Bus) -> None:
    context = bus.context("both")
    one, two = bus.receiver("t", None, context), bus.receiver("t", None, context)
    source = bus.source()
    bus.joined(source)
    for number in range(5):
        source.send(body(number))
    source.flush()
    bus.until(lambda: one.delivered == two.delivered == 5, "the messages")
    assert [message.data for message in one.receive_many(10, 0)] == [
        message.data for message in two.receive_many(10, 0)
    ]


def test_two_threads_may_pull_from_one_receiver(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    receiver = bus.receiver()
    source = bus.source()
    bus.joined(source)
    got: list[list[bytes]] = [[], []]

    def pull(mine: list[bytes]) -> None:
        for message in receiver:
            if message.type is MessageType.DATA:
                mine.append(message.data)
            if message.type is MessageType.EOS:
                receiver.close()

    threads = [threading.Thread(target=pull, args=(mine,)) for mine in got]
    for thread in threads:
        thread.start()
    sent = [body(number) for number in range(2000)]
    for message in sent:
        source.send(message)
    source.close()
    for thread in threads:
        thread.join(GIVE_UP_S)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(got[0] + got[1]) == sorted(sent)
    assert all(mine == sorted(mine, key=sent.index) for mine in got)
    bus.close()


def test_a_receiver_keeps_its_option_for_bursts(domain: str) -> None:
    with ipcbus.Context(domain=domain, operational_mode="sequential") as context:
        receiver = context.receiver("t", delivery_control_maximum_burst_loss=7)
        assert receiver._subscription.options.delivery_control_maximum_burst_loss == 7


@pytest.mark.parametrize("pull", ["receive", "receive_many"])
def test_a_named_receiver_sleeps_while_it_waits(domain: str, monkeypatch: pytest.MonkeyPatch, pull: str) -> None:
    turns = 0
    poll = EventLoop.poll

    def counted(event_loop: EventLoop) -> int:
        nonlocal turns
        turns += 1
        return poll(event_loop)

    monkeypatch.setattr(EventLoop, "poll", counted)
    with ipcbus.Context(domain=domain, operational_mode="sequential") as context:
        receiver = context.receiver("t", gmd_name="r", ipc_gmd_type="memory")
        if pull == "receive":
            assert receiver.receive(0.05) is None
        else:
            assert receiver.receive_many(9, 0.05) == []
        assert 0 < turns < 20
