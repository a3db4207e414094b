"""Long messages: their bytes on every way in and out, and how many of them a slow receiver keeps."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest

import ipcbus
from tests.kit.bus import LBTSMX
from tests.kit.look import queued

if TYPE_CHECKING:
    from ipcbus import Source
    from tests.kit.bus import Bus
    from tests.kit.forms import Taker

pytestmark = [
    pytest.mark.parametrize("kind", [LBTSMX], ids=["lbtsmx"]),
    pytest.mark.parametrize("mode", ["sequential", "embedded"]),
]

LONG = 3 << 19
"""Long enough for copies that pass the caches, and for memory that is used again."""


def content(number: int, length: int) -> bytes:
    return np.random.default_rng(number).bytes(length)


class Sender:
    """Sends numbered long messages, without waiting."""

    def __init__(self, source: Source) -> None:
        self.source, self.sent = source, 0

    def send_more(self) -> bool:
        """Sends the next message; returns whether there was room."""
        try:
            self.source.send(content(self.sent, LONG), flush=True, block=False)
        except ipcbus.WouldBlock:
            return False
        self.sent += 1
        return True


def test_each_form_gets_the_bytes(bus: Bus, form: type[Taker]) -> None:
    """In a ring that is larger than the last cache, with lengths and begins of all kinds."""
    lengths = [LONG - 70, LONG, LONG - 32, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 5, LONG - 64]
    source = bus.context("sending").source("t", message_max=LONG, messages_in_flight=28)
    taker = form(bus)
    bus.joined(source)
    sent = []
    for number in range(24):
        data = content(number, lengths[number % 8])
        if number % 3 == 1:
            data = data[:-20] or data  # headers count
            source.send(memoryview(data), headers={"number": b"%d" % number}, flush=True)
        elif number % 3 == 2:
            with source.acquire(len(data)) as place:
                place[:] = data
        else:
            source.send(data, flush=True)
        sent.append(hashlib.sha256(data).digest())
    rows = np.frombuffer(content(99, 3 << 18), np.uint8).reshape(3, 1 << 18)
    source.send_many(rows)
    source.flush()
    sent += [hashlib.sha256(row.tobytes()).digest() for row in rows]
    assert [hashlib.sha256(data).digest() for data in taker.data(27)] == sent


@pytest.mark.parametrize("in_flight", [2, 14, 28])
def test_a_copy_has_the_bytes_wherever_the_data_begin(bus: Bus, in_flight: int) -> None:
    """What is sent begins at any place in a cache line; copies go another way into rings of more than 16 or 32 MiB."""
    source = bus.context("sending").source("t", message_max=LONG, messages_in_flight=in_flight)
    receiver = bus.context("receiving").receiver("t", events=False)
    bus.joined(source)
    chance = np.random.default_rng(in_flight)
    for near in (1 << 12, 1 << 18, LONG - 200):
        for _ in range(40):
            length, begin = near + int(chance.integers(-70, 200)), int(chance.integers(64))
            data = chance.bytes(begin + length)
            source.send(memoryview(data)[begin:], flush=True)
            message = receiver.receive(30)
            assert message is not None
            assert message.data == data[begin:]


def test_a_slow_receiver_keeps_few_long_messages(bus: Bus) -> None:
    """What it does not keep waits in the ring, so that the source waits; nothing is lost."""
    source = bus.context("sending").source("t", message_max=LONG, messages_in_flight=4)
    receiver = bus.context("receiving").receiver("t", events=False, receive_queue_bytes_maximum=3 * LONG)
    bus.joined(source)
    sender = Sender(source)
    bus.until(lambda: not sender.send_more() and queued(receiver) == 3, "a full ring behind a full queue")
    for _ in range(50):
        bus.turn()
        assert not sender.send_more()
    assert queued(receiver) == 3
    for number in range(sender.sent):
        message = receiver.receive(30)
        assert message is not None
        assert message.data == content(number, LONG)
    assert sender.send_more()
    message = receiver.receive(30)
    assert message is not None
    assert (message.data, receiver.lost) == (content(sender.sent - 1, LONG), 0)


def test_a_thread_that_waits_for_one_message_copies_one(bus: Bus, mode: str) -> None:
    """It waited for the copies of all that the ring held, and the source got no room before that."""
    source = bus.context("sending").source("t", message_max=LONG, messages_in_flight=4)
    receiver = bus.context("receiving").receiver("t", events=False)
    bus.joined(source)
    sender = Sender(source)
    assert [sender.send_more() for _ in range(4)] == [True] * 4
    first = receiver.receive(30)
    assert first is not None
    assert first.data == content(0, LONG)
    if mode == "sequential":  # in the other one, the context's own thread reads while nobody receives
        assert queued(receiver) == 0
    for before in (1, 4, 8, 12):
        rest = receiver.receive_many(10, 30)
        while len(rest) < sender.sent - before:  # a pass is shorter where copies take long
            rest += receiver.receive_many(10, 30)
        assert [message.data for message in rest] == [content(number, LONG) for number in range(before, sender.sent)]
        assert [sender.send_more() for _ in range(4)] == [True] * 4


def test_a_pass_over_a_ring_copies_few_long_messages_or_all(bus: Bus, mode: str) -> None:
    receiving = bus.context("receiving")
    source = bus.context("sending").source("t", message_max=LONG, messages_in_flight=4)
    receiver = receiving.receiver("t", events=False)
    bus.joined(source)
    sender, event_loop = Sender(source), receiving._event_loop
    with event_loop.driver_lock():
        for copies_all, sent, read in ((True, 4, 4), (False, 2, 1)):
            assert [sender.send_more() for _ in range(sent)] == [True] * sent
            event_loop.pump.copies_all = copies_all
            assert event_loop.pump.run(0, 0, True) == read
        assert queued(receiver) == 5
    bus.until(lambda: queued(receiver) == sender.sent, f"the rest in the {mode} context")


def test_who_takes_the_last_long_message_is_about_to_read_the_next_one(bus: Bus) -> None:
    """So the context's own thread leaves the ring to it, but not while many wait: nobody would drive the context."""
    receiving = bus.context("receiving")
    source = bus.context("sending").source("t", message_max=LONG, messages_in_flight=4)
    receiver = receiving.receiver("t", events=False)
    bus.joined(source)
    event_loop, pump = receiving._event_loop, receiving._event_loop.pump
    for length, count, stays_away in ((100, 1, False), (LONG, 1, True), (LONG, 12, False)):
        with event_loop.driver_lock():
            for _ in range(count):
                source.send(bytes(length), flush=True)
                assert pump.run(0, 0, True) == 1
        pump.forget_guest()
        before = pump.ns_since_guest()
        message = receiver.receive(0)
        assert message is not None
        assert len(message.data) == length
        assert (pump.ns_since_guest() < before) == stays_away
        while receiver.receive(0) is not None:
            pass


