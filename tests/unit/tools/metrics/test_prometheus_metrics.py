"""Snapshots as Prometheus knows them."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ipcbus import stats
from ipcbus.stats import COUNTERS, Counter, DomainSnapshot, Histogram, RecorderStats
from ipcbus.stats import counters as table
from ipcbus.stats.snapshot_model import (
    ContextStats,
    ReceiverStats,
    ReceptionStats,
    SessionStats,
    SlotStats,
    SourceStats,
    UplinkStats,
)
from ipcbus_tools.metrics.prometheus_metrics import BUCKETS_NS, LABELS, DomainCollector, families, label, metric_name
from ringbuf import layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric


class Given:
    """Hands out metrics as a collector does."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self.found = found

    def collect(self) -> Iterable[Metric]:
        return self.found


def exposition(*snapshots: DomainSnapshot) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Given(families(snapshots)))
    return generate_latest(registry).decode()


def values(*snapshots: DomainSnapshot) -> dict[str, list[tuple[dict[str, str], float]]]:
    """All samples by name, as a scraper reads them."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(exposition(*snapshots)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def only(found: dict[str, list[tuple[dict[str, str], float]]], name: str) -> float:
    ((_, value),) = found[name]
    return value


def counts(of: str, first: int = 1) -> dict[str, int]:
    """A different value for every counter."""
    return {row.name: first + place for place, row in enumerate(stats.counters_of(of))}


def slot(**fields: object) -> SlotStats:
    given: dict[str, object] = {
        **{"slot": 3, "generation": 1, "state": "active", "alive": True, "parked": False, "pid": 77, "uid": 5},
        **{"user": "ann", "context_id": 0xABC, "context_name": "reader", "command": "secret", "joined_ns": 10**18},
        **{"position": 10, "lag": 500, "lag_messages": 5, "topics": ("t",), "counters": counts("slot")},
        **{"latency": Histogram.empty(), "reception": ReceptionStats("joined", "a:1", counts("reception")), **fields},
    }
    return SlotStats(**given)  # type: ignore[arg-type]


def session(**fields: object) -> SessionStats:
    given: dict[str, object] = {
        **{"source": "LBT-IPC:1:20001", "transport": "LBT-IPC", "context_id": 0x12, "context_name": "writer"},
        **{"pid": 76, "uid": 5, "user": "ann", "command": "secret", "alive": True, "start_ns": 10**18},
        **{"pacing": "receiver_paced", "capacity": 1000, "datagram_max": 100, "slots_max": 20, "topics_max": 8},
        **{"tail": 510, "closed": False, "wait": "", "blocked_for_ns": 0, "counters": counts("session")},
        **{"sources": (SourceStats("t", 1, 1, counts("source")),), "receivers": (slot(),), "reason": ""},
        **{"uplink": UplinkStats("LBT-RU:a:1:1", "LBT-RU", True, 9, 80, 0, 0, 0, counts("uplink"))},
        **{"read_ns": 1, **fields},
    }
    return SessionStats(**given)  # type: ignore[arg-type]


def context(*sessions: SessionStats, **fields: object) -> ContextStats:
    given: dict[str, object] = {
        **{"context_id": 0x12, "name": "writer", "pid": 76, "uid": 5, "user": "ann", "command": "secret"},
        **{"start_ns": 10**18, "release": "1.2.3", "alive": True, "sessions": sessions, "reason": "", "read_ns": 1},
        **{"receivers": (ReceiverStats("t", False, 0, counts("receiver")),)},
        **{
            "recorders": (RecorderStats("/archive/host", 0, True, False, True, 2 * 10**9, counts("recorder")),),
            "counters": counts("context"),
            **fields,
        },
    }
    return ContextStats(**given)  # type: ignore[arg-type]


def snapshot(*contexts: ContextStats, domain: str = "d") -> DomainSnapshot:
    return DomainSnapshot(domain, 10**18, 1, contexts)


# ---------------------------------------------------------------------- names


def test_names() -> None:
    names = {(row.of, row.name): metric_name(row) for row in COUNTERS}
    assert names["session", "blocked_ns"] == "ipcbus_session_blocked_seconds"
    assert names["session", "bytes_sent"] == "ipcbus_session_sent_bytes"
    assert names["slot", "latency_max"] == "ipcbus_slot_latency_max_seconds"
    assert names["slot", "reassembly_bytes"] == "ipcbus_slot_reassembly_bytes"
    assert names["receiver", "lost"] == "ipcbus_receiver_lost"


def test_conventions() -> None:
    found = list(families([snapshot(context(session()))]))
    names = [metric.name for metric in found]
    assert len(set(names)) == len(names)
    for metric in found:
        assert re.fullmatch(r"ipcbus_[a-z0-9_]+", metric.name)
        assert not re.search(r"_(ns|ms|us|percent|milliseconds)$", metric.name)
        assert metric.documentation.endswith(".")
        for sample in metric.samples:
            assert (metric.type == "counter") == sample.name.endswith("_total")
            assert all(re.fullmatch("[a-z_]+", name) for name in sample.labels)


def test_every_counter_is_exported() -> None:
    found = values(snapshot(context(session())))
    for row in COUNTERS:
        expected = counts(row.of)[row.name] / (1e9 if row.unit in ("ns", "ns, now") else 1)
        assert only(found, metric_name(row) + ("_total" if row.grows else "")) == expected


def test_a_new_counter_appears_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    new = Counter("slot", "naks_sent", "NAKs", "NAKs sent.", "")
    monkeypatch.setattr(table, "COUNTERS", (*COUNTERS, new))
    stats.counters_of.cache_clear()
    try:
        text = exposition(snapshot(context(session())))
    finally:
        monkeypatch.undo()
        stats.counters_of.cache_clear()
    assert "# HELP ipcbus_slot_naks_sent_total NAKs sent.\n" in text


def test_labels_name_each_thing_and_tell_no_command() -> None:
    found = values(snapshot(context(session())))
    ((labels, _),) = found["ipcbus_slot_lost_total"]
    assert labels == {
        **{"domain": "d", "context": "00000012", "source": "LBT-IPC:1:20001", "transport": "LBT-IPC"},
        **{"context_name": "writer", "slot": "3", "receiver": "00000abc", "receiver_name": "reader"},
    }
    ((labels, _),) = found["ipcbus_session_info"]
    assert (labels["context"], labels["pid"], labels["pacing"]) == ("00000012", "76", "receiver_paced")
    ((labels, _),) = found["ipcbus_slot_info"]
    assert (labels["pid"], labels["user"]) == ("77", "ann")
    for name, samples in found.items():
        of = name.split("_")[1]
        if of in LABELS and not name.endswith(("_info", "_bucket")):
            assert tuple(sorted(samples[0][0])) == tuple(sorted(LABELS[of]))
    assert "secret" not in exposition(snapshot(context(session())))


# ---------------------------------------------------------------------- values


def test_what_a_session_is_now() -> None:
    blocked = session(wait="blocked", blocked_for_ns=1_500_000_000)
    found = values(snapshot(context(blocked)))
    assert only(found, "ipcbus_session_waiting") == 1
    assert only(found, "ipcbus_session_blocked_for_seconds") == 1.5
    assert only(found, "ipcbus_session_fill_ratio") == 0.5
    assert only(found, "ipcbus_slot_lag_bytes") == 500
    assert only(found, "ipcbus_slot_holds_up") == 1
    assert only(found, "ipcbus_session_readable") == 1
    found = values(snapshot(context(session())))
    assert only(found, "ipcbus_slot_holds_up") == 0


def test_what_cannot_be_read_has_no_zeros() -> None:
    unread = session(counters={}, receivers=(), start_ns=0, sources=(SourceStats("t", 1, 0, {}),), reason="refused")
    found = values(snapshot(context(unread)))
    of_session = {name for name in found if name.startswith(("ipcbus_session", "ipcbus_source", "ipcbus_slot"))}
    assert of_session == {"ipcbus_session_readable", "ipcbus_session_alive", "ipcbus_session_info"}
    assert only(found, "ipcbus_session_readable") == 0
    nobody = context(pid=0, name="", start_ns=0, receivers=(), recorders=(), counters={}, reason="damaged")
    found = values(snapshot(nobody))
    assert set(found) == {"ipcbus_domain_contexts", "ipcbus_context_alive", "ipcbus_context_readable"}
    assert only(found, "ipcbus_context_readable") == 0


def test_a_slot_without_known_lag_in_messages() -> None:
    found = values(snapshot(context(session(receivers=(slot(lag_messages=None),)))))
    assert "ipcbus_slot_lag_messages" not in found
    assert "ipcbus_slot_lag_bytes" in found


def test_an_empty_domain_is_seen() -> None:
    assert only(values(snapshot()), "ipcbus_domain_contexts") == 0


def test_receivers_of_one_topic_in_one_context_are_added_up() -> None:
    same = ReceiverStats("t", False, 0, {"lost": 2}), ReceiverStats("t", False, 1, {"lost": 3})
    other = ReceiverStats("t", True, 0, {"lost": 7})
    found = values(snapshot(context(receivers=(*same, other))))["ipcbus_receiver_lost_total"]
    assert {labels["wildcard"]: value for labels, value in found} == {"false": 5, "true": 7}


def test_two_that_claim_to_be_the_same_do_not_spoil_the_scrape() -> None:
    one, other = session(), session(counters=counts("session", 500))
    found = values(snapshot(context(one, other), context(one)))
    assert only(found, "ipcbus_session_msgs_sent_total") == 1
    assert len(found["ipcbus_slot_latency_seconds_count"]) == 1
    assert len(found["ipcbus_context_info"]) == 1


def test_a_foreign_context_does_not_take_the_place_of_another() -> None:
    forged = session(context_id=0x11, counters=counts("session", 500))
    found = values(snapshot(context(forged, context_id=0x11), context(session())))
    assert {labels["context"]: value for labels, value in found["ipcbus_session_msgs_sent_total"]} == {
        "00000011": 500,
        "00000012": 1,
    }
    for name in ("ipcbus_source_sequence_next", "ipcbus_slot_lost_total", "ipcbus_slot_latency_seconds_count"):
        assert [labels["context"] for labels, _ in found[name]] == ["00000011", "00000012"]


def test_domains_are_told_apart() -> None:
    found = values(snapshot(context(session())), snapshot(context(session()), domain="e"))
    assert [labels["domain"] for labels, _ in found["ipcbus_session_msgs_sent_total"]] == ["d", "e"]


@pytest.mark.parametrize(
    "name", ['say "hi"', "back\\slash", "two\nlines", "\udcff\udc80", "\x1b[2J\x00", "中文", "{a=1}"]
)
def test_names_of_others_stay_inside_their_quotes(name: str) -> None:
    found = values(
        snapshot(context(session(context_name=name, sources=(SourceStats(name, 1, 1, counts("source")),)), name=name))
    )
    ((labels, value),) = found["ipcbus_source_sequence_next"]
    assert labels["topic"] == labels["context_name"] == label(name)
    assert label(name).isprintable()
    assert value == counts("source")["sequence_next"]
    assert label("中文") == "中文"


# ---------------------------------------------------------------------- latency


def test_bounds_are_edges() -> None:
    assert set(BUCKETS_NS) <= set(layout.bucket_edges().tolist())
    assert (len(BUCKETS_NS), BUCKETS_NS[0], BUCKETS_NS[-1]) == (25, 128, 1 << 31)


def test_histogram() -> None:
    edges = layout.bucket_edges().tolist()
    latencies = {5: 10, 127: 1, 128: 2, 1000: 3, 1024: 4, edges[edges.index(1 << 31) - 1]: 5, edges[-1]: 6}
    found_counts = np.zeros(len(edges), np.uint64)
    for latency, number in latencies.items():
        found_counts[np.searchsorted(edges, latency, side="right") - 1] += number
    found = values(snapshot(context(session(receivers=(slot(latency=Histogram(found_counts, edges[-1])),)))))
    buckets = {float(labels["le"]): value for labels, value in found["ipcbus_slot_latency_seconds_bucket"]}
    assert list(buckets) == [ns / 1e9 for ns in BUCKETS_NS] + [float("inf")]
    for bound, value in buckets.items():
        assert value == sum(number for latency, number in latencies.items() if latency / 1e9 < bound)
    assert only(found, "ipcbus_slot_latency_seconds_count") == sum(latencies.values())
    total = sum(latency * number for latency, number in latencies.items()) / 1e9
    assert only(found, "ipcbus_slot_latency_seconds_sum") == pytest.approx(total, rel=1 / 32)


def test_a_damaged_histogram_stays_cumulative() -> None:
    full = np.full(layout.HISTOGRAM_BUCKETS, np.iinfo(np.uint64).max)
    found = values(snapshot(context(session(receivers=(slot(latency=Histogram(full)),)))))
    buckets = [value for _, value in found["ipcbus_slot_latency_seconds_bucket"]]
    assert buckets == sorted(buckets)


# ---------------------------------------------------------------------- scrapes


def test_collector_looks_anew_each_time(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def take(name: str, processes: object) -> DomainSnapshot:
        looked.append(name)
        assert collector._lock.locked()  # what is known of processes is for one scrape at a time
        return dataclasses.replace(snapshot(), domain=name)

    monkeypatch.setattr(stats, "take_snapshot", take)
    collector = DomainCollector([domain, "other"])
    for _ in range(2):
        names = [metric.name for metric in collector.collect()]
        assert names == ["ipcbus_build", "ipcbus_scrape_duration_seconds", "ipcbus_domain_contexts"]
    assert looked == [domain, "other"] * 2
