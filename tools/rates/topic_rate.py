"""The rates of a topic, from snapshots to printed lines: the common part of `hz` and `bw`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ipcbus_tools.common import Seconds, output, print_json, safe
from ipcbus_tools.name_lookup import state, wait_for_topic
from ipcbus_tools.polling import SHORTEST_S, watch
from ipcbus_tools.rates.rate_meter import Flow, Growth, RateMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ipcbus.stats import DomainSnapshot, SessionStats, SourceStats

_NUMBERS = 1 << 64


@dataclass(frozen=True, slots=True)
class SourceFlow:
    """The rates of a topic on one session.

    Attributes:
        source: the session's source string.
        pid: the process that sends.
        user: the user of the process.
        command: the command line of the process; empty when it cannot be read.
        state: state of the session as in `ipcbus info`; empty for one that lives.
        reason: why the counters are missing; empty when they are not.
        flow: the rates; null while the counters cannot be read.
    """

    source: str
    pid: int
    user: str
    command: str
    state: str
    reason: str
    flow: Flow | None


@dataclass(frozen=True, slots=True)
class TopicFlow:
    """The rates of a topic.

    Attributes:
        domain: the domain.
        topic: the topic.
        taken_ns: time of the snapshot, ns since the epoch.
        flow: the rates of all sources together; null while no source can be read.
        sources: the rates of each source.
    """

    domain: str
    topic: str
    taken_ns: int
    flow: Flow | None
    sources: tuple[SourceFlow, ...]


_Key = tuple[int, str, int, int]
"""Context, source string, start of the session, number of the topic; several contexts may have one source string."""


class TopicMeter:
    """Measures the sources of a topic, each one and all together, from snapshot to snapshot."""

    def __init__(self, topic: str, window: float) -> None:
        """Prepares for the first snapshot; `window` is in seconds."""
        self._topic = topic
        self._window = window
        self._last_ns: int | None = None
        self._total: RateMeter | None = None
        self._meters: dict[_Key, RateMeter] = {}
        self._counts: dict[_Key, SourceStats] = {}
        self._unread: frozenset[tuple[int, str]] = frozenset()

    def add(self, found: DomainSnapshot) -> TopicFlow:
        """Adds a snapshot, later than those before, and returns the rates; the first snapshot has none."""
        first = self._total is None
        total = self._total = self._total or RateMeter(self._window, found.read_ns)
        meters: dict[_Key, RateMeter] = {}
        lines, unread = [], set()
        grown = Growth()
        for session, source in sources(found, self._topic):
            if not source.counters:
                unread.add((session.context_id, session.source))
                lines.append(_line(session, None))
                continue
            key = (session.context_id, session.source, session.start_ns, source.number)
            if key in meters:
                continue  # a duplicate of a damaged context
            begun = self._last_ns is not None and (session.context_id, session.source) not in self._unread
            known = self._meters.get(key)
            meters[key] = meter = known or RateMeter(
                self._window, self._last_ns if begun and self._last_ns is not None else session.read_ns
            )
            if known or begun:
                growth = _growth(self._counts.get(key), source)
                meter.add(session.read_ns, growth)
                grown += growth
            self._counts[key] = source
            lines.append(_line(session, meter.flow() if known or begun else None))
        if not first:
            total.add(found.read_ns, grown)
        self._meters, self._unread, self._last_ns = meters, frozenset(unread), found.read_ns
        readable = not first and (bool(meters) or not unread)
        return TopicFlow(found.domain, self._topic, found.taken_ns, total.flow() if readable else None, tuple(lines))


def sources(found: DomainSnapshot, topic: str) -> Iterator[tuple[SessionStats, SourceStats]]:
    """Yields the sources of a topic, with their sessions."""
    return ((each, source) for each in found.sessions for source in each.sources if source.topic == topic)


def _growth(before: SourceStats | None, after: SourceStats) -> Growth:
    from ipcbus.stats.rates import growth

    earlier = before.counters if before else {}
    found = growth("source", earlier, after.counters)
    numbered = (after.counters["sequence_next"] - earlier.get("sequence_next", 0)) % _NUMBERS
    begun = max(0, numbered - found.get("fragments_sent", 0) + found.get("msgs_fragmented", 0))
    return Growth(found.get("lbm_msgs_sent", 0), found.get("bytes_sent", 0), begun if numbered < _NUMBERS >> 1 else 0)


def _line(session: SessionStats, flow: Flow | None) -> SourceFlow:
    return SourceFlow(session.source, session.pid, session.user, session.command, state(session), session.reason, flow)


def show(
    describe: Callable[[Flow], str],
    *,
    domain: str,
    topic: str,
    interval: float,
    count: int | None,
    window: float,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Prints the rates of a topic at each interval; `describe` formats them for people.

    Raises:
        Failure: the topic has no source for `timeout` seconds.
    """
    wait_for_topic(domain, topic, timeout)
    meter = TopicMeter(topic, window)
    console = output()
    for place, found in enumerate(watch(domain, interval, count, begin=True)):
        line = meter.add(found)
        if place == 0:
            continue
        if as_json:
            print_json(line)
        else:
            for text in lines(line, describe):
                console.print(safe(text), soft_wrap=True)


def lines(line: TopicFlow, describe: Callable[[Flow], str]) -> Iterable[str]:
    """Yields the line of a topic, and a line for each source if there are several or one has a state."""
    if not line.sources:
        yield f"{line.topic}  no source"
        return
    yield f"{line.topic}  {describe(line.flow) if line.flow else 'not readable'}"
    if len(line.sources) > 1 or any(source.state for source in line.sources):
        for source in line.sources:
            status = f"{source.state}: {source.reason}" if source.reason else source.state
            numbers = describe(source.flow) if source.flow else ""
            yield f"    {source.source} pid {source.pid}  {'  '.join(filter(None, (status, numbers)))}"


def figure(value: float) -> str:
    """Returns a rate with four digits; a larger one as a whole number."""
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:.4g}"


def window_option() -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds --window."""
    return click.option(
        "--window",
        type=Seconds(SHORTEST_S, 86400),
        default=10.0,
        help="Compute mean, min, max and deviation over the last SECONDS; over more when few messages come.",
    )
