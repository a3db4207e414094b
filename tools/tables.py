"""Tables of rows for people: of what others named, only text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ipcbus_tools.common import duration, number, safe, size

if TYPE_CHECKING:
    from ipcbus.stats import SessionStats, SlotStats

Row = dict[str, object]
"""A line: what stands in which column."""

_LEFT = (
    *("context", "name", "user", "command", "note", "topic", "source", "pacing", "state", "kind", "held up by"),
    *("wants", "reason", "counter", "unit", "meaning", "of"),
)


def table(title: str | Text, rows: list[Row]) -> Table | Text:
    """A table of the columns in which something stands; nothing when there are no rows."""
    columns = [column for column in (rows[0] if rows else {}) if any(str(row[column]) for row in rows)]
    if not columns:
        return Text(end="")
    found = Table(title=title, title_justify="left", title_style="italic", box=None)
    for column in columns:
        left = column in _LEFT
        found.add_column(column, justify="left" if left else "right", no_wrap=not left, overflow="fold")
    for row in rows:
        # As Text: what others named must not be taken for markup, nor do anything to the terminal.
        found.add_row(*(safe(str(row[column])) for column in columns))
    return found


def reader(session: SessionStats, slot: SlotStats) -> Row:
    """A receiving context on a session."""
    latency = slot.latency.percentiles()
    return {
        "pid": slot.pid,
        "user": slot.user,
        "name": slot.context_name,
        "state": slot.doing,
        "topics": len(slot.topics),
        "messages": number(slot.counters["lbm_msgs_rcved"]),
        "lost": number(slot.counters["lost"]),
        "overruns": number(slot.counters["overruns"]),
        "behind": f"{size(slot.lag)} ({slot.lag / session.capacity:.0%})" if session.capacity else size(slot.lag),
        "p50": duration(latency.p50 if latency else None),
        "p99": duration(latency.p99 if latency else None),
        "max": duration(latency.max if latency else None),
        "command": slot.command,
    }