@pytest.mark.parametrize("policy", ["block", "drop_oldest"])
def test_an_event_queue_keeps_few_long_messages(bus: Bus, policy: Literal["block", "drop_oldest"]) -> None:
    """With `block` the rest waits in the ring; with `drop_oldest` what is not called back is counted."""
    source = bus.context("sending").source("t", message_max=LONG, messages_in_flight=4)
    queue = ipcbus.EventQueue(100, policy, queue_bytes_maximum=3 * LONG)
    got: list[int] = []

    def on_data(data: bytes) -> None:
        got.append(next(number for number in range(len(got), 40) if data == content(number, LONG)))

    receiver = bus.context("receiving").receiver("t", on_data=on_data, event_queue=queue)
    bus.joined(source)
    sender = Sender(source)
    if policy == "block":
        bus.until(lambda: not sender.send_more() and queue.statistics().queued == 3, "a full ring behind a full queue")
        for _ in range(20):
            bus.turn()
            assert not sender.send_more()
    else:
        bus.until(lambda: sender.send_more() and sender.sent == 30, "room for all messages")
        bus.until(lambda: receiver.dropped == 27, "all but three messages dropped")
    assert queue.statistics().queued == 3

    def all_came() -> bool:
        queue.dispatch(0)
        return len(got) + receiver.dropped == sender.sent

    bus.until(all_came, "the rest")
    assert got == list(range(receiver.dropped, sender.sent))
    queue.close()
