"""From idle to busy and back: nobody who sleeps is forgotten. A lost wake-up hangs the test."""

from __future__ import annotations

import random
import threading
import time

import pytest

import ipcbus
from ringbuf.channel import OwnedChannel
from ringbuf.doorbell import DATA, DoorbellRinger
from tests.rings.channels import WINDOW, control_name, join, ring_name, shape
from tests.rings.children import Children, Flag
from tests.rings.parking import Sleeper, Waker, bell_name

HALF = bytes(WINDOW // 2 - 16)
"""A record of which only one fits into the smallest ring at a time."""

LONGEST_PAUSE_NS = 60_000


class Pauses:
    """Spans between an answer and the next question: none, about as long as falling asleep takes, or longer."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def take(self) -> None:
        kind = self._rng.random()
        if kind < 0.3:
            return
        span = self._rng.randrange(LONGEST_PAUSE_NS if kind < 0.99 else 20 * LONGEST_PAUSE_NS)
        until = time.monotonic_ns() + span
        while time.monotonic_ns() < until:
            pass


def new_seed() -> int:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    return seed


def answer(domain: str, edges: int, seed: int, ready: Flag, other_ready: Flag, first: bool) -> int:
    """One of two that take turns, each with a ring of its own; both sleep until the other has published.

    Returns:
        How often it slept.
    """
    mine, others = (domain + ".1", domain + ".2") if first else (domain + ".2", domain + ".1")
    pauses = Pauses(seed + first)
    owned = OwnedChannel(ring_name(mine), control_name(mine), shape())
    sleeper = Sleeper(bell_name(mine, 1))
    ready.raise_it()
    other_ready.wait()
    waker = Waker(owned, others)
    joined = join(others, 1)
    ready.raise_it()
    other_ready.wait()
    slept = 0
    for number in range(edges):
        if first:
            waker.publish(number.to_bytes(4, "little"))
        while (body := joined.reader.read()) is None:
            slept += sleeper.sleep(joined)
        joined.reader.show()
        assert int.from_bytes(body, "little") == number
        pauses.take()
        if not first:
            waker.publish(body)
    joined.leave()
    waker.close()
    sleeper.close()
    return slept


def take_turns(domain: str, edges: int) -> None:
    seed = new_seed()
    with Children() as children, Flag() as one, Flag() as two:
        ends = [
            children.run(answer, domain, edges, seed, one, two, True),
            children.run(answer, domain, edges, seed, two, one, False),
        ]
        slept = children.results(ends)
    print(f"{edges} edges, slept {slept}")
    assert min(slept) > 0


@pytest.mark.stress
def test_no_wake_up_of_a_sleeping_reader_is_lost(domain: str) -> None:
    take_turns(domain, 2000)


@pytest.mark.long
def test_no_wake_up_of_a_sleeping_reader_is_lost_in_a_million_edges(domain: str) -> None:
    take_turns(domain, 500_000)


def write_halves(domain: str, edges: int, ready: Flag, joined: Flag, by_event: bool) -> int:
    """Publishes records that fit one at a time, so that it has to wait for each; how often it did."""
    channel = OwnedChannel(ring_name(domain), control_name(domain), shape())
    bell = Sleeper(bell_name(domain, 99))
    ready.raise_it()
    joined.wait()
    waited = 0
    for _ in range(edges):
        while not channel.writer.write(HALF):
            waited += 1
            if not by_event:
                channel.writer.wait_room(len(HALF), 0, -1)
            elif channel.writer.want_event(len(HALF)):
                bell.wait()
    channel.close()
    bell.close()
    return waited


def read_halves(domain: str, edges: int, seed: int, joined: Flag) -> int:
    """Takes the records with pauses between; how often the writer wanted an event."""
    pauses = Pauses(seed)
    channel = join(domain)
    rope = DoorbellRinger(bell_name(domain, 99))
    joined.raise_it()
    events = 0
    for _ in range(edges):
        while channel.reader.read() is None:
            pass
        pauses.take()
        if channel.reader.show():
            events += 1
            rope.ring(DATA)
    channel.leave()
    rope.close()
    return events


def wait_for_room(domain: str, edges: int, by_event: bool) -> None:
    seed = new_seed()
    with Children() as children, Flag() as ready, Flag() as joined:
        writer = children.run(write_halves, domain, edges, ready, joined, by_event)
        children.until(ready)
        reader = children.run(read_halves, domain, edges, seed, joined)
        waited, events = children.results([writer, reader])
    print(f"{edges} records, waited {waited} times, {events} events")
    assert waited > 0
    assert (events > 0) == by_event


@pytest.mark.stress
@pytest.mark.parametrize("by_event", [False, True], ids=["asleep", "by event"])
def test_no_wake_up_of_a_writer_without_room_is_lost(domain: str, by_event: bool) -> None:
    wait_for_room(domain, 2000, by_event)


@pytest.mark.long
@pytest.mark.parametrize("by_event", [False, True], ids=["asleep", "by event"])
def test_no_wake_up_of_a_writer_without_room_is_lost_in_a_million_edges(domain: str, by_event: bool) -> None:
    wait_for_room(domain, 1_000_000, by_event)


OPTIONS = {
    "context": {
        "transport_lbtipc_receiver_thread_behavior": "pend",
        "transport_lbtipc_pend_behavior_linger_loop_count": 1,
        "transport_lbtipc_pend_behavior_linger_maximum": 0,
    }
}


def echo(domain: str, transport: str, edges: int, ready: Flag) -> int:
    """A context that sends back what it gets, from its callback, and sleeps in between."""
    with ipcbus.Context(OPTIONS, domain=domain) as context:
        back = context.source("back", transport=transport)
        done = threading.Event()
        seen = 0

        def on_message(message: ipcbus.Message) -> None:
            nonlocal seen
            if message.type is ipcbus.MessageType.DATA:
                back.send(message.data, flush=True)
                seen += 1
            if seen == edges or message.type is ipcbus.MessageType.EOS:
                done.set()

        ready.raise_it()
        # Only who is joined gets the answers; so this one is not joined before.
        back.wait_for_receivers(1, 30)
        context.receiver("there", on_message)
        done.wait()
        return seen


def ask(domain: str, transport: str, mode: str, edges: int, seed: int) -> int:
    """A context that asks and waits for the answer."""
    pauses = Pauses(seed)
    with ipcbus.Context(OPTIONS, domain=domain, operational_mode=mode) as context:
        there = context.source("there", transport=transport)
        back = context.receiver("back")
        there.wait_for_receivers(1, 30)
        number = 0
        there.send(number.to_bytes(4, "little"), flush=True)
        while number < edges:
            message = back.receive()
            assert message is not None
            if message.type is not ipcbus.MessageType.DATA:
                continue
            assert int.from_bytes(message.data, "little") == number
            number += 1
            pauses.take()
            if number < edges:
                there.send(number.to_bytes(4, "little"), flush=True)
        return number


def ask_and_echo(domain: str, transport: str, mode: str, edges: int) -> None:
    seed = new_seed()
    with Children() as children, Flag() as ready:
        other = children.run(echo, domain, transport, edges, ready)
        children.until(ready)
        asking = children.run(ask, domain, transport, mode, edges, seed)
        assert children.results([other, asking]) == [edges, edges]


@pytest.mark.stress
@pytest.mark.parametrize("transport", ["lbtipc", "lbtsmx"])
@pytest.mark.parametrize("mode", ["embedded", "sequential"])
def test_no_wake_up_of_a_sleeping_context_is_lost(domain: str, transport: str, mode: str) -> None:
    ask_and_echo(domain, transport, mode, 1000)


@pytest.mark.long
@pytest.mark.parametrize("transport", ["lbtipc", "lbtsmx"])
@pytest.mark.parametrize("mode", ["embedded", "sequential"])
def test_no_wake_up_of_a_sleeping_context_is_lost_in_a_million_edges(domain: str, transport: str, mode: str) -> None:
    ask_and_echo(domain, transport, mode, 500_000)
