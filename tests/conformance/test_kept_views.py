"""What is kept of a message's view, or of a place that was written to, is the application's own from then on."""

from __future__ import annotations

import gc
import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ipcbus
from ipcbus import Message, MessageType
from tests.kit.bus import RECEIVER_PACED
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Source
    from tests.kit.bus import Bus

SIZE = 500
EVERY = 7
receiver_paced = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))


class Hoarder:
    """A callback that keeps an array of the view of every seventh message, each in another way."""

    ways: tuple[Callable[[memoryview], Any], ...] = (
        lambda view: np.frombuffer(view, np.uint8),
        lambda view: view[1:],
        lambda view: np.frombuffer(view[2:], np.uint8),
        lambda view: np.asarray(view),
        lambda view: memoryview(np.frombuffer(view, np.uint8)),
    )

    def __init__(self, keep: int) -> None:
        self.seen = 0
        self.keep = keep
        self.kept: list[tuple[bytes, Any]] = []

    def __call__(self, message: Message) -> None:
        if message.type is not MessageType.DATA:
            return
        if self.seen % EVERY == 0 and len(self.kept) < self.keep:
            self.kept.append((message.data, self.ways[len(self.kept) % len(self.ways)](message.view)))
        self.seen += 1

    def unchanged(self) -> bool:
        """Whether everything kept still shows what its message held."""
        return all(data.endswith(bytes(kept)) and len(bytes(kept)) >= SIZE - 2 for data, kept in self.kept)


