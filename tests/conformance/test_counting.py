"""Long messages are counted once, with their own size, on both sides; fragments have counters of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType, stats
from tests.kit.bus import LBTIPC, LBTRM, LBTRU, LBTTCP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipcbus import Message, Source
    from tests.kit.bus import Bus

LENGTH = 40_000
"""Of a message; it has five fragments."""
PIECES = 5
LONG = 6
SHORT = 3
COUNT = LONG + SHORT
BYTES = LONG * LENGTH + SHORT * 10

fragmenting = pytest.mark.parametrize("kind", [LBTIPC, LBTRU, LBTRM, LBTTCP], ids=lambda kind: str(kind.name))
sequential = pytest.mark.parametrize("mode", ["sequential"])


def of(counters: Mapping[str, int], *names: str) -> tuple[int, ...]:
    return tuple(counters[name] for name in names)


def send(bus: Bus, source: Source) -> None:
    for _ in range(LONG):
        source.send(b"x" * LENGTH)
        bus.turn()
    for _ in range(SHORT):
        source.send(b"x" * 10)
    source.flush()


@fragmenting
@sequential
@pytest.mark.parametrize("ordered", [1, -1, 0])
def test_both_sides_count_whole_messages(bus: Bus, ordered: int) -> None:
    writer = bus.context("writer")
    source = bus.source("t", writer, **bus.kind.id(7))
    other = bus.source("other", writer, **bus.kind.id(7))
    seen: list[int] = []

    def take(message: Message) -> None:
        if message.type is MessageType.DATA:
            seen.append(len(message.data))

    reader = bus.receiver("t", take, bus.context("reader"), ordered_delivery=ordered)
    bus.receiver("other", lambda _: None, bus.context("stranger"))
    bus.joined(source)
    bus.joined(other)
    send(bus, source)
    other.send(b"end", flush=True)
    bus.until(lambda: sum(seen) == BYTES, "everything")
    assert len(seen) == (LONG * PIECES + SHORT if ordered == 0 else COUNT)
    assert reader.delivered == COUNT

    def shown() -> stats.SessionStats | None:
        session = stats.take_snapshot(bus.domain).session(source.source)
        assert session is not None
        of_both = [slot.counters.get("lbm_msgs_rcved") for slot in session.receivers]
        return session if sorted(map(str, of_both)) == ["1", str(COUNT)] else None

    bus.until(shown, "what both receivers show")
    session = shown()
    assert session is not None
    assert of(session.counters, "lbm_msgs_sent", "fragments_sent") == (COUNT + 1, LONG * PIECES)
    topic = next(each for each in session.sources if each.topic == "t")
    names = ("lbm_msgs_sent", "bytes_sent", "fragments_sent", "msgs_fragmented", "sequence_next")
    assert of(topic.counters, *names) == (COUNT, BYTES, LONG * PIECES, LONG, LONG * PIECES + SHORT)
    slots = {slot.context_name: slot.counters for slot in session.receivers}
    names = ("lbm_msgs_rcved", "fragments_rcved", "msgs_reassembled", "lbm_msgs_no_topic_rcved", "lost")
    whole = LONG if ordered else 0
    # Over UDP a source sends a client only what the client receives something of; a datagram may hold both topics.
    assert of(slots["reader"], *names[:3], "lost") == (COUNT, LONG * PIECES, whole, 0)
    if not bus.kind.over_udp:
        assert of(slots["stranger"], *names) == (1, 0, 0, COUNT, 0)
    (receiver,) = next(each for each in stats.take_snapshot(bus.domain).contexts if each.name == "reader").receivers
    assert of(receiver.counters, "lbm_msgs_rcved", "bytes_rcved", "fragments_rcved") == (COUNT, BYTES, LONG * PIECES)
    assert reader.sessions[0].counters["fragments_rcved"] == LONG * PIECES


@pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
@sequential
def test_a_message_counts_when_its_last_fragment_is_published(bus: Bus) -> None:
    source = bus.source("t", implicit_batching_interval=100_000, implicit_batching_minimum_length=40_000)
    source.send(b"x" * 33_000)  # five fragments of 6.6 kB, of which the last one waits in the open datagram

    def counted() -> tuple[int, ...]:
        found = stats.take_snapshot(bus.domain).session(source.source)
        assert found is not None
        return *of(found.counters, "lbm_msgs_sent"), *of(found.sources[0].counters, "lbm_msgs_sent")

    assert counted() == (0, 0)
    source.flush()
    assert counted() == (1, 1)
