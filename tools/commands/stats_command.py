"""`ipcbus stats`: shows every counter of one session, with its rate and its meaning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from ipcbus_tools.commands.delay_command import ReaderDelay
from ipcbus_tools.common import Failure, json_option, number, output, plural, print_json, safe, statistics_options
from ipcbus_tools.completion import candidates
from ipcbus_tools.name_lookup import full_name, pick_session, session_again, state
from ipcbus_tools.polling import interval_option, watch
from ipcbus_tools.rates.topic_rate import figure
from ipcbus_tools.render.text_tables import Row, percentiles, show_table
from ipcbus_tools.render.udp_text import medium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.stats import DomainSnapshot, RecorderStats, SessionStats
    from ipcbus.stats.snapshot_model import Counters, Rates


@dataclass(frozen=True, slots=True)
class CounterLine:
    """A counter.

    Attributes:
        of: what the counter belongs to: `session`, `uplink` (the sending end over UDP), `source` (a topic), `slot` (a
            receiving context), `reception` (the receiving end over UDP), `context` (the one that sends the session), or
            `recorder`.
        topic: the topic of a counter of `source`; else null.
        slot: the slot's number of a counter of `slot` or `reception`; else null.
        name: the name of the counter.
        value: the value of the counter.
        per_second: growth a second between the two snapshots; null for a value that does not only grow.
        unit: what the counter counts.
        meaning: the meaning of the counter, in one sentence.
    """

    of: str
    topic: str | None
    slot: int | None
    name: str
    value: int
    per_second: float | None
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class SessionCounters:
    """All counters of a session, its topics, its receivers and the context that sends it, or of a recorder.

    Attributes:
        domain: the domain.
        taken_ns: time of the snapshot, ns since the epoch.
        seconds: time between the two snapshots.
        source: the session's source string, or the path of the recorder's log.
        counters: the counters.
        receivers: the latencies of the session's receivers.
    """

    domain: str
    taken_ns: int
    seconds: float
    source: str
    counters: tuple[CounterLine, ...]
    receivers: tuple[ReaderDelay, ...]


@click.command("stats")
@click.argument("session", shell_complete=candidates.sessions)
@interval_option()
@click.option("--all", "show_all", is_flag=True, help="Print the counters that are 0, too; --json always has them.")
@statistics_options
@json_option
def command(session: str, interval: float, show_all: bool, domain: str, as_json: bool) -> None:
    """Prints the counters of SESSION, its topics, its receivers and its context: value, growth a second, and meaning.

    SESSION is a source string, a part of one that no other session has, or a topic that only one session carries. Where
    two contexts have the same source string, write CONTEXT:SOURCE, or CONTEXT alone. For a recorder, SESSION is the
    path of its log, as 'ipcbus list' shows it.

    \b
    Examples:
      ipcbus stats LBT-IPC:6481f8d4:20001
      ipcbus stats quotes.AAPL --interval 10
      ipcbus stats quotes.AAPL --all
      ipcbus stats /var/archive/host-1
      ipcbus stats orders --json | jq '.counters[] | select(.name == "lost") | .value'
      ipcbus stats orders --json | jq '.counters[] | select(.name == "gmd_pending") | .value'
    """
    chosen = ""
    for found in watch(domain, interval, 1, begin=True):
        recorder = next((each for context in found.contexts for each in context.recorders if each.log == session), None)
        if recorder is not None:
            if found.seconds:
                _print(recorder_counters(found, recorder), {}, show_all, as_json)
            continue
        picked = session_again(found, chosen, session) if chosen else pick_session(found, session)
        if not picked.counters:
            raise Failure(safe(f"{picked.source} is {state(picked)}: {picked.reason or 'it has no counters'}").plain)
        if not chosen:
            chosen = full_name(picked)
        else:
            _print(counters_of(found, picked), _media(picked), show_all, as_json)


def _media(session: SessionStats) -> dict[int | None, str]:
    """Returns UDP or TCP for the session, under None, and for its receivers, by their slots."""
    found: dict[int | None, str] = {slot.slot: medium(slot.layer) for slot in session.receivers}
    found[None] = medium(session.uplink.layer if session.uplink else "")
    return found


def _print(found: SessionCounters, media: dict[int | None, str], show_all: bool, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    shown = [line for line in found.counters if show_all or line.value or line.per_second]
    _show(replace(found, counters=tuple(shown)), media)
    if hidden := len(found.counters) - len(shown):
        output().print(f"{plural(hidden, 'counter')} of value 0 left out; --all prints all counters", highlight=False)


def recorder_counters(found: DomainSnapshot, recorder: RecorderStats) -> SessionCounters:
    """Returns all counters of a recorder of a snapshot with rates."""
    lines = tuple(_lines("recorder", recorder.counters, recorder.per_second))
    return SessionCounters(found.domain, found.taken_ns, found.seconds, recorder.log, lines, ())


def counters_of(found: DomainSnapshot, session: SessionStats) -> SessionCounters:
    """Returns all counters of a session of a snapshot with rates."""
    lines = list(_lines("session", session.counters, session.per_second))
    if session.uplink is not None:
        lines += _lines("uplink", session.uplink.counters, session.uplink.per_second)
    for source in session.sources:
        lines += _lines("source", source.counters, source.per_second, topic=source.topic)
    for slot in session.receivers:
        lines += _lines("slot", slot.counters, slot.per_second, slot=slot.slot)
        if slot.reception is not None:
            lines += _lines("reception", slot.reception.counters, slot.reception.per_second, slot=slot.slot)
    for context in found.contexts:
        if context.context_id == session.context_id:
            lines += _lines("context", context.counters, context.per_second)
    return SessionCounters(
        found.domain,
        found.taken_ns,
        found.seconds,
        session.source,
        tuple(lines),
        tuple(ReaderDelay.of(session, slot) for slot in session.receivers),
    )


def _lines(
    of: str, counted: Counters, rates: Rates, *, topic: str | None = None, slot: int | None = None
) -> Iterator[CounterLine]:
    from ipcbus import stats

    for row in stats.counters_of(of):
        if row.name in counted:
            yield CounterLine(of, topic, slot, row.name, counted[row.name], rates.get(row.name), row.unit, row.meaning)


def _show(found: SessionCounters, media: dict[int | None, str]) -> None:
    console = output()
    console.print(safe(found.source), style="bold")
    show_table(console, "session", [_row(line) for line in found.counters if line.of == "session"])
    show_table(
        console, f"session over {media.get(None)}", [_row(line) for line in found.counters if line.of == "uplink"]
    )
    show_table(console, "recorder", [_row(line) for line in found.counters if line.of == "recorder"])
    for topic in dict.fromkeys(line.topic for line in found.counters if line.topic is not None):
        show_table(console, f"topic {topic}", [_row(line) for line in found.counters if line.topic == topic])
    for reader in found.receivers:
        name = " ".join(
            filter(None, (f"receiver pid {reader.pid} ({reader.user})", reader.context_name, reader.command))
        )
        lines = [_row(line) for line in found.counters if line.slot == reader.slot and line.of == "slot"]
        show_table(console, name if reader.state == "active" else f"{name}: {reader.state}", lines)
        lines = [_row(line) for line in found.counters if line.slot == reader.slot and line.of == "reception"]
        show_table(console, f"{name}: over {media.get(reader.slot)}", lines)
    show_table(console, "context", [_row(line) for line in found.counters if line.of == "context"])
    rows = [row for reader in found.receivers for row in _latencies(reader, found.seconds)]
    show_table(console, "latency, from sending a message to reading it", rows)


def _row(line: CounterLine) -> Row:
    return {
        "counter": line.name,
        "value": number(line.value),
        "a second": "" if line.per_second is None else figure(line.per_second),
        "unit": line.unit,
        "meaning": line.meaning,
    }


def _latencies(reader: ReaderDelay, seconds: float) -> Iterator[Row]:
    for of, histogram in ((f"last {seconds:.3g} s", reader.recent), ("since it joined", reader.latency)):
        found = histogram.percentiles() if histogram else None
        yield {
            "pid": reader.pid,
            "of": of,
            "messages": number(found.count if found else 0),
            **percentiles(found, "p50", "p90", "p99", "p99.9", "max"),
        }