def send_rings(bus: Bus, source: Source, rings: int, *, enough: Callable[[], object]) -> None:
    """Sends until the receiver has gone round its ring so often."""
    send(bus, source, rings * ring_of(bus) // SIZE)
    bus.until(enough, "the messages")


def send(bus: Bus, source: Source, count: int) -> None:
    """Sends more messages."""
    end = sent_so_far(source) + count
    while sent_so_far(source) < end:
        try:
            source.send(body(sent_so_far(source), SIZE), block=False)
        except ipcbus.WouldBlock:
            bus.turn()
    source.flush()


def ring_of(bus: Bus) -> int:
    """Bytes of the ring that the receiving context reads."""
    rings = [each.demux.ring for context in bus.contexts for each in context._receiving_sessions.sessions()]
    return max(ring.capacity for ring in rings)


@pytest.mark.parametrize("evicts", [False, True], ids=["", "evicting"])
def test_an_array_that_is_kept_never_shows_a_later_message(bus: Bus, evicts: bool) -> None:
    if evicts and bus.kind.source_paced:
        pytest.skip("a source-paced session evicts nobody")
    options = {"slow_receiver_behavior": "evict", "udp_fallback": "none"} if evicts else {}
    source = bus.source(**bus.kind.small(), **options)
    hoarder = Hoarder(keep=12)
    receiver = bus.receiver("t", hoarder)
    bus.joined(source)
    send(bus, source, 12 * EVERY)  # fits the ring of a source that does not wait
    bus.until(lambda: len(hoarder.kept) == 12, "what is kept")
    send_rings(bus, source, 10, enough=lambda: hoarder.seen + receiver.lost >= sent_so_far(source))
    assert hoarder.unchanged()
    bus.close()
    gc.collect()
    assert hoarder.unchanged()


def sent_so_far(source: Source) -> int:
    """Messages of a source."""
    return source.sequence_number + 1


@receiver_paced
def test_every_array_may_be_kept_without_holding_up_the_source(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    kept: list[tuple[bytes, Any]] = []

    def keep(message: Message) -> None:
        if message.type is MessageType.DATA:
            kept.append((message.data, np.frombuffer(message.view, np.uint8)))
            if len(kept) % 3 == 0:
                del kept[0]  # some go, in another order than they came

    receiver = bus.receiver("t", keep)
    bus.joined(source)
    send_rings(bus, source, 10, enough=lambda: receiver.delivered == sent_so_far(source))
    assert all(data == bytes(array) for data, array in kept)
    assert all(not array.flags.writeable for _, array in kept)


@receiver_paced
def test_a_view_that_is_kept_is_counted_and_told_of_once(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    source = bus.source(**bus.kind.small())
    hoarder = Hoarder(keep=3)
    bus.receiver("t", hoarder)
    bus.joined(source)
    session = next(each for context in bus.contexts for each in context._receiving_sessions.sessions())
    send_rings(bus, source, 2, enough=lambda: hoarder.seen == sent_so_far(source))
    # Of three that were kept the first lay in the ring; views that follow it at once are copies.
    assert session.counters()["views_kept"] >= 1
    assert len([record for record in caplog.records if "view of a message" in record.getMessage()]) == 1


@receiver_paced
def test_a_callback_that_closes_its_receiver_still_sees_its_message(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    seen: list[tuple[bytes, bytes, bytes, bytes]] = []

    def close(message: Message) -> None:
        if message.type is not MessageType.DATA or seen:
            return
        view, array = message.view, np.frombuffer(message.view, np.uint8)
        receiver.close()
        for number in range(100, 100 + 3 * source._session.channel.writer.capacity // SIZE):
            source.send(body(number, SIZE))  # into the place, as nobody reads it any more
        seen.append((bytes(view), array.tobytes(), message.data, bytes(message.view)))

    receiver = bus.receiver("t", close)
    bus.joined(source)
    source.send(body(0, SIZE), flush=True)
    bus.until(lambda: seen, "the callback")
    assert set(seen[0]) == {body(0, SIZE)}


def test_what_is_written_after_the_block_never_reaches_the_ring(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    got: list[bytes] = []

    def take(message: Message) -> None:
        if message.type is MessageType.DATA:
            got.append(message.data)

    bus.receiver("t", take)
    bus.joined(source)
    kept: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
    size = 4000 if bus.kind.batches else SIZE
    count = 10 * source._session.channel.writer.capacity // size
    for number in range(count):
        with source.acquire(size) as place:
            place[:] = body(number, size)
            if number % 20 < 2:
                kept.append(np.frombuffer(place, np.uint8))
        for array in kept:
            array[:] = 0xEE
        bus.until(lambda: len(got) + lost(bus) > number, "the message")  # noqa: B023
    assert len(got) == count or bus.kind.source_paced
    assert set(got) <= {body(number, size) for number in range(count)}
    assert len(set(got)) == len(got)
    assert all((array == 0xEE).all() for array in kept)


def lost(bus: Bus) -> int:
    """Messages reported lost on the bus."""
    return sum(receiver.lost for context in bus.contexts for receiver in context._receivers)


def test_an_array_of_a_cancelled_place_never_reaches_the_ring(bus: Bus) -> None:
    source = bus.source()
    with pytest.raises(ZeroDivisionError), source.acquire(SIZE) as place:
        kept = np.frombuffer(place, np.uint8)
        _ = 1 / 0
    got: list[bytes] = []
    bus.receiver("t", lambda message: got.append(message.data) if message.type is MessageType.DATA else None)
    bus.joined(source)
    source.send(body(1, SIZE))
    kept[:] = 0xEE
    source.flush()
    bus.until(lambda: got, "the message")
    assert got == [body(1, SIZE)]


@receiver_paced
def test_a_child_that_was_forked_inside_a_callback_keeps_its_message(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    children: list[int] = []
    told, tell = os.pipe()

    def fork(message: Message) -> None:
        if message.type is not MessageType.DATA or children:
            return
        array = np.frombuffer(message.view, np.uint8)
        child = os.fork()
        if child == 0:
            os.read(told, 1)  # the parent's callback has returned, and other messages followed
            os._exit(0 if array.tobytes() == message.data == bytes(message.view) == body(0, SIZE) else 1)
        children.append(child)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and newer, of a fork beside threads
        receiver = bus.receiver("t", fork)
        bus.joined(source)
        source.send(body(0, SIZE), flush=True)
        bus.until(lambda: children, "the child")
    send_rings(bus, source, 2, enough=lambda: receiver.delivered == sent_so_far(source))
    os.write(tell, b"x")
    status = os.waitpid(children[0], 0)[1]
    os.close(told)
    os.close(tell)
    assert os.waitstatus_to_exitcode(status) == 0
