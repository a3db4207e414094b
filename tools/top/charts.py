"""Charts of the last minute, in the lines that the tables leave free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from ipcbus import stats
from ipcbus_tools.top import figures, table
from ipcbus_tools.top.session_history import SessionTrend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipcbus_tools.top.rows import Row

LEAST = 5
"""Lines that the charts of a session want at least: a title, a line of words, and bars."""
_HIGHEST = 14
_NARROWEST = 24
_GAP = 2


def draw(
    rows: Sequence[Row], trends: dict[tuple[int, str], SessionTrend], width: int, room: int, *, unicode: bool
) -> list[Text]:
    """Charts of as many sessions as there is room for, one below the other.

    Args:
        rows: the sessions, that which matters most first.
        trends: how they went.
        width: columns of the screen.
        room: lines that may be used; all of them are, as far as bars of a sensible height fill them.
        unicode: whether the terminal knows more than ASCII.
    """
    shown = [row for row in rows if row.session is not None and row.session.counters]
    count = min(len(shown), max(1, room // (LEAST + 4)))
    if room < LEAST or not shown:
        return []
    lines: list[Text] = []
    for place, row in enumerate(shown[:count]):
        high = min(_HIGHEST, (room - len(lines)) // (count - place))
        lines += _session(row, trends, width, high, unicode=unicode)
    return lines


def _session(
    row: Row, trends: dict[tuple[int, str], SessionTrend], width: int, high: int, *, unicode: bool
) -> list[Text]:
    session = row.session
    if session is None:
        return []
    trail = trends.get((session.context_id, session.source), SessionTrend())
    kinds: list[tuple[str, Sequence[float | None], Callable[[float | None], str], str]] = [
        ("msg/s", trail.rate, figures.count, "cyan"),
        ("p99", trail.p99, figures.time, "magenta"),
        ("lag", trail.lag, figures.size, "yellow"),
    ]
    side_by_side = max(1, min(len(kinds), (width + _GAP) // (_NARROWEST + _GAP)))
    each = min(stats.SPAN_S, (width - 2 - _GAP * (side_by_side - 1)) // side_by_side)
    rule = "──" if unicode else "--"
    title = Text.assemble((f"{rule} ", "dim"), f"the last {each} s of {table.clean(session.source)}")
    topics = ", ".join(source.topic for source in session.sources)
    title.append(f"  {table.cut(topics, max(0, width - title.cell_len - 3), unicode=unicode)}", "dim")
    left = width - title.cell_len - 1
    title.append(" " + rule[0] * left if left > 0 else "", "dim")
    words, bars = Text("  "), [Text("  ") for _ in range(high - 2)]
    for i, (name, values, words_of, style) in enumerate(kinds[:side_by_side]):
        known = [value for value in values[-each:] if value is not None]
        told = f"{name} {words_of(values[-1] if values else None)}, max {words_of(max(known, default=None))}"
        space = " " * _GAP if i else ""
        words.append(space + table.cut(told, each, unicode=unicode).ljust(each), "bold")
        for line, part in zip(bars, figures.chart(values, each, high - 2, unicode=unicode), strict=True):
            line.append(space).append(part, style)
    return [title, words, *bars]
