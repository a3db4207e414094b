"""Whatever is sent, flushed, held, written in place or cancelled: each message comes once, in order, numbered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.topic.batch import BatchWriter
from ipcbus.topic.topic_source import TopicSource
from ringbuf import clock
from ringbuf.layout import RING_HEADER
from tests.kit.bus import fresh_domain
from tests.kit.datagrams import Item, parse
from tests.rings import channels

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from ringbuf.channel import JoinedChannel

DATAGRAM_MAX = 512


class Calm:
    """A policy for a ring that is read after each step."""

    def ring_full(self, need: int, block: bool, source: TopicSource) -> bool:
        raise AssertionError("full")

    def wait_for_release(self, block: bool, is_shut: object) -> None:
        raise AssertionError("reserved")

    def released(self) -> None: ...

    def batch_opened(self) -> None: ...


@st.composite
def steps(draw: DrawFn) -> tuple[str, int, int, bool, bool, bool]:
    """A step: what, topic, length, and three flags."""
    what = draw(st.sampled_from(["send"] * 6 + ["acquire", "cancel", "flush", "age", "many", "rows"]))
    length = draw(st.integers(0, 60) | st.integers(0, DATAGRAM_MAX - 16))
    flags = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    return (what, draw(st.integers(0, 1)), length, *flags)


class Model:
    """What was put in, in order."""

    def __init__(self) -> None:
        self.sent: list[Item] = []
        self.next = [0, 0]

    def put(self, topic: int, length: int, flags: int = 0) -> bytes:
        """The next message of a topic."""
        payload = bytes([(self.next[topic] * 2 + topic) & 0xFF]) * length
        self.sent.append(Item(topic, self.next[topic], payload, flags))
        self.next[topic] += 1
        return payload


def do(
    step: tuple[str, int, int, bool, bool, bool], batch: BatchWriter, sources: list[TopicSource], model: Model
) -> None:
    """Does one step in reality and in the model."""
    what, topic, length, flush, start, end = step
    source = sources[topic]
    if what == "send":
        source.send(model.put(topic, length, start + 2 * end), flush=flush, start_batch=start, end_batch=end)
    elif what == "many":
        assert source.send_many([model.put(topic, each) for each in (length, 0, 7)], flush=flush) == 3
    elif what == "rows":
        rows = [model.put(topic, 8) for _ in range(3)]
        assert source.send_many(memoryview(b"".join(rows)).cast("B", (3, 8)), flush=flush) == 3
    elif what == "acquire":
        payload = model.put(topic, length)
        with source.acquire(length) as place:
            place[:] = payload
    elif what == "cancel":
        try:
            with source.acquire(length) as place:
                place[:] = b"\xff" * length
                raise LookupError
        except LookupError:
            pass
    elif what == "flush":
        batch.flush()
    else:
        batch.flush_older(clock.ticks(), 0 if flush else 10**15)
    assert source.sequence_number == model.next[topic] - 1


def read(reading: JoinedChannel) -> list[bytes]:
    """The datagrams that were published."""
    found = []
    while (body := reading.reader.read()) is not None:
        found.append(body)
    reading.reader.show()
    return found


@settings(max_examples=150)
@given(st.lists(steps(), max_size=60), st.sampled_from([0, 1, 64, 200, 10_000]))
def test_what_comes_out_is_what_went_in(todo: list[tuple[str, int, int, bool, bool, bool]], minimum: int) -> None:
    domain = fresh_domain()
    with channels.owned(domain, window=8192) as channel:
        reading = channels.join(domain)
        batch = BatchWriter(
            channel.writer,
            Calm(),
            lambda mask: None,
            minimum_length=minimum,
            datagram_max=DATAGRAM_MAX,
            topics_max=2,
            topics_offset=RING_HEADER.itemsize,
        )
        sources = [TopicSource(batch, "a", 0), TopicSource(batch, "b", 1)]
        model = Model()
        datagrams: list[bytes] = []
        for step in todo:
            do(step, batch, sources, model)
            datagrams += read(reading)
        for source in sources:
            source._refuse_sends()
        batch.flush()
        datagrams += read(reading)
        reading.leave()
    assert all(0 < len(datagram) <= DATAGRAM_MAX for datagram in datagrams)
    assert [item for datagram in datagrams for item in parse(datagram)] == model.sent
