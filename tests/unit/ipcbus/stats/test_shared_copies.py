"""Snapshots of contexts that are bytes in shared memory: right, damaged, vanishing, refused."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus import stats
from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.registry import OWNER_BYTE
from ipcbus.stats import shared_copies
from ipcbus.wire import wire_layout as wire
from ringbuf import layout, liveness, segment
from ringbuf.ring_errors import SegmentGone, SegmentMismatch, SegmentRefused
from tests.unit.ipcbus.stats.recorded import CAPACITY, CONTEXT_ID, TAIL, TOPICS_MAX, Recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipcbus.stats import SessionStats


@pytest.fixture
def recorded(domain: str) -> Iterator[Recorded]:
    found = Recorded(domain)
    yield found
    found.close()


def session_of(recorded: Recorded) -> SessionStats:
    (session,) = stats.take_snapshot(recorded.domain).sessions
    return session


def test_context(recorded: Recorded) -> None:
    recorded.receiver_counts(lbm_msgs_rcved=5, bytes_rcved=50, fragments_rcved=4, lost=2, events=3, callback_errors=1)
    found = stats.take_snapshot(recorded.domain)
    assert found.domain == recorded.domain
    (context,) = found.contexts
    assert (context.context_id, context.name, context.release) == (CONTEXT_ID, "recorded", "1.2.3")
    assert (context.pid, context.uid, context.alive, context.reason) == (os.getpid(), os.geteuid(), True, "")
    assert "python" in context.command
    (receiver,) = context.receivers
    assert receiver.topic == "c"
    assert receiver.counters == {
        **{"lbm_msgs_rcved": 5, "bytes_rcved": 50, "fragments_rcved": 4, "lost": 2, "events": 3, "callback_errors": 1}
    }


def test_session(recorded: Recorded) -> None:
    recorded.ring(msgs_sent=10, bytes_sent=TAIL, lbm_msgs_sent=100, blocked_ns=7, activity=3, closed=1)
    session = session_of(recorded)
    assert session.source == "LBT-IPC:6481f8d4:20001"
    assert (session.transport, session.pacing, session.pid) == ("LBT-IPC", "receiver_paced", os.getpid())
    assert (session.capacity, session.datagram_max, session.tail, session.closed) == (CAPACITY, 8192, TAIL, True)
    assert (session.slots_max, session.topics_max) == (4, TOPICS_MAX)
    assert session.counters["lbm_msgs_sent"] == 100
    assert session.counters["blocked_ns"] == 7
    assert session.counters["activity"] == 3
    assert session.counters["num_clients"] == 0
    assert session.reason == ""
    assert stats.take_snapshot(recorded.domain).session(session.source) == session
    assert stats.take_snapshot(recorded.domain).session("LBT-IPC:0:1") is None


def test_sources(recorded: Recorded) -> None:
    recorded.line(1, published=40, sequence_next=41, bytes_sent=400)
    recorded.line(2, published=99)  # an earlier topic on the line of topic "b"
    recorded.slot(0, state=layout.SLOT_ACTIVE, held=True)
    recorded.slot(1, state=layout.SLOT_JOINING, held=True)
    recorded.joined(1, 0b11)
    a, b = session_of(recorded).sources
    assert (a.topic, a.number, a.receivers) == ("a", 1, 1)
    assert (a.counters["lbm_msgs_sent"], a.counters["sequence_next"], a.counters["bytes_sent"]) == (40, 41, 400)
    assert (b.topic, b.number, b.receivers, dict(b.counters)) == ("b", 2 + TOPICS_MAX, 0, {})


def test_slots(recorded: Recorded) -> None:
    latency = np.zeros(layout.HISTOGRAM_BUCKETS, np.uint64)
    latency[10] = 16
    recorded.slot(1, held=True, state=layout.SLOT_ACTIVE, generation=3, position=4000, joined_ns=1_000)
    recorded.slot(1, pid=os.getpid(), uid=12, context_id=77, context_name=b"reader")
    recorded.slot(1, lbm_msgs_rcved=80, lost=20, latency=latency, latency_max=10, latency_samples=1)
    recorded.slot(3, state=layout.SLOT_ACTIVE, pid=2**22 - 1, position=TAIL)
    recorded.joined(1, 1 << 1)
    recorded.joined(2, 1 << 1 | 1 << 3)
    session = session_of(recorded)
    reader, dead = session.receivers
    assert (reader.slot, reader.state, reader.alive, reader.context_name) == (1, "active", True, "reader")
    assert (reader.pid, reader.uid, reader.context_id, reader.joined_ns) == (os.getpid(), 12, 77, 1_000)
    assert (reader.position, reader.lag, reader.topics) == (4000, TAIL - 4000, ("a", "b"))
    assert (reader.counters["lbm_msgs_rcved"], reader.counters["lost"]) == (80, 20)
    assert reader.latency.percentile(0.5) == 10
    assert reader.latency.count == 16
    assert (dead.slot, dead.alive, dead.lag, dead.command, dead.topics) == (3, False, 0, "", ("b",))
    assert session.counters["num_clients"] == 2


def test_everything_is_json(recorded: Recorded) -> None:
    recorded.slot(0, state=layout.SLOT_ACTIVE, held=True)
    found = stats.take_snapshot(recorded.domain).to_dict()
    again = json.loads(json.dumps(found))
    assert again == found
    (context,) = again["contexts"]
    assert context["sessions"][0]["sources"][0]["topic"] == "a"
    assert context["sessions"][0]["receivers"][0]["latency"]["count"] == 0


def test_dead_context(recorded: Recorded) -> None:
    liveness.release(recorded.registry.fd, OWNER_BYTE)  # as the end of its process does
    (context,) = stats.take_snapshot(recorded.domain).contexts
    assert not context.alive
    assert "process has ended" in context.reason
    assert context.command == ""
    assert context.sessions[0].counters["msgs_sent"] == 0


def test_domain_of_a_long_name() -> None:
    domain = "a domain whose name stands in no object's name"
    found = Recorded(domain)
    try:
        assert [context.context_id for context in stats.take_snapshot(domain).contexts] == [CONTEXT_ID]
        assert domain in stats.domains()
        (everywhere,) = (each for each in stats.take_snapshots() if each.domain == domain)
        assert [session.reason for session in everywhere.sessions] == [""]
    finally:
        found.close()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda it: it.ring(magic=1), "is not a ring of ipcbus"),
        (lambda it: it.ring(kind=layout.KIND_CONTROL), "is not a ring of ipcbus"),
        (lambda it: it.ring(layout_id=1), "run the same release"),
        (lambda it: it.ring(session_id=1), "belongs to session 00000001"),
        (lambda it: it.ring(user_bytes=64), "sizes do not fit"),
        (lambda it: it.ring(user_offset=2**31, user_bytes=2**31), "sizes do not fit"),
        (lambda it: os.truncate(it.ring_fd, 100), "ends at byte 100"),
        (lambda it: os.truncate(it.ring_fd, 400), "ends at byte 400"),
        (lambda it: os.truncate(it.ring_fd, 0), "ends at byte 0"),
        (lambda it: it.control(magic=1), "is not a control block of ipcbus"),
        (lambda it: it.control(layout_id=1), "run the same release"),
        (lambda it: it.control(session_id=1), "belongs to session 00000001"),
        (lambda it: it.control(slots_max=0), "sizes do not fit"),
        (lambda it: it.control(slots_max=65), "sizes do not fit"),
        (lambda it: it.control(user_bytes=0), "sizes do not fit"),
        (lambda it: it.control(slots_offset=2**31), "ends at byte"),
        (lambda it: os.truncate(it.control_fd, 4096), "ends at byte 4096"),
        (lambda it: segment.remove(it.ring_name), "it ended while it was read"),
        (lambda it: segment.remove(it.control_name), "it ended while it was read"),
    ],
)
def test_damaged_session_carries_the_reason(
    recorded: Recorded, damage: Callable[[Recorded], object], reason: str
) -> None:
    recorded.slot(0, state=layout.SLOT_ACTIVE, held=True)
    damage(recorded)
    session = session_of(recorded)
    assert reason in session.reason
    assert (session.source, session.capacity) == ("LBT-IPC:6481f8d4:20001", CAPACITY)
    assert (dict(session.counters), session.receivers) == ({}, ())
    assert [source.topic for source in session.sources] == ["a", "b"]


def test_slot_of_an_impossible_state_is_free(recorded: Recorded) -> None:
    recorded.slot(0, state=99)
    assert session_of(recorded).receivers == ()


def test_position_past_the_tail_is_no_lag(recorded: Recorded) -> None:
    recorded.slot(0, state=layout.SLOT_ACTIVE, position=2**64 - 1)
    assert session_of(recorded).receivers[0].lag == 0


def test_slot_that_changes_hands_all_the_time_is_left_out(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.slot(0, state=layout.SLOT_ACTIVE)
    real = shared_copies.SharedObject.record
    generation = 0

    def record(self: shared_copies.SharedObject, dtype: np.dtype[np.void], offset: int = 0) -> np.void:
        nonlocal generation
        generation += 1
        recorded.slot(0, generation=generation)
        return real(self, dtype, offset)

    monkeypatch.setattr(shared_copies.SharedObject, "record", record)
    assert session_of(recorded).receivers == ()


def test_session_that_may_not_be_read(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    real = segment.open_fd

    def open_fd(name: str, *, write: bool) -> int:
        if name == recorded.ring_name:
            raise SegmentRefused(f"no permission to open {name}")
        return real(name, write=write)

    monkeypatch.setattr(segment, "open_fd", open_fd)
    assert "no permission" in session_of(recorded).reason


def test_fifo_in_the_place_of_a_ring(recorded: Recorded) -> None:
    segment.remove(recorded.ring_name)
    os.mkfifo(segment.ROOT / recorded.ring_name)
    try:
        assert "is not a shared object" in session_of(recorded).reason
    finally:
        os.unlink(segment.ROOT / recorded.ring_name)


def test_registry_of_another_layout(recorded: Recorded) -> None:
    view = recorded.registry.mapping.view(0, wire.REGISTRY_HEADER.itemsize)
    np.frombuffer(view, wire.REGISTRY_HEADER, 1)["layout_id"] = 1
    (context,) = stats.take_snapshot(recorded.domain).contexts
    assert "run the same release" in context.reason
    assert (context.context_id, context.pid, context.sessions) == (CONTEXT_ID, 0, ())


def test_registry_that_is_never_at_rest(recorded: Recorded) -> None:
    view = recorded.registry.mapping.view(0, wire.REGISTRY_HEADER.itemsize)
    np.frombuffer(view, wire.REGISTRY_HEADER, 1)["version"] = 7
    (context,) = stats.take_snapshot(recorded.domain).contexts
    assert "in the middle of a change" in context.reason


def test_registry_that_vanishes(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> None:
        raise SegmentGone(f"shared object {name} does not exist (any more)")

    monkeypatch.setattr("ipcbus.stats.snapshot.PeerRegistry", gone)
    (context,) = stats.take_snapshot(recorded.domain).contexts
    assert not context.alive
    assert "does not exist" in context.reason


@pytest.mark.parametrize("topics_max", [0, 2**32 - 1])
def test_registry_with_impossible_topics(recorded: Recorded, topics_max: int) -> None:
    view = recorded.registry.mapping.view(recorded.registry.entry_offset(0), wire.REGISTRY_ENTRY.itemsize)
    np.frombuffer(view, wire.REGISTRY_ENTRY, 1)["topics_max"] = topics_max
    assert "is damaged" in session_of(recorded).reason


def test_reading_says_where_an_object_ends(recorded: Recorded) -> None:
    with (
        shared_copies.SharedObject(recorded.ring_name) as shared,
        pytest.raises(SegmentMismatch, match="or more"),
    ):
        shared.read(2**40, 8)


def test_other_names_are_no_domains(domain: str) -> None:
    foreign = segment.ROOT / f"ipcbus.{domain}.not-ours"
    foreign.touch()
    try:
        assert stats.take_snapshot(domain).contexts == ()
        assert domain not in stats.domains()
    finally:
        foreign.unlink()
    assert object_names.parse(foreign.name) is None
