"""Snapshots made by hand, with counters that a test chooses."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from ipcbus.stats import (
    ContextStats,
    DomainSnapshot,
    Histogram,
    ReceiverStats,
    RecorderStats,
    SessionStats,
    SlotStats,
    SourceStats,
)
from ipcbus.stats.counters import counters_of

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def counters(of: str, **some: int) -> MappingProxyType[str, int]:
    """All counters of a kind, 0 but for some."""
    return MappingProxyType({row.name: some.get(row.name, 0) for row in counters_of(of)})


def histogram(*values_ns: int) -> Histogram:
    """Of these latencies, whose buckets must be below 16 ns."""
    counts = np.zeros_like(Histogram.empty().counts)
    for value in values_ns:
        counts[value] += 1
    return Histogram(counts, max(values_ns, default=0))


def source(number: int = 1, topic: str = "t", counts: dict[str, int] | None = None) -> SourceStats:
    """A topic."""
    return SourceStats(topic, number, 1, counters("source", **(counts or {})))


def slot(index: int = 0, *, lag: int = 0, counts: dict[str, int] | None = None, **fields: object) -> SlotStats:
    """A reader."""
    given: dict[str, Any] = {
        **{
            "slot": index,
            "generation": 1,
            "state": "active",
            "alive": True,
            "stopped": False,
            "parked": False,
            "pid": 100 + index,
        },
        **{"uid": 1, "user": "ann", "context_id": 50 + index, "context_name": "", "command": "reads"},
        **{"joined_ns": START, "position": 0, "lag": lag, "lag_messages": None, "topics": ("t",)},
        **{"counters": counters("slot", **(counts or {})), "latency": Histogram.empty(), **fields},
    }
    return SlotStats(**given)


def session(
    name: str = "LBT-IPC:1:20001",
    *,
    at: int = 0,
    counts: dict[str, int] | None = None,
    slots: tuple[SlotStats, ...] = (),
    sources: tuple[SourceStats, ...] = (),
    **fields: object,
) -> SessionStats:
    """A session, read at a time in ns."""
    given: dict[str, Any] = {
        **{"source": name, "transport": "LBT-IPC", "context_id": 1, "context_name": "", "pid": 10, "uid": 1},
        **{
            "user": "ann",
            "command": "sends",
            "alive": True,
            "stopped": False,
            "start_ns": START,
            "pacing": "receiver_paced",
        },
        **{"capacity": 1000, "datagram_max": 100, "slots_max": 4, "topics_max": 8, "tail": 0, "closed": False},
        **{"wait": "", "blocked_for_ns": 0, "counters": counters("session", **(counts or {}))},
        **{"sources": sources, "receivers": slots, "reason": "", "read_ns": at, **fields},
    }
    return SessionStats(**given)


def receiver(counts: dict[str, int] | None = None, since: int = START) -> ReceiverStats:
    """A receiver of a context."""
    return ReceiverStats("t", False, since, counters("receiver", **(counts or {})))


def recorder(log: str = "/archive/host", *, counts: dict[str, int] | None = None, **fields: object) -> RecorderStats:
    """A recorder of a context, with a buffer of 1000 bytes."""
    given: dict[str, Any] = {
        **{"log": log, "since_ns": START, "alive": True, "stopped": False, "failing": False, "silent_ns": 0},
        **{"counters": counters("recorder", buffer_bytes=1000, **(counts or {})), **fields},
    }
    return RecorderStats(**given)


def context(
    *sessions: SessionStats, at: int = 0, receivers: tuple[ReceiverStats, ...] = (), **fields: object
) -> ContextStats:
    """A context."""
    given: dict[str, Any] = {
        **{"context_id": 1, "name": "", "pid": 10, "uid": 1, "user": "ann", "command": "sends", "start_ns": START},
        **{
            "release": "1",
            "alive": True,
            "stopped": False,
            "sessions": sessions,
            "receivers": receivers,
            "reason": "",
            "read_ns": at,
        },
        **fields,
    }
    return ContextStats(**given)


def snapshot(*contexts: ContextStats, at: int = 0) -> DomainSnapshot:
    """A domain, looked at so many ns after an hour that the tests do not care for."""
    return DomainSnapshot("d", START + 3600 * SECOND + at, at, contexts)
