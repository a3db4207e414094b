"""A domain as it was recorded: four sessions of one process, four receivers' contexts, one of them too slow."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ipcbus.stats import DomainSnapshot
from ipcbus_tools.top.host import Host
from ipcbus_tools.top.rows import RowList
from ipcbus_tools.top.screen import Frame, Size, screen
from ipcbus_tools.top.session_history import SessionTrend
from ipcbus_tools.top.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.stats import ContextStats, SessionStats

TRADING = DomainSnapshot.from_dict(json.loads(Path(__file__).with_name("trading.json").read_text()))
UDP = DomainSnapshot.from_dict(json.loads(Path(__file__).with_name("udp.json").read_text()))
"""A feed over LBT-RU held up by its data rate, a tenth of it lost on the way; and a ring that has no slot for one."""
HOST = Host("machine", (12.0, 99.6), 14 << 20, 64 << 20)
SECOND = 1_000_000_000

EVERYTHING = View()
_SOURCES = {session.sources[0].topic: session.source for session in TRADING.sessions}
FAST, SLOW, SMX, SPARSE = (_SOURCES[each] for each in ("quotes.AAPL", "quotes.MSFT", "orders", "telemetry.slow"))
FEED, ORDERS = (session.source for session in sorted(UDP.sessions, key=lambda each: each.transport, reverse=True))
"""Source strings; a receiver of `SLOW` holds its source up."""


def changed(
    found: DomainSnapshot,
    *,
    context: Callable[[ContextStats], ContextStats] = lambda context: context,
    session: Callable[[SessionStats], SessionStats] = lambda session: session,
    later_s: float = 0,
) -> DomainSnapshot:
    """A snapshot with other contexts or sessions, perhaps taken later."""
    contexts = (
        context(dataclasses.replace(each, sessions=tuple(map(session, each.sessions)))) for each in found.contexts
    )
    later = round(later_s * SECOND)
    return dataclasses.replace(
        found, contexts=tuple(contexts), read_ns=found.read_ns + later, taken_ns=found.taken_ns + later
    )


def frame(found: DomainSnapshot = TRADING, trail: tuple[float | None, ...] = (0.0, 5.0, 10.0)) -> Frame:
    """What is seen of a snapshot at the first look."""
    lags = tuple(None if value is None else value * 1000 for value in trail)
    trends = {(session.context_id, session.source): SessionTrend(trail, trail, lags) for session in found.sessions}
    row_list = RowList()
    return Frame(HOST, found, row_list.rows(found, SECOND), trends, 1.0, row_list.lost)


def lines(
    shown: Frame, view: View = EVERYTHING, width: int = 80, height: int = 24, *, unicode: bool = True
) -> list[str]:
    """The screen as it would be read, without colour."""
    console = Console(file=io.StringIO(), width=width, height=height, no_color=True, legacy_windows=False)
    console.print(screen(shown, view, Size(width, height, unicode)), end="")
    return console.file.getvalue().split("\n")  # type: ignore[attr-defined, no-any-return]


def text(shown: Frame, view: View = EVERYTHING, width: int = 80, height: int = 24) -> str:
    """The same as one text."""
    return "\n".join(lines(shown, view, width, height))
