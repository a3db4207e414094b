"""Snapshots as metrics of Prometheus: names, labels and units follow its conventions.

The counters come from the table of `ipcbus.stats`; a new row there is exported without a change here.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Sum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

import ipcbus
from ipcbus import stats
from ipcbus.stats.counters import CONTEXT, RECEIVER, RECEPTION, RECORDER, SESSION, SLOT, SOURCE, UPLINK
from ipcbus_tools.common import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ipcbus.stats import ContextStats, Counter, DomainSnapshot, SessionStats, SlotStats

DOMAIN: Final = "domain"

_OF_CONTEXT = ("domain", "context", "context_name")
_OF_SESSION = ("domain", "context", "source", "transport", "context_name")
LABELS: Final = {
    DOMAIN: ("domain",),
    CONTEXT: _OF_CONTEXT,
    SESSION: _OF_SESSION,
    SOURCE: (*_OF_SESSION, "topic"),
    UPLINK: _OF_SESSION,
    SLOT: (*_OF_SESSION, "slot", "receiver", "receiver_name"),
    RECEPTION: (*_OF_SESSION, "slot", "receiver", "receiver_name"),
    RECEIVER: (*_OF_CONTEXT, "topic", "wildcard"),
    RECORDER: (*_OF_CONTEXT, "log"),
}
"""The labels of each kind of object; together they identify one object."""

BUCKETS_NS: Final = tuple(1 << octave for octave in range(7, 32))
"""Upper bounds of the buckets: 128 ns to 2.1 s, one an octave; each is an edge of the bus's own buckets, so exact."""

_LATENCY = "From sending a message to reading it; the sum is computed from the middles of buckets, 3 % off at most."

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Gauge:
    """A gauge: a property of an object that is not a counter.

    Attributes:
        of: kind of object.
        name: name of the metric without the prefix.
        meaning: the help text.
        value: returns the value of an object; None leaves the sample out.
    """

    of: str
    name: str
    meaning: str
    value: Callable[[Any], float | None]


def _started(owner: ContextStats | SessionStats) -> float | None:
    return owner.start_ns / 1e9 if owner.start_ns else None


_GAUGES = (
    _Gauge(CONTEXT, "alive", "Whether its process lives.", lambda context: context.alive),
    _Gauge(CONTEXT, "readable", "Whether its registry could be read.", lambda context: context.pid > 0),
    _Gauge(CONTEXT, "start_time_seconds", "When it was opened, since the epoch.", _started),
    _Gauge(SESSION, "alive", "Whether the process of its source lives.", lambda session: session.alive),
    _Gauge(
        SESSION,
        "readable",
        "Whether its counters could be read; without them it has no other metrics.",
        lambda session: bool(session.counters),
    ),
    _Gauge(SESSION, "window_bytes", "Bytes of its window.", lambda session: _readable(session, session.capacity)),
    _Gauge(SESSION, "slots", "How many contexts may join.", lambda session: _readable(session, session.slots_max)),
    _Gauge(
        SESSION,
        "fill_ratio",
        "Share of the window that the receiver furthest behind has not read; missing without receivers.",
        lambda session: session.fill,
    ),
    _Gauge(
        SESSION,
        "waiting",
        "Whether a send waits for room, or was refused for want of it and waits for its WAKEUP.",
        lambda session: _readable(session, bool(session.wait)),
    ),
    _Gauge(
        SESSION,
        "blocked_for_seconds",
        "How long the send that waits for room has waited; blocked_seconds_total has it when it is over.",
        lambda session: _readable(session, session.blocked_for_ns / 1e9),
    ),
    _Gauge(SESSION, "start_time_seconds", "When it began, since the epoch.", _started),
    _Gauge(UPLINK, "active", "Whether it sends: a context receives over UDP.", lambda uplink: uplink.active),
    _Gauge(
        UPLINK,
        "data_rate_limit_bytes_per_second",
        "Limit of the data rate; missing without one.",
        lambda uplink: uplink.data_rate / 8 if uplink.data_rate else None,
    ),
    _Gauge(
        UPLINK,
        "limited_for_seconds",
        "How long datagrams have waited for the data rate; rate_limited_seconds_total has it when it is over.",
        lambda uplink: uplink.limited_for_ns / 1e9,
    ),
    _Gauge(SOURCE, "receivers", "How many receiving contexts are joined to it.", lambda source: source.receivers),
    _Gauge(SLOT, "alive", "Whether the process of the receiver lives.", lambda slot: slot.alive),
    _Gauge(SLOT, "active", "Whether it receives: not only joining, and not evicted.", lambda s: s.state == "active"),
    _Gauge(SLOT, "parked", "Whether it sleeps until something is published.", lambda slot: slot.parked),
    _Gauge(SLOT, "lag_bytes", "Bytes that are published and that it has not read.", lambda slot: slot.lag),
    _Gauge(SLOT, "lag_messages", "About how many messages these bytes are.", lambda slot: slot.lag_messages),
    _Gauge(RECORDER, "alive", "Whether its process lives.", lambda recorder: recorder.alive),
    _Gauge(RECORDER, "failing", "Whether the disk refuses what it writes.", lambda recorder: recorder.failing),
    _Gauge(
        RECORDER,
        "silent_seconds",
        "Time since it last showed its counters, which it does several times a second unless it hangs.",
        lambda recorder: recorder.silent_ns / 1e9,
    ),
    _Gauge(RECORDER, "fill_ratio", "Share of its buffer that is full.", lambda recorder: recorder.fill),
)
_HOLDS_UP = "Whether a send waits for it now."


