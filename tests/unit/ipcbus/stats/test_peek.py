"""Messages looked at in the ring: the right ones, whole, without a slot, and never torn."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import stats
from ipcbus.stats import peek
from ipcbus.stats.peek import Peek
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Context, Source


@pytest.fixture
def context(domain: str) -> Iterator[Context]:
    with ipcbus.Context(domain=domain) as made:
        yield made


def opened(domain: str, source: Source) -> Peek:
    """A look at a source's topic."""
    (session,) = (each for each in stats.take_snapshot(domain).sessions if each.source == source.source)
    (topic,) = (each for each in session.sources if each.topic == source.topic)
    return Peek(domain, session.context_id, session.source, topic.number)


@pytest.mark.parametrize("transport", ["lbtipc", "lbtsmx"])
@pytest.mark.parametrize("checksum", [False, True])
def test_messages_of_the_topic_alone(context: Context, domain: str, transport: str, checksum: bool) -> None:
    session = {"transport": transport, f"transport_{transport}_id": 20002 if transport == "lbtipc" else 30002}
    session[f"transport_{transport}_record_checksum"] = int(checksum)
    source, other = context.source("a", **session), context.source("b", **session)
    source.send(b"before", flush=True)
    with closing(opened(domain, source)) as found:
        assert found.look() == []
        begin = time.time_ns()
        for i in range(100):
            other.send(b"other")
            source.send(b"%d" % i * (i + 1), headers=[("k", b"v")] if i == 7 else [])
        source.flush()
        seen = found.look()
        assert [each.sequence_number for each in seen] == list(range(1, 101))
        assert [each.data for i, each in enumerate(seen) if i != 7] == [
            b"%d" % i * (i + 1) for i in range(100) if i != 7
        ]
        assert seen[7].headers
        assert seen[7].data.endswith(b"77777777")
        assert all(begin - 10**9 < each.send_time_ns < time.time_ns() + 10**9 for each in seen)
        assert found.look() == []
        assert not found.skipped
    (taken,) = stats.take_snapshot(domain).sessions
    assert taken.receivers == ()  # nobody has joined
    assert taken.counters["num_clients"] == 0


def test_around_the_end_of_the_ring(context: Context, domain: str) -> None:
    source = context.source("a", transport="lbtsmx", transport_lbtsmx_transmission_window_size=65536)
    with closing(opened(domain, source)) as found:
        sent = 0
        for _ in range(200):  # several times around
            for _ in range(7):
                source.send(b"%07d" % sent + b"x" * 93)
                sent += 1
            seen = found.look()
            assert [int(each.data[:7]) for each in seen] == list(range(sent - 7, sent))


def test_more_than_can_be_copied_is_skipped_and_the_next_is_seen(context: Context, domain: str) -> None:
    source = context.source("a", transport="lbtsmx", transport_lbtsmx_transmission_window_size=65536)
    with closing(opened(domain, source)) as found:
        for _ in range(5000):
            source.send(b"x" * 100)
        assert found.look() == []
        assert found.skipped
        source.send(b"next")
        (seen,) = found.look()
        assert (seen.data, seen.sequence_number, found.skipped) == (b"next", 5000, False)


def test_of_a_source_at_full_speed_a_part_is_seen(
    context: Context, domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = context.source("a", transport="lbtsmx", transport_lbtsmx_transmission_window_size=65536)
    with closing(opened(domain, source)) as found:
        tail = found._tail

        def one_more() -> int:
            source.send(b"next")
            return tail()

        for _ in range(10_000):
            source.send(b"too many to be copied")
        monkeypatch.setattr(found, "_tail", one_more)
        assert [each.data for each in found.look()] == [b"next"]
        assert found.skipped


def test_what_the_writer_overwrote_meanwhile_is_not_used(
    context: Context, domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = context.source("a", transport="lbtsmx", transport_lbtsmx_transmission_window_size=65536)
    with closing(opened(domain, source)) as found:
        source.send(b"old")
        pread = os.pread

        def overtaken(fd: int, length: int, offset: int) -> bytes:
            data = pread(fd, length, offset)
            if length > 16:  # the copy of records: the writer goes once around before it is checked
                for _ in range(1000):
                    source.send(b"new" * 30)
            return data

        monkeypatch.setattr(os, "pread", overtaken)
        assert found.look() == []
        assert found.skipped


def test_long_messages_are_cut_and_fragments_said(context: Context, domain: str) -> None:
    source = context.source("a")
    with closing(opened(domain, source)) as found:
        source.send(b"x" * 5000, flush=True)
        (seen,) = found.look()
        assert (seen.length, len(seen.data), seen.fragment) == (5000, peek.SHOWN_MAX, False)
        source.send(b"y" * 200_000, flush=True)
        seen, *more = found.look()
        assert seen.fragment
        assert seen.data == b"y" * peek.SHOWN_MAX
        assert sum(each.length for each in (seen, *more)) == 200_000


def test_what_cannot_be_looked_into_is_said(context: Context, domain: str) -> None:
    source = context.source("a", transport="lbtru")
    with pytest.raises(RingError, match="is sent over UDP and has no ring"):
        opened(domain, source)
    (found,) = stats.take_snapshot(domain).contexts
    with pytest.raises(RingError, match="has ended"):
        Peek(domain, found.context_id, "LBT-IPC:0:1", 0)
    with pytest.raises(RingError, match="does not exist"):
        Peek(domain, 1, "LBT-IPC:0:1", 0)


def test_a_session_that_ends_while_it_is_looked_at(context: Context, domain: str) -> None:
    source = context.source("a", transport="lbtsmx")
    with closing(opened(domain, source)) as found:
        source.send(b"last")
        source.close()
        assert [each.data for each in found.look()] == [b"last"]
        assert found.look() == []
