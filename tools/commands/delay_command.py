"""`ipcbus delay`: the latency of a topic's receivers, from their histograms in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ipcbus_tools.common import duration, json_option, notes, number, output, print_json, safe, statistics_options
from ipcbus_tools.name_lookup import state, topic_options, wait_for_topic
from ipcbus_tools.polling import watch
from ipcbus_tools.rates.topic_rate import sources
from ipcbus_tools.render.text_tables import NOTHING_MEASURED, percentiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.stats import DomainSnapshot, Histogram, SessionStats, SlotStats

_NOTE = "note: a latency is that of the whole session, from sending a message to reading it; see --help"


@dataclass(frozen=True, slots=True)
class ReaderDelay:
    """The latency of one receiving context on a session.

    Attributes:
        source: the session's source string.
        slot: the context's slot on the session.
        pid: the process that receives.
        user: the user of the process.
        context_name: the context's name, often empty.
        command: the command line of the process; empty when it cannot be read.
        state: `joining`, `active`, `evicted`, `stopped`, or `dead`.
        recent: latency of what the context read since the previous snapshot; null without one.
        latency: latency since the context joined.
    """

    source: str
    slot: int
    pid: int
    user: str
    context_name: str
    command: str
    state: str
    recent: Histogram | None
    latency: Histogram

    @classmethod
    def of(cls, session: SessionStats, slot: SlotStats) -> ReaderDelay:
        """Returns the latency of one receiver of a session."""
        return cls(
            session.source,
            slot.slot,
            slot.pid,
            slot.user,
            slot.context_name,
            slot.command,
            "dead" if not slot.alive else "stopped" if slot.stopped else slot.state,
            slot.recent,
            slot.latency,
        )


@dataclass(frozen=True, slots=True)
class BatchWait:
    """The time that messages of a session wait in their batch, which is a part of their latency.

    Attributes:
        source: the session's source string.
        mean_ns: mean wait since the previous snapshot; null when no message was sent.
        max_ns: the longest wait since the session began.
    """

    source: str
    mean_ns: float | None
    max_ns: int


@dataclass(frozen=True, slots=True)
class TopicDelay:
    """The latency of a topic's receivers.

    Attributes:
        domain: the domain.
        topic: the topic.
        taken_ns: time of the snapshot, ns since the epoch.
        seconds: time between the two snapshots.
        unreadable: the sessions that cannot be read, each with the reason, by source string.
        receivers: the contexts that have joined the topic.
        batch_waits: the waits in the batch of each session that carries the topic.
    """

    domain: str
    topic: str
    taken_ns: int
    seconds: float
    unreadable: dict[str, str]
    receivers: tuple[ReaderDelay, ...]
    batch_waits: tuple[BatchWait, ...]


@click.command("delay")
@topic_options
@statistics_options
@json_option
def command(
    topic: str,
    interval: float,
    count: int | None,
    timeout: float | None,
    domain: str,
    as_json: bool,
) -> None:
    """Prints the latency of each receiver of TOPIC: median, p90, p99, p99.9 and the longest, until Ctrl-C.

    It reads the histograms that receivers keep in shared memory, one for each session, and receives no message. A
    latency is the time from sending a message to reading its datagram, over all topics of the session together. It
    includes the time that the message waited in its batch, but not the time that a callback takes afterwards. The line
    `batch wait` shows the wait in the batch: its mean and the longest, as the source counts it.

    \b
    Examples:
      ipcbus delay quotes.AAPL
      ipcbus delay quotes.AAPL --interval 10
      ipcbus delay ticks -n 1 --json | jq '.receivers[] | {pid, p99: .recent.p99_ns}'
    """
    wait_for_topic(domain, topic, timeout)
    console = output()
    if not as_json:
        notes().print(safe(_NOTE), soft_wrap=True)
    for found in watch(domain, interval, count):
        if as_json:
            print_json(delays(found, topic))
        else:
            for line in lines(delays(found, topic)):
                console.print(safe(line), soft_wrap=True)


def delays(found: DomainSnapshot, topic: str) -> TopicDelay:
    """Returns the latencies of a topic's receivers; the snapshot `found` has rates."""
    sessions = [session for session, _ in sources(found, topic)]
    return TopicDelay(
        found.domain,
        topic,
        found.taken_ns,
        found.seconds,
        {session.source: session.reason or state(session) for session in sessions if not session.counters},
        tuple(
            ReaderDelay.of(session, slot) for session in sessions for slot in session.receivers if topic in slot.topics
        ),
        tuple(
            BatchWait(session.source, session.batch_wait_ns, session.counters["batch_wait_max"])
            for session in sessions
            if "batch_wait_max" in session.counters
        ),
    )


def lines(found: TopicDelay) -> Iterator[str]:
    """Yields the lines for people, two for each receiver."""
    for source, reason in found.unreadable.items():
        yield f"{source}  not readable: {reason}"
    if not found.receivers:
        yield f"{found.topic}  no receiver"
    for reader in found.receivers:
        receiver = " ".join(filter(None, (f"pid {reader.pid} ({reader.user})", reader.context_name, reader.command)))
        yield f"{reader.source} -> {receiver}" + (f"  {reader.state}" if reader.state != "active" else "")
        yield f"    last {found.seconds:.3g} s".ljust(20) + _percentiles(reader.recent)
        yield "    since it joined".ljust(20) + _percentiles(reader.latency)
    for wait in found.batch_waits:
        if wait.max_ns:
            mean = duration(None if wait.mean_ns is None else round(wait.mean_ns))
            yield f"{wait.source}  batch wait  mean {mean}  max {duration(wait.max_ns)}"


def _percentiles(histogram: Histogram | None) -> str:
    found = histogram.percentiles() if histogram else None
    if found is None:
        return NOTHING_MEASURED
    values = percentiles(found, "p50", "p90", "p99", "p99.9", "max")
    return "  ".join(f"{name} {value:<7}" for name, value in values.items()) + f"  {number(found.count)} messages"
