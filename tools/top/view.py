"""The view of the screen, and what a key changes in it. Pure: from a view, a key and the lines to the next view."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipcbus_tools.top.panes import lag, latency

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipcbus.stats import SessionStats, SourceStats
    from ipcbus_tools.top.rows import Key, Row


def _or_minus_one(value: float | None) -> float:
    return -1 if value is None else value


SORTS: Final[dict[str, tuple[str, Callable[[SessionStats], float | str]]]] = {
    "msg/s": ("M", lambda session: session.per_second.get("lbm_msgs_sent", 0.0)),
    "MiB/s": ("B", lambda session: session.per_second.get("bytes_sent", 0.0)),
    "p99": ("L", lambda session: _or_minus_one(latency(session, "p99"))),
    "lag": ("G", lambda session: _or_minus_one(lag(session))),
    "fill%": ("F", lambda session: session.fill or 0.0),
    "blkd%": ("W", lambda session: session.blocked or 0.0),
    "lost": ("X", lambda session: sum(slot.counters.get("lost", 0) for slot in session.receivers)),
    "session": ("N", lambda session: session.source),
    "topic": ("T", lambda session: min((source.topic for source in session.sources), default="")),
    "pid": ("P", lambda session: session.pid),
    "rcv": ("R", lambda session: session.counters.get("num_clients", 0)),
    "NAK/s": ("K", lambda session: session.uplink.per_second.get("naks_rcved", 0.0) if session.uplink else 0.0),
}
"""Titles of the columns that sessions can be sorted by, with the key and the measure of each; `s` or `>` selects the
next one."""

_ASCENDING: Final = ("session", "topic", "pid")
"""Columns that are sorted from the lowest value up."""

SESSIONS: Final = "sessions"
TOPICS: Final = "topics"
DETAILS: Final = "details"
MESSAGES: Final = "messages"
DOMAINS: Final = "domains"
HELP: Final = "help"

KEYS: Final = (
    ("up down", "choose a line; PgUp, PgDn, Home, End go further; a click or scrolling does so too"),
    ("left right", "scroll the receivers of the chosen session"),
    ("Enter", "show messages of the chosen topic live; for a session with several topics, its topics"),
    ("d", "show all counters of the chosen session, or go back"),
    ("t", "show the topics of all sessions, or the sessions again"),
    ("D", "choose another domain"),
    ("f, /", "show only lines whose source, topic, command, user, pid or context contains a text"),
    ("> <", "sort by the next column, or the previous one; s does as >"),
    *(
        (" ".join(SORTS[title][0] for title in titles), f"sort by {', '.join(titles)}")
        for titles in (list(SORTS)[:6], list(SORTS)[6:])
    ),
    ("S, I", "reverse the order, as the same sort key again does; a click on a title sorts too"),
    ("p, Space", "pause, or continue"),
    ("[ ]", "pause, and step back or forward through the last snapshots"),
    ("m", "leave the mouse to the terminal, to mark and copy text, or use it again"),
    ("?", "show this help"),
    ("Esc", "go back; on the first page, remove the filter"),
    ("q", "quit"),
)
"""Keys and what they do, for the help."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic whose messages are shown.

    Attributes:
        context_id: the context that sends.
        source: source string of the session.
        number: the session's number of the topic.
        name: the topic.
    """

    context_id: int
    source: str
    number: int
    name: str


@dataclass(frozen=True, slots=True)
class View:
    """What the screen shows.

    Attributes:
        page: `sessions`, `topics`, `details`, `messages`, `domains` or `help`.
        chosen: key of the chosen session; None for the first.
        topic: number of the chosen line on the page of topics.
        receivers: lines by which the receivers are scrolled.
        scroll: lines by which the details are scrolled.
        sort: column of the order, one of `SORTS`.
        reverse: whether the order is reversed.
        filter: text that lines have to contain.
        typing: whether keys go into the filter.
        paused: whether the screen stands still.
        back: number of snapshots between the one that is shown and the pause.
        only: key of the only session on the page of topics; None for all sessions.
        message_topic: the topic on the page of messages.
        before: the page before the page of messages.
        line: number of the chosen line on the page of domains.
        switch: the domain to change to; empty for no change.
        mouse: whether the program gets clicks.
        ended: whether to quit.
    """

    page: str = SESSIONS
    chosen: Key | None = None
    topic: int = 0
    receivers: int = 0
    scroll: int = 0
    sort: str = "msg/s"
    reverse: bool = False
    filter: str = ""
    typing: bool = False
    paused: bool = False
    back: int = 0
    only: Key | None = None
    message_topic: Topic | None = None
    before: str = SESSIONS
    line: int = 0
    switch: str = ""
    mouse: bool = True
    ended: bool = False


def press(view: View, key: str, rows: Sequence[Row], page_rows: int = 10, domains: Sequence[str] = ()) -> View:
    """Returns the view after a key.

    Args:
        view: the view before.
        key: a character, or the name of a key: `up`, `down`, `left`, `right`, `pageup`, `pagedown`, `home`, `end`,
            `enter`, `escape`, `backspace`.
        rows: the lines of the table, from `shown(rows, view)`.
        page_rows: number of lines of a page.
        domains: the lines of the page of domains.
    """
    if view.typing:
        return _typed(view, key)
    if key in _STEPS:
        return _moved(view, _STEPS[key](page_rows), rows, len(domains))
    if view.page == TOPICS and key == "d":
        found = topics(rows, view)
        chosen = found[min(view.topic, len(found) - 1)][0].key if found else view.chosen
        return dataclasses.replace(view, page=DETAILS, chosen=chosen, scroll=0)
    if key == "enter":
        return _entered(view, rows, domains)
    change = _CHANGES.get(key)
    return change(view) if change else view


def shown(rows: Sequence[Row], view: View) -> list[Row]:
    """Returns the lines that match the filter, in the order of the view; those without numbers come last."""
    found = [row for row in rows if not view.filter or view.filter.casefold() in filter_text(row)]
    _, measure = SORTS[view.sort]
    ascending = view.sort in _ASCENDING
    known = [row for row in found if row.session is not None and row.session.counters]
    unknown = [row for row in found if row.session is None or not row.session.counters]
    known.sort(key=lambda row: row.session.source if row.session else "")
    known.sort(key=lambda row: measure(row.session), reverse=ascending == view.reverse)  # type: ignore[arg-type]
    return known + unknown


def position(rows: Sequence[Row], view: View) -> int:
    """Returns the index of the chosen line among those shown; 0 if it is gone or no line was chosen."""
    return next((i for i, row in enumerate(rows) if row.key == view.chosen), 0)


def topics(rows: Sequence[Row], view: View) -> list[tuple[Row, SourceStats]]:
    """Returns the topics of the sessions, by messages a second.

    A filter selects the topics that contain its text; if only the session contains it, all topics of the session.
    """
    found = [
        (row, source)
        for row in rows
        if row.session is not None and view.only in (None, row.key)
        for source in fitting(row.session, view.filter)
        if view.only or view.filter.casefold() in f"{source.topic.casefold()} {_of_session(row)}"
    ]
    found.sort(key=lambda pair: pair[1].topic)
    found.sort(key=lambda pair: pair[1].per_second.get("lbm_msgs_sent", -1.0), reverse=not view.reverse)
    return found


def fitting(session: SessionStats, wanted: str) -> tuple[SourceStats, ...]:
    """Returns the topics of a session that contain a text, or all topics if none does."""
    text = wanted.casefold()
    return tuple(source for source in session.sources if text in source.topic.casefold()) or session.sources


def filter_text(row: Row) -> str:
    """Returns the text of a row that the filter searches."""
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
"""Steps down and to the right for each key, from the lines of a page."""


def sorted_by(view: View, title: str) -> View:
    """Returns the view sorted by a column; reversed if it was sorted by that column already."""
    if title not in SORTS:
        return view
    return dataclasses.replace(view, sort=title, reverse=not view.reverse if view.sort == title else False)


def _entered(view: View, rows: Sequence[Row], domains: Sequence[str]) -> View:
    if view.page == DOMAINS:
        place = min(view.line, len(domains) - 1)
        return dataclasses.replace(view, page=SESSIONS, switch=domains[place] if domains else "")
    if view.page == TOPICS:
        found = topics(rows, view)
        return _show_messages(view, *found[min(view.topic, len(found) - 1)]) if found else view
    if view.page != SESSIONS:
        return _back(view)
    row = rows[position(rows, view)] if rows else None
    if row is None or row.session is None or not row.session.sources:
        return view
    sources = fitting(row.session, view.filter)
    if len(sources) == 1:
        return _show_messages(view, row, sources[0])
    return dataclasses.replace(view, page=TOPICS, chosen=row.key, only=row.key, topic=0)


def _show_messages(view: View, row: Row, source: SourceStats) -> View:
    session = row.session
    if session is None:
        return view
    message_topic = Topic(session.context_id, session.source, source.number, source.topic)
    return dataclasses.replace(view, page=MESSAGES, before=view.page, chosen=row.key, message_topic=message_topic)


def _moved(view: View, step: tuple[int, int], rows: Sequence[Row], domains: int) -> View:
    down, right = step
    if view.page == DOMAINS:
        return dataclasses.replace(view, line=min(max(0, view.line + down), max(0, domains - 1)))
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


def _sorted(step: int) -> Callable[[View], View]:
    def change(view: View) -> View:
        titles = list(SORTS)
        return dataclasses.replace(view, sort=titles[(titles.index(view.sort) + step) % len(titles)], reverse=False)

    return change


def _inverted(view: View) -> View:
    return dataclasses.replace(view, reverse=not view.reverse)


def _page(name: str) -> Callable[[View], View]:
    def change(view: View) -> View:
        return dataclasses.replace(view, page=SESSIONS if view.page == name else name, scroll=0, only=None)

    return change


def _back(view: View) -> View:
    if view.page == MESSAGES:
        return dataclasses.replace(view, page=view.before, message_topic=None)
    if view.page != SESSIONS:
        return dataclasses.replace(view, page=SESSIONS, scroll=0, only=None)
    return dataclasses.replace(view, filter="")


def _filtering(view: View) -> View:
    return dataclasses.replace(view, typing=True, page=TOPICS if view.page == TOPICS else SESSIONS)


def _paused(view: View) -> View:
    return dataclasses.replace(view, paused=not view.paused, back=0)


_CHANGES: dict[str, Callable[[View], View]] = {
    "q": lambda view: dataclasses.replace(view, ended=True),
    "s": _sorted(1),
    ">": _sorted(1),
    "<": _sorted(-1),
    "S": _inverted,
    "I": _inverted,
    **{key: functools.partial(sorted_by, title=title) for title, (key, _) in SORTS.items()},
    "D": _page(DOMAINS),
    "m": lambda view: dataclasses.replace(view, mouse=not view.mouse),
    "f": _filtering,
    "/": _filtering,
    "t": _page(TOPICS),
    "d": _page(DETAILS),
    "?": _page(HELP),
    "h": _page(HELP),
    "p": _paused,
    "[": lambda view: dataclasses.replace(view, paused=True, back=view.back + 1),
    "]": lambda view: dataclasses.replace(view, paused=True, back=max(0, view.back - 1)),
    " ": _paused,
    "escape": _back,
}