def _readable(session: SessionStats, value: float) -> float | None:
    return value if session.counters else None


def families(snapshots: Iterable[DomainSnapshot]) -> list[Metric]:
    """Returns snapshots as metrics; metrics without any sample are left out.

    Args:
        snapshots: of different domains.
    """
    found = _Families()
    for snapshot in snapshots:
        domain = label(snapshot.domain)
        count = len(snapshot.contexts)
        found.add(GaugeMetricFamily, "ipcbus_domain_contexts", "Contexts of the domain.", DOMAIN, (domain,), count)
        for context in snapshot.contexts:
            _context(found, domain, context)
    return list(found.metrics.values())


class DomainCollector(Collector):
    """Reads shared memory at each scrape of Prometheus."""

    def __init__(self, domains: Iterable[str]) -> None:
        """Reads these domains, or all domains if there is no name."""
        # Each domain has its own table, since a snapshot drops the processes that it does not contain.
        self._processes = {domain: stats.Processes() for domain in domains}
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of this moment."""
        with self._lock:
            begin = time.perf_counter()
            if self._processes:
                found = tuple(stats.take_snapshot(*each) for each in self._processes.items())
            else:
                found = stats.take_snapshots()
            seconds = time.perf_counter() - begin
        yield InfoMetricFamily("ipcbus_build", "The release that exports.", {"version": ipcbus.__version__})
        yield GaugeMetricFamily("ipcbus_scrape_duration_seconds", "Time to read shared memory.", seconds)
        yield from families(found)


class _Families:
    """Metrics by name; of objects that claim to be the same object, the first counts."""

    def __init__(self) -> None:
        self.metrics: dict[str, Metric] = {}
        self._seen: set[tuple[str, Labels]] = set()

    def add(self, family: Any, name: str, meaning: str, of: str, labels: Labels, *value: Any) -> None:  # noqa: ANN401
        """Adds a sample of an object to a metric, once only: Prometheus refuses a scrape with duplicates."""
        if (name, labels) not in self._seen:
            self._seen.add((name, labels))
            metric: Any = self.metrics.get(name)
            if metric is None:
                self.metrics[name] = metric = family(name, meaning, labels=LABELS[of])
            metric.add_metric(labels, *value)

    def info(self, of: str, labels: Labels, **facts: str) -> None:
        """Adds the facts about an object that are not numbers."""
        self.add(InfoMetricFamily, f"ipcbus_{of}", f"Facts about the {of}; the value says nothing.", of, labels, facts)

    def gauges(self, of: str, labels: Labels, owner: object) -> None:
        """Adds the gauges of an object."""
        for row in _GAUGES:
            value = row.value(owner) if row.of == of else None
            if value is not None:
                self.add(GaugeMetricFamily, f"ipcbus_{of}_{row.name}", row.meaning, of, labels, float(value))

    def counters(self, of: str, labels: Labels, values: Mapping[str, int]) -> None:
        """Adds the counters of an object, except those that could not be read."""
        for row in stats.counters_of(of):
            if row.name in values:
                seconds = _is_time(row)
                family = CounterMetricFamily if row.grows else GaugeMetricFamily
                value = values[row.name] / 1e9 if seconds else float(values[row.name])
                self.add(family, metric_name(row), row.meaning, of, labels, value)


def _is_time(row: Counter) -> bool:
    return row.unit.partition(",")[0] == "ns"


def metric_name(row: Counter) -> str:
    """Returns the name of a counter for Prometheus, without the `_total` of those that count up."""
    name = row.name
    if _is_time(row):
        name = name.removesuffix("_ns") + "_seconds"
    elif name.startswith("bytes_"):
        name = name.removeprefix("bytes_") + "_bytes"
    return f"ipcbus_{row.of}_{name}"


def label(value: object) -> str:
    """Returns the value of a label: UTF-8 without control characters, also for names that other processes chose."""
    return visible(str(value).encode(errors="surrogateescape"))


def _context(found: _Families, domain: str, context: ContextStats) -> None:
    labels = (domain, f"{context.context_id:08x}", label(context.name))
    found.gauges(CONTEXT, labels, context)
    found.counters(CONTEXT, labels, context.counters)
    if context.pid:
        found.info(CONTEXT, labels, pid=str(context.pid), user=label(context.user), release=label(context.release))
    for session in context.sessions:
        _session(found, domain, session)
    # Several receivers of one topic in one context are one line.
    receivers: dict[Labels, Sum[str]] = {}
    for receiver in context.receivers:
        key: Labels = (*labels, label(receiver.topic), "true" if receiver.wildcard else "false")
        receivers.setdefault(key, Sum()).update(receiver.counters)
    for key, values in receivers.items():
        found.counters(RECEIVER, key, values)
    for recorder in context.recorders:
        named: Labels = (*labels, label(recorder.log))
        found.gauges(RECORDER, named, recorder)
        found.counters(RECORDER, named, recorder.counters)


def _session(found: _Families, domain: str, session: SessionStats) -> None:
    # The context is a label because another context may claim the same source string.
    context = f"{session.context_id:08x}"
    labels = (domain, context, label(session.source), label(session.transport), label(session.context_name))
    found.gauges(SESSION, labels, session)
    found.counters(SESSION, labels, session.counters)
    found.info(SESSION, labels, pacing=session.pacing, pid=str(session.pid), user=label(session.user))
    if session.uplink is not None:
        found.gauges(UPLINK, labels, session.uplink)
        found.counters(UPLINK, labels, session.uplink.counters)
    for source in session.sources:
        key = (*labels, label(source.topic))
        if session.counters:
            found.gauges(SOURCE, key, source)
        found.counters(SOURCE, key, source.counters)
    for slot in session.receivers:
        _slot(found, labels, slot, holds_up=slot is session.held_up_by)


def _slot(found: _Families, session: Labels, slot: SlotStats, *, holds_up: bool) -> None:
    labels = (*session, str(slot.slot), f"{slot.context_id:08x}", label(slot.context_name))
    found.gauges(SLOT, labels, slot)
    found.add(GaugeMetricFamily, "ipcbus_slot_holds_up", _HOLDS_UP, SLOT, labels, float(holds_up))
    found.counters(SLOT, labels, slot.counters)
    found.info(SLOT, labels, pid=str(slot.pid), user=label(slot.user), layer=slot.layer)
    if slot.reception is not None:
        found.counters(RECEPTION, labels, slot.reception.counters)
    if not slot.counters:
        return
    counted = [(repr(ns / 1e9), below) for ns, below in zip(BUCKETS_NS, slot.latency.below(BUCKETS_NS), strict=True)]
    counted.append(("+Inf", float(slot.latency.count)))
    found.add(
        HistogramMetricFamily, "ipcbus_slot_latency_seconds", _LATENCY, SLOT, labels, counted, slot.latency.sum_ns / 1e9
    )
