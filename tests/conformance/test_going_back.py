"""Sources of long messages use memory again soon: messages, leases, numbers and what was promised stay right."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from ipcbus import MessageType, SourceEventType, stats
from ipcbus.runtime.discovery.peers import Peers
from ipcbus.stats import shared_copies, snapshot
from ipcbus.stats.peek import Peek
from tests.kit.bus import LBTSMX, Bus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message, Receiver, Source, SourceEvent
    from ipcbus.stats import SessionStats
    from ipcbus.stats.shared_copies import ControlCopy

LENGTH, IN_FLIGHT, RING = 300_000, 4, 1 << 21
"""Five messages fit into the ring."""


@pytest.fixture
def bus(domain: str) -> Iterator[Bus]:
    made = Bus(domain, LBTSMX, "sequential")
    yield made
    made.close()


def of_bus(bus: Bus) -> Source:
    return bus.context("sending").source("t", message_max=LENGTH, messages_in_flight=IN_FLIGHT)


def body(number: int, length: int = LENGTH) -> bytes:
    return number.to_bytes(8, "little") + bytes([number % 251]) * (length - 8)


def check(message: Message, number: int) -> None:
    array = message.array((len(message),), np.uint8)
    assert int(array[:8].view(np.int64)[0]) == number
    assert (array[8:] == number % 251).all()


def session_of(source: Source, domain: str) -> SessionStats:
    (found,) = (each for each in stats.take_snapshot(domain).sessions if each.source == source.source)
    return found


def test_messages_take_the_memory_of_few_by_turns(bus: Bus) -> None:
    source = of_bus(bus)
    receiver = bus.receiver("t", None, events=False)
    bus.joined(source)
    addresses = []
    for number in range(60):
        source.send(body(number))
        with receiver.lease(30) as message:
            assert message is not None
            check(message, number)
            addresses.append(message.array(LENGTH, np.uint8).ctypes.data)
    last = [(address - addresses[-1]) % RING for address in addresses[-20:]]
    assert min(max((place - at) % RING for place in last) for at in last) < 2 * LENGTH


@pytest.mark.parametrize("seed", range(20))
def test_leased_message_leaves_room_for_the_others_in_flight(bus: Bus, seed: int) -> None:
    chance, sent, got = random.Random(seed), 0, 0
    source = of_bus(bus)
    receiver = bus.receiver("t", None, events=False)
    bus.joined(source)

    def send() -> None:
        nonlocal sent
        source.send(body(sent, chance.choice([LENGTH, LENGTH, chance.randint(8, LENGTH)])), block=False)
        sent += 1

    for _ in range(60):
        while sent - got < chance.randint(1, IN_FLIGHT - 1):
            send()
        with receiver.lease(30) as message:
            assert message is not None
            while sent - got < IN_FLIGHT:
                send()  # raises WouldBlock if there is no room
            check(message, got)
            got += 1
        while got < sent and chance.random() < 0.7:
            received = receiver.receive(timeout=30)
            assert received is not None
            check(received, got)
            got += 1
    assert receiver.lost == 0


def test_lag_counts_what_is_not_read(bus: Bus, domain: str) -> None:
    chance, sent, got = random.Random(1), 0, 0
    source = of_bus(bus)
    receiver = bus.receiver("t", None, events=False)
    bus.joined(source)
    for _ in range(60):
        for _ in range(chance.randint(0, IN_FLIGHT - (sent - got))):
            source.send(body(sent))
            sent += 1
        while got < sent and chance.random() < 0.6:
            with receiver.lease(30) as message:
                assert message is not None
            got += 1
        session = session_of(source, domain)
        (slot,) = session.receivers
        # A receiver that looks for one message may have read the ones behind it.
        assert slot.lag % (LENGTH + 32) < 200
        assert slot.lag <= (sent - got) * (LENGTH + 100)


def test_lag_while_the_source_goes_on(bus: Bus, domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = of_bus(bus)
    receiver = bus.receiver("t", None, events=False)
    bus.joined(source)
    numbers = iter(range(1000))

    def go_on(count: int) -> None:
        for number in numbers:
            source.send(body(number))
            assert receiver.receive(timeout=30) is not None
            count -= 1
            if not count:
                break

    go_on(10)
    read_control = shared_copies.read_control

    def read_slowly(name: str, session_id: int, topics_max: int) -> ControlCopy:
        go_on(10)
        found = read_control(name, session_id, topics_max)
        go_on(10)
        return found

    monkeypatch.setattr(snapshot, "read_control", read_slowly)
    (slot,) = session_of(source, domain).receivers
    assert slot.lag <= LENGTH + 100


@pytest.mark.parametrize(
    ("length", "in_flight"),
    [(262_016, 4), (262_008, 4), (262_015, 4), (262_000, 4), (524_160, 2), (1_048_448, 2), (262_017, 4)],
)
def test_message_that_fills_its_share_of_the_ring(bus: Bus, length: int, in_flight: int) -> None:
    source = bus.context("sending").source("t", message_max=length, messages_in_flight=in_flight)
    receiver = bus.receiver("t", None, events=False)
    bus.joined(source)
    for number in range(0, 4 * in_flight, in_flight):
        for more in range(in_flight):
            source.send(body(number + more, length), headers=[], block=False)
        for more in range(in_flight):
            received = receiver.receive(timeout=30)
            assert received is not None
            check(received, number + more)
    assert receiver.lost == 0


class Room:
    """Says when a source got WAKEUP."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def __call__(self, event: SourceEvent) -> None:
        if event.type is SourceEventType.WAKEUP:
            self.event.set()


