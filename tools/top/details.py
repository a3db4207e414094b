"""The page of details with every counter and its meaning, and the help page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from ipcbus import stats
from ipcbus_tools.common import duration, number, size
from ipcbus_tools.render import udp_text
from ipcbus_tools.render.text_tables import NOTHING_MEASURED
from ipcbus_tools.top import figures
from ipcbus_tools.top.table import clean
from ipcbus_tools.top.view import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ipcbus.stats import Histogram, SessionStats, SlotStats
    from ipcbus_tools.top.rows import Row

_MEANING_AT = 62
"""Screen columns of a counter before its meaning."""


def help_lines() -> list[Text]:
    """Returns the help page: the keys, and the meaning of the columns."""
    lines = [Text.assemble((f"  {keys:<12}", "bold"), what) for keys, what in KEYS]
    lines.append(Text())
    for word, meaning in _COLUMN_HELP:
        lines.append(Text.assemble((f"  {word:<12}", "bold"), meaning))
    return lines


_COLUMN_HELP = (
    ("msg/dg", "messages in a datagram: a high figure means that batching works"),
    ("fill%", "share of the window that the slowest receiver has not read"),
    ("blkd%", "share of the time in which sends waited for room in the window"),
    ("lag", "bytes, and about how many messages, that a receiver has not read"),
    ("lost", "messages lost for good: above since top started, below since the receiver joined"),
    ("MiB/s", "2^20 bytes a second, headers included; KiB, MiB and GiB are powers of 1024 everywhere"),
    ("p50 .. max", "latency from sending a message to reading it, since the previous snapshot"),
    ("p99 and lag", "of a session: the highest of its receivers"),
    ("CPU0", "load of this processor of the machine, by all programs together"),
    ("!", "this receiver holds the source up"),
    ("layer", "how the receiver gets messages: ring, LBT-RU, LBT-RM or LBT-TCP;  reason: why not the ring"),
    ("NAK/s", "datagrams that receivers ask for again over UDP;  again/s: sent again;  unrec: given up"),
    ("lmtd%", "share of the time in which datagrams waited for the data rate over UDP"),
    ("behind", "age of the oldest message that a recorder has not written;  buf%: fill of its buffer"),
    ("dropped", "messages that a full recorder did not record;  lost: before they reached the recorder"),
    ("blocked", "a send waits for room;  refused: a send found no room"),
    ("parked", "the receiver sleeps until something is published"),
    ("absent", "has a receiver for a topic of the session and has not joined, with the reason"),
    ("gone", "has ended since the previous snapshot;  dead: ended without closing"),
)


def session_lines(row: Row | None, width: int) -> list[Text]:
    """Returns the page of details of a session."""
    if row is None:
        return [Text("  no session", "dim")]
    session = row.session
    if session is None:
        return [Text(f"  context {row.context_id:08x}"), Text(f"  {clean(row.reason)}", "dim")]
    lines = [Text(clean(f"{session.source}  {row.state}"), "bold")]
    lines += [Text.assemble((f"  {name:<14}", "dim"), clean(value)) for name, value in _facts(session)]
    if session.reason:
        lines.append(Text.assemble(("  not readable  ", "dim"), clean(session.reason)))
    wide = width > _MEANING_AT + 20
    lines += _block("counters of the session", "session", session.counters, session.per_second, wide)
    if session.uplink is not None and session.uplink.counters:
        lines.append(Text())
        over = f"counters over {udp_text.medium(session.uplink.layer)}"
        lines += _block(over, "uplink", session.uplink.counters, session.uplink.per_second, wide)
    for slot in session.receivers:
        lines += [Text(), Text(clean(_reader(slot)), "bold")]
        lines += [Text.assemble((f"  {name:<14}", "dim"), clean(value)) for name, value in udp_text.lines(slot)]
        lines += [Text(f"  {line}") for line in _latencies(slot)] if slot.counters else []
        lines += _block("counters of the receiver", "slot", slot.counters, slot.per_second, wide)
        if slot.reception is not None:
            over = f"counters over {udp_text.medium(slot.layer)}"
            lines += _block(over, "reception", slot.reception.counters, slot.reception.per_second, wide)
    for source in session.sources:
        lines.append(Text())
        lines.append(Text(f"topic {clean(source.topic)}: number {source.number}, {source.receivers} receivers", "bold"))
        lines += _block("counters of the topic", "source", source.counters, source.per_second, wide)
    return lines


def _facts(session: SessionStats) -> Iterator[tuple[str, str]]:
    yield "owner", f"pid {session.pid}, user {session.user}, context {session.context_id:08x} {session.context_name}"
    yield "command", session.command or "not readable"
    yield "transport", udp_text.transport(session)
    yield from udp_text.windows(session)
    yield "published", f"{number(session.tail)} bytes, headers and padding included"
    fill = f"{figures.share(session.fill)} % unread by the slowest receiver" if session.receivers else "no receiver"
    yield "fill", fill
    if session.counters.get("batch_wait_max"):
        wait = session.batch_wait_ns
        mean = duration(None if wait is None else round(wait))
        yield "batch wait", f"mean {mean} a message, longest {duration(session.counters['batch_wait_max'])}"
    yield "blocked", f"{figures.share(session.blocked)} % of the time since the previous snapshot"
    yield from udp_text.facts(session)
    holder = session.held_up_by
    if session.held_up_by_rate and session.uplink is not None:
        yield "held up by", udp_text.data_rate(session.uplink)
    if holder is not None:
        since = f" for {duration(session.held_up_for_ns)}" if session.held_up_for_ns else ""
        yield "held up by", f"pid {holder.pid}, user {holder.user}{since}: {holder.command}"


def _block(title: str, of: str, counters: Mapping[str, int], rates: Mapping[str, float], wide: bool) -> Iterator[Text]:
    if not counters:
        return
    yield Text(f"  {title:<26}{'value':>16}  {'a second':>10}", "underline")
    for row in stats.counters_of(of):
        rate = figures.count(rates.get(row.name)) if row.grows and rates else ""
        text = Text(f"  {row.name:<26}{number(counters.get(row.name, 0)):>16}  {rate:>10}")
        if wide:
            text.append(f"  {row.meaning}", "dim")
        yield text


def _reader(slot: SlotStats) -> str:
    name = f" {slot.context_name}" if slot.context_name else ""
    state = slot.state if slot.alive else "dead"
    lag = f"{size(slot.lag)} behind, about {figures.whole(slot.lag_messages)} messages"
    where = f"slot {slot.slot}" if slot.layer == stats.RING else slot.layer
    return f"{where}: pid {slot.pid}, user {slot.user}, context {slot.context_id:08x}{name}, {state}, {lag}"


def _latencies(slot: SlotStats) -> Iterator[str]:
    if slot.recent is not None:
        yield f"latency since last snapshot  {_percentiles(slot.recent)}"
    yield f"latency since it joined      {_percentiles(slot.latency)}"


def _percentiles(histogram: Histogram) -> str:
    found = histogram.percentiles()
    if found is None:
        return NOTHING_MEASURED
    values = (("p50", found.p50), ("p90", found.p90), ("p99", found.p99), ("p99.9", found.p999), ("max", found.max))
    return "  ".join(f"{name} {duration(value)}" for name, value in values) + f"  of {number(found.count)} messages"
