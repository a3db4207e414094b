"""The columns of the tables of sessions, receivers and topics."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len

from ipcbus import stats
from ipcbus_tools.top import figures
from ipcbus_tools.top.table import ELLIPSIS, Column, number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipcbus.stats import (
        Absent,
        ContextStats,
        Percentiles,
        ReceptionStats,
        SessionStats,
        SlotStats,
        SourceStats,
        UplinkStats,
    )
    from ipcbus_tools.top.rows import Row
    from ipcbus_tools.top.session_history import SessionTrend

_SOURCE, _SOURCE_MORE = 22, 12
"""Screen columns of a source string, enough for a ring session, and how many more it may get."""

_TOPIC, _TOPIC_MORE = 16, 32
"""Screen columns of a topic, and how many more it may get."""
_LATER = 7
"""Columns from this rank on get room only after topics are written out."""

BAD, WARN, DIM = "bold red", "yellow", "dim"
_STATES = {"dead": BAD, "gone": DIM, "blocked": WARN, "refused": WARN, "idle": DIM, "evicted": BAD, "stopped": BAD}


@dataclass(frozen=True, slots=True)
class Reader:
    """A line of the table of receivers: a context that has joined the session, or that should and has not.

    Attributes:
        slot: the context's slot; None if it has not joined.
        holds_up: whether it holds the source up.
        capacity: bytes of the session's window.
        pid: the process of the context.
        user: the user of the process.
        name: the name of the context.
        command: the command line of the process.
        layer: `ring`, the UDP transport over which it receives, or `none` if it has not joined.
        reason: why it does not read the ring, or has not joined; else empty.
        latency: latency of what it read between the last two snapshots; None without any.
        recovering: recoveries that run in the context, of all its sessions; None if that is not known.
        missing: messages that these recoveries still have to ask for.
    """

    slot: SlotStats | None
    holds_up: bool
    capacity: int
    pid: int
    user: str
    name: str
    command: str
    layer: str
    reason: str
    latency: Percentiles | None
    recovering: int | None = None
    missing: int | None = None

    @classmethod
    def joined(cls, session: SessionStats, slot: SlotStats, context: ContextStats | None = None) -> Reader:
        """Returns the line of a context that has a slot; `context` has its counters."""
        counters = context.counters if context is not None else {}
        return cls(
            slot=slot,
            holds_up=session.held_up_by == slot,
            capacity=session.capacity,
            pid=slot.pid,
            user=slot.user,
            name=slot.context_name,
            command=slot.command,
            layer=slot.layer,
            reason=slot.reason,
            latency=slot.recent.percentiles() if slot.recent else None,
            recovering=counters.get("recoveries_running"),
            missing=counters.get("retransmissions_missing"),
        )

    @classmethod
    def absent(cls, found: Absent) -> Reader:
        """Returns the line of a context that has not joined."""
        context = found.context
        return cls(None, False, 0, context.pid, context.user, context.name, "", "none", found.reason, None)

    @property
    def state(self) -> str:
        """`reads`, `parked`, `joining`, `evicted`, `dead`, or `absent`."""
        return self.slot.doing if self.slot else "absent"


def sessions(
    trends: dict[tuple[int, str], SessionTrend], rows: Sequence[Row], width: int, *, unicode: bool, wanted: str = ""
) -> list[Column[Row]]:
    """Returns the columns of the table of sessions.

    Topics get the room that they need before less important columns get any.

    Args:
        trends: the sessions' last minute.
        rows: the lines of the table; the columns of UDP are left out if no session uses UDP, and the columns
            of kept messages and of requests while their counters are 0.
        width: screen columns of the table.
        unicode: whether the terminal shows more than ASCII.
        wanted: text of the filter; of several topics, the first that contains it is shown.
    """
    udp = any(row.session.uplink.counters for row in rows if row.session is not None and row.session.uplink is not None)

    def trail(row: Row, width: int) -> str:
        found = trends.get((row.session.context_id, row.session.source)) if row.session and _is_live(row) else None
        return figures.sparkline(found.rate if found else (), width, unicode=unicode)

    columns: list[Column[Row]] = [
        Column("session", _SOURCE, 0, lambda row, width: _beginning_and_end(_source(row), width, unicode), left=True),
        Column("state", 7, 1, lambda row, _: row.state, left=True, style=lambda row: _STATES.get(row.state, "")),
        Column("pid", 7, 7, _text(lambda session: f"{session.pid}")),
        Column("topic", _TOPIC, 1, lambda row, _: first_topic(row, wanted), left=True, spread=4),
        Column("user", 8, 15, _text(lambda session: session.user), left=True),
        Column("context", 8, 14, _text(lambda session: session.context_name), left=True),
        Column("command", 10, 11, _text(lambda session: figures.program(session.command)), left=True, spread=1),
        Column("topics", 6, 13, _text(lambda session: f"{len(session.sources)}")),
        number("rcv", 3, 6, figures.whole, _live(lambda session: session.counters.get("num_clients"))),
        number("msg/s", 6, 0, figures.count, _live(lambda session: session.per_second.get("lbm_msgs_sent"))),
        number("MiB/s", 6, 4, figures.mebibytes, _live(lambda session: session.per_second.get("bytes_sent"))),
        number("p50", 6, 5, figures.time, _live(lambda session: latency(session, "p50"))),
        number("p99", 6, 2, figures.time, _live(lambda session: latency(session, "p99"))),
        number("lag", 6, 3, figures.size, _live(lag)),
        number("dgram/s", 7, 9, figures.count, _live(lambda session: session.per_second.get("msgs_sent"))),
        number("msg/dg", 6, 10, figures.count, _live(lambda session: session.messages_per_datagram)),
        number("fill%", 5, 7, figures.share, _live(lambda session: session.fill)),
        number("blkd%", 5, 3, figures.share, _live(lambda session: session.blocked), WARN, above=0.01),
        number("lost", 6, 5, figures.whole, _lost, BAD),
        *(_OVER_UDP if udp else ()),
        *(column for column, name in _OF_CONTEXT if any(row.counters.get(name) for row in rows)),
        Column("last minute", 10, 8, trail, spread=2),
    ]
    # The topic, then the session, are written out before less important columns get room.
    spare = max(0, width - sum(column.width + 1 for column in columns if column.rank < _LATER) + 1)
    topic = min(spare, max((cell_len(first_topic(row, wanted)) for row in rows), default=0) - _TOPIC, _TOPIC_MORE)
    spare -= max(0, topic)
    session = min(spare, max((len(_source(row)) for row in rows), default=0) - _SOURCE, _SOURCE_MORE)
    more = {"topic": max(0, topic), "session": max(0, session)}
    return [dataclasses.replace(each, width=each.width + more.get(each.title, 0)) for each in columns]


def _text(of: Callable[[SessionStats], str]) -> Callable[[Row, int], str]:
    """Returns the cells of a text, which are empty for a context that cannot be read."""
    return lambda row, _: of(row.session) if row.session else ""


def _live(of: Callable[[SessionStats], float | None]) -> Callable[[Row], float | None]:
    """Returns the numbers of sessions that run; those of others are unknown."""
    return lambda row: of(row.session) if row.session and _is_live(row) else None


def _over_udp(of: Callable[[UplinkStats], float | None]) -> Callable[[Row], float | None]:
    return _live(lambda session: of(session.uplink) if session.uplink else None)


_OVER_UDP: tuple[Column[Row], ...] = (
    number("NAK/s", 6, 6, figures.count, _over_udp(lambda uplink: uplink.per_second.get("naks_rcved")), WARN),
    number("again/s", 7, 8, figures.count, _over_udp(lambda uplink: uplink.per_second.get("rxs_sent"))),
    number("lmtd%", 5, 8, figures.share, _over_udp(lambda uplink: uplink.limited), WARN, above=0.01),
)


def _of_context(name: str) -> Callable[[Row], float | None]:
    """Returns a counter of the contexts that send; those of contexts that do not run are unknown."""
    return lambda row: row.counters.get(name) if _is_live(row) else None


_OLD_NS = 60e9
"""Age from which a message that is not acknowledged is marked, in ns."""
_OF_CONTEXT: tuple[tuple[Column[Row], str], ...] = (
    (number("kept", 6, 6, figures.size, _of_context("retained_bytes")), "retained_bytes"),
    (number("pend", 6, 6, figures.whole, _of_context("gmd_pending")), "gmd_pending"),
    (number("oldest", 6, 7, figures.time, _of_context("gmd_oldest_ns"), WARN, above=_OLD_NS), "gmd_oldest_ns"),
    (number("area", 7, 7, figures.size, _of_context("gmd_area_bytes")), "gmd_area_bytes"),
    (number("failed", 6, 6, figures.whole, _of_context("gmd_failures"), BAD), "gmd_failures"),
    (number("reqs", 5, 6, figures.whole, _of_context("reqs_pending")), "reqs_pending"),
)


def readers(found: Sequence[Reader]) -> list[Column[Reader]]:
    """Returns the columns of the table of receivers; some only if a receiver uses UDP, or has a reason to."""
    udp = any(reader.slot is not None and reader.layer != stats.RING for reader in found)
    reasons = any(reader.slot is not None and reader.reason for reader in found)
    return [
        Column("pid", 7, 0, lambda row, _: f"{row.pid}"),
        Column("state", 7, 1, lambda row, _: row.state, left=True, style=lambda row: _STATES.get(row.state, "")),
        Column("user", 8, 12, lambda row, _: row.user, left=True),
        Column("context", 9, 11, lambda row, _: row.name, left=True),
        Column("command", 12, 10, lambda row, _: figures.program(row.command), left=True, spread=1),
        Column("layer", 6, 2 if udp else 9, lambda row, _: row.layer, left=True),
        *(_REASON if reasons else ()),
        number("msg/s", 6, 0, figures.count, _slot(lambda s: s.per_second.get("lbm_msgs_rcved") if s.alive else None)),
        Column("lag", 6, 1, lambda row, _: figures.size(row.slot.lag if row.slot else None), style=_lag_style),
        number("lag msg", 7, 4, figures.whole, _slot(lambda slot: slot.lag_messages)),
        number("lost", 6, 2, figures.whole, _slot(lambda slot: slot.counters.get("lost")), BAD),
        *(_REPAIR if udp else ()),
        *(_RECOVERY if any(reader.recovering for reader in found) else ()),
        number("p50", 6, 3, figures.time, lambda row: row.latency.p50 if row.latency else None),
        number("p90", 6, 7, figures.time, lambda row: row.latency.p90 if row.latency else None),
        number("p99", 6, 3, figures.time, lambda row: row.latency.p99 if row.latency else None),
        number("p99.9", 6, 8, figures.time, lambda row: row.latency.p999 if row.latency else None),
        number("max", 6, 5, figures.time, lambda row: row.latency.max if row.latency else None),
    ]


def _slot(of: Callable[[SlotStats], float | None]) -> Callable[[Reader], float | None]:
    """Returns the numbers of receivers that have joined."""
    return lambda row: of(row.slot) if row.slot else None


def _repair(of: Callable[[ReceptionStats], float | None]) -> Callable[[Reader], float | None]:
    return _slot(lambda slot: of(slot.reception) if slot.reception else None)


_REASON: tuple[Column[Reader], ...] = (Column("reason", 14, 3, lambda row, _: row.reason, left=True, spread=2),)
_REPAIR: tuple[Column[Reader], ...] = (
    number("NAK/s", 6, 4, figures.count, _repair(lambda reception: reception.per_second.get("naks_sent"))),
    number("unrec", 6, 4, figures.whole, _repair(lambda reception: reception.unrecovered), BAD),
)
_RECOVERY: tuple[Column[Reader], ...] = (
    number("recov", 5, 2, figures.whole, lambda row: row.recovering, WARN),
    number("missing", 7, 3, figures.whole, lambda row: row.missing, WARN),
)
SOURCES: list[Column[tuple[Row, SourceStats]]] = [
    Column("topic", 16, 0, lambda pair, _: pair[1].topic, left=True, spread=1),
    Column("session", 22, 3, lambda pair, _: _source(pair[0]), left=True),
    Column("pid", 7, 5, lambda pair, _: f"{pair[0].session.pid}" if pair[0].session else ""),
    Column("rcv", 3, 2, lambda pair, _: f"{pair[1].receivers}" if pair[1].counters else figures.NONE),
    Column("msg/s", 6, 0, lambda pair, _: figures.count(_topic_rate(pair, "lbm_msgs_sent"))),
    Column("MiB/s", 6, 1, lambda pair, _: figures.mebibytes(_topic_rate(pair, "bytes_sent"))),
    Column("messages", 8, 4, lambda pair, _: figures.whole(pair[1].counters.get("lbm_msgs_sent"))),
    Column("waited", 6, 6, lambda pair, _: figures.whole(pair[1].counters.get("send_blocked"))),
    Column("refused", 7, 7, lambda pair, _: figures.whole(pair[1].counters.get("send_would_block"))),
]
"""Columns of the table of topics."""


def _is_live(row: Row) -> bool:
    return row.state not in ("dead", "gone")


def _source(row: Row) -> str:
    return row.session.source if row.session else f"context {row.context_id:08x}"


def _beginning_and_end(text: str, width: int, unicode: bool) -> str:
    """Returns the beginning and the end of a source string that is too long; its end makes it unique."""
    end = width // 2 - 1
    return text if len(text) <= width else text[: width - 1 - end] + ELLIPSIS[unicode] + text[len(text) - end :]


def first_topic(row: Row, wanted: str = "") -> str:
    """Returns one topic of a session, if possible one that contains a text, and the number of the others."""
    topics = [source.topic for source in row.session.sources] if row.session else []
    fitting = [topic for topic in topics if wanted.casefold() in topic.casefold()] or topics
    return (fitting[0] + (f" +{len(topics) - 1}" if len(topics) > 1 else "")) if topics else ""


def lag(session: SessionStats) -> int | None:
    """Returns the bytes that the slowest receiver has not read; None without a receiver."""
    return max((slot.lag for slot in session.receivers if slot.alive), default=None)


def latency(session: SessionStats, name: str) -> int | None:
    """Returns the highest percentile of a session's receivers since the previous snapshot; None if none has read."""
    found = [slot.recent.percentiles() for slot in session.receivers if slot.recent is not None and slot.alive]
    return max((getattr(each, name) for each in found if each is not None), default=None)


def _lost(row: Row) -> int | None:
    if row.session is None or not row.session.counters:
        return None
    return sum(slot.counters.get("lost", 0) for slot in row.session.receivers)


def _lag_style(row: Reader) -> str:
    return WARN if row.holds_up or (row.slot and row.capacity and row.slot.lag > row.capacity // 2) else ""


def _topic_rate(pair: tuple[Row, SourceStats], name: str) -> float | None:
    return pair[1].per_second.get(name) if _is_live(pair[0]) else None
