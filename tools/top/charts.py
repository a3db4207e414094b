"""Charts of the last minute, in the lines below the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from ipcbus import stats
from ipcbus_tools.top import figures, table
from ipcbus_tools.top.session_history import SessionTrend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipcbus_tools.top.rows import Row

MIN_LINES = 5
"""Fewest lines for the charts of a session: a title, a line of text, and bars."""
_MAX_LINES = 14
_MIN_COLUMNS = 24
_GAP = 2


def draw(
    rows: Sequence[Row], trends: dict[tuple[int, str], SessionTrend], width: int, room: int, *, unicode: bool
) -> list[Text]:
    """Returns the charts of as many sessions as fit, one below the other.

    Args:
        rows: the sessions, the most important first.
        trends: the sessions' last minute.
        width: columns of the screen.
        room: free lines; the bars grow to fill them, up to a sensible height.
        unicode: whether the terminal shows more than ASCII.
    """
    shown = [row for row in rows if row.session is not None and row.session.counters]
    count = min(len(shown), max(1, room // (MIN_LINES + 4)))
    if room < MIN_LINES or not shown:
        return []
    lines: list[Text] = []
    for place, row in enumerate(shown[:count]):
        height = min(_MAX_LINES, (room - len(lines)) // (count - place))
        lines += _session(row, trends, width, height, unicode=unicode)
    return lines


def _session(
    row: Row, trends: dict[tuple[int, str], SessionTrend], width: int, height: int, *, unicode: bool
) -> list[Text]:
    session = row.session
    if session is None:
        return []
    trend = trends.get((session.context_id, session.source), SessionTrend())
    kinds: list[tuple[str, Sequence[float | None], Callable[[float | None], str], str]] = [
        ("msg/s", trend.rate, figures.count, "cyan"),
        ("p99", trend.p99, figures.time, "magenta"),
        ("lag", trend.lag, figures.size, "yellow"),
    ]
    side_by_side = max(1, min(len(kinds), (width + _GAP) // (_MIN_COLUMNS + _GAP)))
    each = min(stats.SPAN_S, (width - 2 - _GAP * (side_by_side - 1)) // side_by_side)
    rule = "──" if unicode else "--"
    title = Text.assemble((f"{rule} ", "dim"), f"the last {each} s of {table.clean(session.source)}")
    topics = ", ".join(source.topic for source in session.sources)
    title.append(f"  {table.cut(topics, max(0, width - title.cell_len - 3), unicode=unicode)}", "dim")
    rest = width - title.cell_len - 1
    title.append(" " + rule[0] * rest if rest > 0 else "", "dim")
    labels, bars = Text("  "), [Text("  ") for _ in range(height - 2)]
    for i, (name, values, format_value, style) in enumerate(kinds[:side_by_side]):
        known = [value for value in values[-each:] if value is not None]
        label = f"{name} {format_value(values[-1] if values else None)}, max {format_value(max(known, default=None))}"
        space = " " * _GAP if i else ""
        labels.append(space + table.cut(label, each, unicode=unicode).ljust(each), "bold")
        for line, part in zip(bars, figures.chart(values, each, height - 2, unicode=unicode), strict=True):
            line.append(space).append(part, style)
    return [title, labels, *bars]
