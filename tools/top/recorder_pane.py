"""The columns of the table of recorders."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ipcbus_tools.top import figures
from ipcbus_tools.top.table import Column, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipcbus_tools.top.rows import RecorderRow

BAD, WARN, DIM = "bold red", "yellow", "dim"
STATES = {"dead": BAD, "stopped": BAD, "hangs": BAD, "drops": BAD, "fails": BAD, "behind": WARN, "gone": DIM}


def troubles(rows: Iterable[RecorderRow]) -> list[tuple[str, str]]:
    """Returns the texts of the header on recorders in trouble, each with its style; the worst first."""
    states = Counter(row.state for row in rows)
    return [
        (f"recorder {state}" if states[state] == 1 else f"{states[state]} recorders: {state}", style)
        for state, style in STATES.items()
        if states[state] and style != DIM
    ]


def _rate(row: RecorderRow, name: str) -> float | None:
    return row.recorder.per_second.get(name) if row.state not in ("dead", "gone") else None


def _sum(*names: str) -> Callable[[RecorderRow], int]:
    return lambda row: sum(row.recorder.counters.get(name, 0) for name in names)


COLUMNS: list[Column[RecorderRow]] = [
    Column("recorder", 12, 0, lambda row, width: _end(row.recorder.log, width), left=True, spread=2),
    Column("state", 7, 0, lambda row, _: row.state, left=True, style=lambda row: STATES.get(row.state, "")),
    Column("pid", 7, 4, lambda row, _: f"{row.pid}"),
    Column("user", 8, 9, lambda row, _: row.user, left=True),
    Column("command", 12, 8, lambda row, _: figures.program(row.command), left=True, spread=1),
    Column("msg/s", 6, 1, lambda row, _: figures.count(_rate(row, "messages"))),
    Column("MiB/s", 6, 6, lambda row, _: figures.mebibytes(_rate(row, "bytes"))),
    Column(
        "behind",
        6,
        2,
        lambda row, _: figures.time(row.recorder.counters.get("behind_ns")),
        style=lambda row: STATES.get(row.state, "") if row.state in ("behind", "hangs") else "",
    ),
    Column("buf%", 4, 3, lambda row, _: figures.share(row.recorder.fill)),
    number("lost", 7, 3, figures.whole, _sum("lost", "missed"), WARN),
    number("dropped", 7, 2, figures.whole, _sum("dropped"), BAD),
    number("errors", 7, 7, figures.whole, _sum("errors"), BAD),
]
"""The columns; `lost` counts messages lost before the recorder, and those sent while it did not run."""


def _end(path: str, width: int) -> str:
    """Returns the end of a path that is too long for its column; its end makes it unique."""
    return path if len(path) <= width else ".." + path[len(path) - width + 2 :]
