"""A silent source says which number was its last: on real sessions, by the context's timers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus import MessageType
from ringbuf import clock
from tests.kit.forms import CallbackTaker
from tests.kit.look import datagrams, published

if TYPE_CHECKING:
    from tests.kit.bus import Bus

SOON = {"transport_topic_sequence_number_info_interval": 20, "implicit_batching_interval": 3}


def test_a_silent_source_is_told_of_and_nobody_is_given_a_message(bus: Bus) -> None:
    source = bus.source(**SOON)
    taker = CallbackTaker(bus)
    bus.joined(source)
    source.send(b"x", flush=True)
    assert taker.data(1) == [b"x"]
    batch = source._session.batch
    bus.until(lambda: batch.infos_sent >= 3, "three infos")
    bus.until(lambda: datagrams(taker.receiver) >= 4, "their datagrams")
    source.send(b"y", flush=True)
    assert taker.data(2) == [b"x", b"y"]
    assert taker.numbers == [0, 1]
    assert taker.kinds == [MessageType.BOS, MessageType.DATA, MessageType.DATA]
    assert taker.receiver.sessions[0].counters["lbm_msgs_rcved"] == 2


def test_a_source_that_never_sent_starts_no_session(bus: Bus) -> None:
    silent = bus.source("t", context := bus.context("sending"), **bus.kind.id(40), **SOON)
    other = bus.source("other", context, **bus.kind.id(41), **SOON)
    taker = CallbackTaker(bus)
    bus.joined(silent)
    other.send(b"x", flush=True)
    bus.until(lambda: other._session.batch.infos_sent >= 3, "infos of the other")
    assert published(silent) == 0
    assert taker.got == []


def test_the_threshold_ends_it(bus: Bus) -> None:
    options = {**SOON, "transport_topic_sequence_number_info_active_threshold": 1}
    ending = bus.source("t", context := bus.context("sending"), **bus.kind.id(40), **options)
    lasting = bus.source("lasting", context, **bus.kind.id(41), **SOON)
    for source in (ending, lasting):
        source.send(b"x", flush=True)
    bus.until(lambda: (ending._idle_ns(clock.ticks()) or 0) > 1_100_000_000, "silence beyond the threshold")
    told, before = ending._session.batch.infos_sent, lasting._session.batch.infos_sent
    bus.until(lambda: lasting._session.batch.infos_sent > before + 2, "infos of the lasting one")
    assert ending._session.batch.infos_sent == told > 0
