"""Tables of rows for people: one line a row; on a narrow terminal a cut text ends with a sign."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus_tools.common import duration, number, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.text import Text

    from ipcbus.stats import Percentiles, SessionStats, SlotStats

Row = dict[str, object]
"""A line of a table: the values by column."""

_LEFT = (
    *("context", "name", "user", "command", "note", "topic", "source", "pacing", "state", "kind", "held up by"),
    *("wants", "reason", "counter", "unit", "meaning", "of", "layer", "why not the ring", "over UDP", "recorder"),
    *("log", "group", "file", "written by", "sent as", "scope", "option", "from", "receiver"),
    *("figure", "verdict"),
)
_MIN_WIDTHS = {
    **dict.fromkeys(("command", "note", "reason", "meaning", "wants", "name", "user", "why not the ring"), 8),
    **dict.fromkeys(("topic", "held up by", "recorder"), 16),
}
"""Columns of text that may be cut, each with its least width. All other columns are whole or left out, because half a
number is another number."""

_DROP_ORDER = (
    *("command", "up", "pacing", "window", "number", "user", "overruns", "p90", "p99.9", "waited", "datagrams", "p50"),
    *("topics", "kind", "bytes", "unit", "blocked", "max", "context", "name", "meaning", "receivers", "wants"),
    *("next offset", "errors"),
    *("NAKs", "sent again", "rate limited", "unrecovered", "over UDP", "layer"),
    *("messages", "behind", "p99", "held up by", "note", "why not the ring", "reason"),
)
"""Columns that are left out, in this order, if the least widths do not fit; then the last columns of the table."""

_GAP = "  "


def show_table(console: Console, title: str, rows: list[Row]) -> None:
    """Prints a table; on a terminal it is cut to the terminal's width."""
    width = console.width if console.file.isatty() else None
    for line in lines(title, rows, width, unicode=not console.options.ascii_only):
        console.print(line, soft_wrap=True)


def lines(title: str, rows: list[Row], width: int | None, *, unicode: bool = True) -> Iterator[Text]:
    """Yields the lines of a table without its empty columns; no lines if there are no rows.

    Args:
        title: the title above the table.
        rows: the rows, all with the same columns.
        width: columns of the terminal; None without a limit.
        unicode: whether the terminal shows more than ASCII.
    """
    from rich.cells import cell_len
    from rich.text import Text

    from ipcbus_tools.top.table import cell, clean, cut

    names = [name for name in (rows[0] if rows else {}) if any(str(row[name]) for row in rows)]
    if not names:
        return
    columns = {name: [name, *(clean(str(row[name])) for row in rows)] for name in names}
    widths = {name: max(map(cell_len, column)) for name, column in columns.items()}
    if width is not None:
        widths, title = fitted(widths, width), cut(title, width, unicode=unicode)
    yield Text(clean(title), "italic")
    for place in range(len(rows) + 1):
        cells = (cell(columns[name][place], each, name in _LEFT, unicode=unicode) for name, each in widths.items())
        yield Text(_GAP.join(cells).rstrip(), "" if place else "bold")


def fitted(natural: dict[str, int], width: int) -> dict[str, int]:
    """Returns the widths of the columns that fit into a line of this width.

    It first shortens the longest texts, then leaves columns out.
    """
    widths = dict(natural)
    excess = sum(widths.values()) + len(_GAP) * (len(widths) - 1) - width
    while excess > 0:
        name = max(widths, key=lambda each: widths[each] - _MIN_WIDTHS.get(each, widths[each]))
        if widths[name] <= _MIN_WIDTHS.get(name, widths[name]):
            break
        widths[name] -= 1
        excess -= 1
    if excess <= 0:
        return widths
    if len(natural) == 1:
        return dict.fromkeys(natural, width)
    left_out = next((name for name in _DROP_ORDER if name in natural), list(natural)[-1])
    return fitted({name: each for name, each in natural.items() if name != left_out}, width)


def reader(session: SessionStats, slot: SlotStats) -> Row:
    """Returns the row of a receiving context on a session."""
    return {
        "pid": slot.pid,
        "user": slot.user,
        "name": slot.context_name,
        "state": slot.doing,
        "layer": slot.layer,
        "topics": len(slot.topics),
        **_received(slot),
        "behind": f"{size(slot.lag)} ({slot.lag / session.capacity:.0%})" if session.capacity else size(slot.lag),
        **percentiles(slot.latency.percentiles(), "p50", "p99", "max"),
        "why not the ring": slot.reason,
        "command": slot.command,
    }


NOTHING_MEASURED = "nothing was measured (one datagram in 16 is)"
"""What stands in place of latencies."""


def percentiles(found: Percentiles | None, *names: str) -> dict[str, str]:
    """Returns percentiles by these names, such as `p99.9` or `max`; dashes if nothing was counted."""
    return {name: duration(getattr(found, name.replace(".", "")) if found else None) for name in names}


def _received(slot: SlotStats) -> Row:
    """Returns the counters of a receiving context, or dashes if they cannot be read."""
    found: Row = {
        name: number(slot.counters[counter]) if slot.counters else "-"
        for name, counter in (("messages", "lbm_msgs_rcved"), ("lost", "lost"), ("overruns", "overruns"))
    }
    reception = slot.reception
    if reception is not None:
        found |= {"NAKs": number(reception.counters["naks_sent"]), "unrecovered": number(reception.unrecovered)}
    else:
        found |= {"NAKs": "", "unrecovered": ""}
    return found