def fill(source: Source) -> int:
    """Sends until there is no room; returns how many messages were sent."""
    sent = 0
    with contextlib.suppress(ipcbus.WouldBlock):
        while True:
            source.send(body(sent), block=False)
            sent += 1
    return sent


def test_source_hears_of_room_before_the_next_callback(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    ring = Peers.ring

    def noted(self: Peers, context_id: int) -> None:
        steps.append("ring")
        ring(self, context_id)

    def on_message(message: Message) -> None:
        if message.type is MessageType.DATA:
            steps.append("callback")

    with (
        ipcbus.Context(domain=domain) as sending,
        ipcbus.Context(domain=domain, operational_mode="sequential") as receiving,
    ):
        source = sending.source("t", message_max=LENGTH, messages_in_flight=IN_FLIGHT)
        receiving.receiver("t", on_message)
        while source.receivers < 1:
            receiving.process_events(0.01)
        sent = fill(source)
        monkeypatch.setattr(Peers, "ring", noted)
        while steps.count("callback") < sent:
            receiving.process_events(0.01)
        monkeypatch.undo()
    assert steps[:3] == ["callback", "ring", "callback"]


def test_source_hears_of_room_after_a_lease(domain: str) -> None:
    room = Room()
    with (
        ipcbus.Context(domain=domain) as sending,
        ipcbus.Context(domain=domain, operational_mode="sequential") as receiving,
    ):
        source = sending.source("t", on_event=room, message_max=LENGTH, messages_in_flight=IN_FLIGHT)
        receiver = receiving.receiver("t", events=False)
        while source.receivers < 1:
            receiving.process_events(0.01)
        fill(source)
        with receiver.lease(30) as message:
            assert message is not None
        receiving.process_events(0)
        assert room.event.wait(10)


def test_short_messages_are_seen_behind_long_ones(bus: Bus, domain: str) -> None:
    source = of_bus(bus)
    receiver = bus.receiver("t", None, events=False)
    bus.joined(source)
    session = session_of(source, domain)
    with closing(Peek(domain, session.context_id, session.source, session.sources[0].number)) as seen:
        for number in range(0, 100, 5):
            for long in range(2):
                source.send(body(number + long))
                assert receiver.receive(timeout=30) is not None
            seen.look()
            for short in range(2, 5):
                source.send(body(number + short, 100), flush=True)
            found = seen.look()
            assert [each.sequence_number for each in found] == [number + 2, number + 3, number + 4]
            assert not seen.skipped
            for _ in range(3):
                assert receiver.receive(timeout=30) is not None


@pytest.mark.parametrize("count", [600, pytest.param(20_000, marks=pytest.mark.long)])
def test_threads_that_look_for_different_times(domain: str, count: int) -> None:
    """A callback, a thread with leases and one with copies; each gets every message, in order."""
    failed: list[BaseException] = []
    called = 0
    done = [threading.Event() for _ in range(3)]

    def on_message(message: Message) -> None:
        nonlocal called
        if message.type is MessageType.DATA:
            try:
                check(message, called)
            except BaseException as error:
                failed.append(error)
            called += 1
            if called == count:
                done[0].set()

    def pull(receiver: Receiver, leases: bool, seed: int, end: threading.Event) -> None:
        chance = random.Random(seed)
        try:
            for number in range(count):
                if leases and chance.random() < 0.8:
                    with receiver.lease(60) as message:
                        assert message is not None
                        check(message, number)
                        if chance.random() < 0.02:
                            time.sleep(0.005)
                        check(message, number)
                else:
                    received = receiver.receive(timeout=60)
                    assert received is not None
                    check(received, number)
        except BaseException as error:
            failed.append(error)
        end.set()

    contexts = [ipcbus.Context(domain=domain) for _ in range(4)]
    source = contexts[0].source("t", message_max=LENGTH, messages_in_flight=IN_FLIGHT)
    contexts[1].receiver("t", on_message)
    pulling = [each.receiver("t", events=False) for each in contexts[2:]]
    source.wait_for_receivers(3, 30)
    for number, receiver in enumerate(pulling):
        threading.Thread(target=pull, args=(receiver, number == 0, number, done[number + 1])).start()
    for number in range(count):
        source.send(body(number))
    for each in done:
        assert each.wait(120)
    assert failed == []
    assert called == count
    assert all(receiver.lost == 0 for receiver in pulling)
    for context in contexts:
        context.close()
