"""What is looked at, and what a key does to it. Pure: from a view, a key and the lines to the next view."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipcbus.stats import SessionStats, SourceStats
    from ipcbus_tools.top.roster import Key, Row

SORTS: Final = ("msg/s", "MB/s", "fill", "blocked", "lost", "source", "pid", "NAK/s")
"""What the sessions can be sorted by; `s` goes through them."""

SESSIONS: Final = "sessions"
TOPICS: Final = "topics"
DETAILS: Final = "details"
HELP: Final = "help"

KEYS: Final = (
    ("up down", "choose a line; PgUp, PgDn, Home, End go further"),
    ("left right", "scroll the receivers of the chosen session"),
    ("s, S", "sort by the next column; the other way round"),
    ("f", "filter: source, topic, command, user, pid or context has the text"),
    ("t", "topics of all sessions, or sessions again"),
    ("d, Enter", "all counters of the chosen session, or the way back"),
    ("p, Space", "pause, or go on"),
    ("[ ]", "pause, and go back and forth through the looks of late"),
    ("?", "this help"),
    ("Esc", "back; without a way back, drop the filter"),
    ("q", "quit"),
)
"""Keys and what they do, for the help."""


@dataclass(frozen=True, slots=True)
class View:
    """What is looked at.

    Attributes:
        page: `sessions`, `topics`, `details` or `help`.
        chosen: key of the session that is chosen; None for the first.
        topic: number of the topic line that is chosen on the page of topics.
        receivers: how far the receivers are scrolled.
        scroll: how far the details are scrolled.
        sort: one of `SORTS`.
        reverse: the other way round.
        filter: text that lines have to contain.
        typing: whether keys go into the filter.
        paused: whether the screen stands still.
        back: how many looks before the pause the one is that is shown.
        ended: whether to quit.
    """

    page: str = SESSIONS
    chosen: Key | None = None
    topic: int = 0
    receivers: int = 0
    scroll: int = 0
    sort: str = SORTS[0]
    reverse: bool = False
    filter: str = ""
    typing: bool = False
    paused: bool = False
    back: int = 0
    ended: bool = False


def press(view: View, key: str, rows: Sequence[Row], page_rows: int = 10) -> View:
    """The view after a key.

    Args:
        view: the view before.
        key: a character, or the name of a key: `up`, `down`, `left`, `right`, `pageup`, `pagedown`, `home`, `end`,
            `enter`, `escape`, `backspace`.
        rows: the lines there are, of `shown(rows, view)`.
        page_rows: how far a page goes.
    """
    if view.typing:
        return _typed(view, key)
    if key in _STEPS:
        return _moved(view, _STEPS[key](page_rows), rows)
    if view.page == TOPICS and key in ("d", "enter"):
        found = topics(rows, view)
        chosen = found[min(view.topic, len(found) - 1)][0].key if found else view.chosen
        return dataclasses.replace(view, page=DETAILS, chosen=chosen, scroll=0)
    change = _CHANGES.get(key)
    return change(view) if change else view


def shown(rows: Sequence[Row], view: View) -> list[Row]:
    """The lines that the filter lets through, in their order; those without numbers come last."""
    found = [row for row in rows if not view.filter or view.filter.casefold() in haystack(row)]
    measure = _MEASURES[view.sort]
    ascending = view.sort in ("source", "pid")
    known = [row for row in found if row.session is not None and row.session.counters]
    unknown = [row for row in found if row.session is None or not row.session.counters]
    known.sort(key=lambda row: row.session.source if row.session else "")
    known.sort(key=lambda row: measure(row.session), reverse=ascending == view.reverse)  # type: ignore[arg-type]
    return known + unknown


def position(rows: Sequence[Row], view: View) -> int:
    """Where the chosen line is among those shown; the first where it is gone or none was chosen."""
    return next((i for i, row in enumerate(rows) if row.key == view.chosen), 0)


def topics(rows: Sequence[Row], view: View) -> list[tuple[Row, SourceStats]]:
    """The topics of the sessions, those with most messages first, or the other way round."""
    wanted = view.filter.casefold()
    found = [
        (row, source)
        for row in rows
        if row.session is not None
        for source in row.session.sources
        if wanted in source.topic.casefold() or (wanted and wanted in _of_session(row))
    ]
    found.sort(key=lambda pair: pair[1].topic)
    found.sort(key=lambda pair: pair[1].per_second.get("lbm_msgs_sent", -1.0), reverse=not view.reverse)
    return found


def haystack(row: Row) -> str:
    """What the filter looks into."""
    if row.session is None:
        return f"{row.context_id:08x} {row.reason}".casefold()
    topics = " ".join(source.topic for source in row.session.sources)
    readers = " ".join(
        f"{slot.pid} {slot.user} {slot.context_name} {slot.layer} {slot.command}" for slot in row.session.receivers
    )
    return f"{_of_session(row)} {topics} {readers}".casefold()


def _of_session(row: Row) -> str:
    session = row.session
    if session is None:
        return ""
    return (
        f"{session.source} {session.pid} {session.user} {session.context_name} {session.command} {row.state}"
    ).casefold()


def _typed(view: View, key: str) -> View:
    if key in ("enter", "escape"):
        return dataclasses.replace(view, typing=False, filter="" if key == "escape" else view.filter)
    if key == "backspace":
        return dataclasses.replace(view, filter=view.filter[:-1])
    if len(key) == 1 and key.isprintable():
        return dataclasses.replace(view, filter=view.filter + key)
    return view


_STEPS: dict[str, Callable[[int], tuple[int, int]]] = {
    "up": lambda page: (-1, 0),
    "down": lambda page: (1, 0),
    "left": lambda page: (0, -1),
    "right": lambda page: (0, 1),
    "pageup": lambda page: (-page, 0),
    "pagedown": lambda page: (page, 0),
    "home": lambda page: (-(1 << 30), 0),
    "end": lambda page: (1 << 30, 0),
}
"""Down and to the right by how much; a page is as long as the screen lets it."""


def _moved(view: View, step: tuple[int, int], rows: Sequence[Row]) -> View:
    down, right = step
    if view.page == TOPICS:
        last = max(0, len(topics(rows, view)) - 1)
        return dataclasses.replace(view, topic=min(max(0, min(view.topic, last) + down), last))
    if view.page != SESSIONS:
        return dataclasses.replace(view, scroll=max(0, min(view.scroll + down, 1 << 16)))
    if not rows:
        return view
    if right:
        readers = rows[position(rows, view)].session
        last = max(0, len(readers.receivers) - 1) if readers else 0
        return dataclasses.replace(view, receivers=min(max(0, min(view.receivers, last) + right), last))
    place = min(max(0, position(rows, view) + down), len(rows) - 1)
    return dataclasses.replace(view, chosen=rows[place].key, receivers=0)


def _sorted(view: View) -> View:
    return dataclasses.replace(view, sort=SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)])


def _page(name: str) -> Callable[[View], View]:
    def change(view: View) -> View:
        return dataclasses.replace(view, page=SESSIONS if view.page == name else name, scroll=0)

    return change


def _back(view: View) -> View:
    if view.page != SESSIONS:
        return dataclasses.replace(view, page=SESSIONS, scroll=0)
    return dataclasses.replace(view, filter="")


def _filtering(view: View) -> View:
    return dataclasses.replace(view, typing=True, page=TOPICS if view.page == TOPICS else SESSIONS)


def _paused(view: View) -> View:
    return dataclasses.replace(view, paused=not view.paused, back=0)


def _back_in_time(view: View) -> View:
    return dataclasses.replace(view, paused=True, back=view.back + 1)


def _forth_in_time(view: View) -> View:
    return dataclasses.replace(view, paused=True, back=max(0, view.back - 1))


_CHANGES: dict[str, Callable[[View], View]] = {
    "q": lambda view: dataclasses.replace(view, ended=True),
    "s": _sorted,
    "S": lambda view: dataclasses.replace(view, reverse=not view.reverse),
    "f": _filtering,
    "/": _filtering,
    "t": _page(TOPICS),
    "d": _page(DETAILS),
    "enter": _page(DETAILS),
    "?": _page(HELP),
    "h": _page(HELP),
    "p": _paused,
    "[": _back_in_time,
    "]": _forth_in_time,
    " ": _paused,
    "escape": _back,
}


def _lost(session: SessionStats) -> float:
    return sum(slot.counters.get("lost", 0) for slot in session.receivers)


_MEASURES: dict[str, Callable[[SessionStats], float | str]] = {
    "msg/s": lambda session: session.per_second.get("lbm_msgs_sent", 0.0),
    "MB/s": lambda session: session.per_second.get("bytes_sent", 0.0),
    "fill": lambda session: session.fill or 0.0,
    "blocked": lambda session: session.blocked or 0.0,
    "lost": _lost,
    "source": lambda session: session.source,
    "pid": lambda session: session.pid,
    "NAK/s": lambda session: session.uplink.per_second.get("naks_rcved", 0.0) if session.uplink else 0.0,
}
