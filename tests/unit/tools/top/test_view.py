from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from ipcbus_tools.top import view as views
from ipcbus_tools.top.view import KEYS, SORTS, View, press, shown
from tests.unit.tools.top.recorded import EVERYTHING, FAST, SLOW, SMX, SPARSE, changed, frame

if TYPE_CHECKING:
    from ipcbus.stats import SessionStats

ROWS = frame().rows


def sources(view: View) -> list[str]:
    return [row.session.source for row in shown(ROWS, view) if row.session]


def pressed(*keys: str, view: View = EVERYTHING) -> View:
    for key in keys:
        view = press(view, key, shown(ROWS, view), page_rows=2)
    return view


def chosen(view: View) -> str:
    rows = shown(ROWS, view)
    session = rows[views.position(rows, view)].session
    assert session is not None
    return session.source


def test_busiest_first_and_the_other_way_round() -> None:
    order = sources(View())
    rates = {row.session.source: row.session.per_second["lbm_msgs_sent"] for row in ROWS if row.session}
    assert order == sorted(rates, key=lambda source: (-rates[source], source))
    assert sources(View(reverse=True))[-1] == order[0]


def test_sorting_goes_round() -> None:
    view = View()
    found = []
    for _ in SORTS:
        found.append(view.sort)
        view = pressed("s", view=view)
    assert found == list(SORTS)
    assert view.sort == SORTS[0]
    assert pressed("S").reverse
    assert sources(View(sort="source")) == sorted((SLOW, FAST, SMX, SPARSE))
    assert sources(View(sort="blocked"))[0] == SLOW
    assert sources(View(sort="fill"))[0] == SLOW


def test_arrows_choose() -> None:
    order = sources(View())
    assert chosen(pressed()) == order[0]
    assert chosen(pressed("down")) == order[1]
    assert chosen(pressed("down", "down", "up")) == order[1]
    assert chosen(pressed("up")) == order[0]
    assert chosen(pressed("pagedown")) == order[2]
    assert chosen(pressed("end")) == order[3]
    assert chosen(pressed("end", "down")) == order[3]
    assert chosen(pressed("end", "home")) == order[0]


def test_the_chosen_session_stays_chosen_in_another_order() -> None:
    view = pressed("down")
    assert chosen(dataclasses.replace(view, reverse=True)) == chosen(view)


def test_a_session_that_went_leaves_the_first_chosen() -> None:
    view = View(chosen=("session", "LBT-IPC:0:1", 1))
    assert chosen(view) == sources(view)[0]


def test_without_lines_every_key_is_harmless() -> None:
    for key in ("up", "down", "left", "right", "pageup", "end", "d", "enter", "t", "?", "f", "nonsense", ""):
        for page in (views.SESSIONS, views.TOPICS, views.DETAILS, views.HELP):
            press(View(page=page), key, [])


def test_filter() -> None:
    view = pressed("f", *"SMX")
    assert view.typing
    assert sources(view) == [SMX]
    assert pressed("backspace", "backspace", "backspace", view=view).filter == ""
    kept = pressed("enter", "q", view=dataclasses.replace(view, typing=True))
    assert (kept.filter, kept.typing, kept.ended) == ("SMX", False, True)
    assert pressed("escape", view=view).filter == ""
    assert pressed("enter", "escape", view=view).filter == ""
    assert sources(View(filter=" aapl  quotes")) == []
    assert SPARSE in sources(View(filter="telemetry"))  # by topic
    assert sources(View(filter="feed.py")) == sources(View(filter="nobody has this"))  # no such command
    assert sources(View(filter="TRAFFIC.PY SUB RISK")) == [each for each in sources(View()) if each in (FAST, SMX)]


def test_keys_that_are_typed_do_nothing_else() -> None:
    view = pressed("f", "q", "p", "?")
    assert (view.filter, view.ended, view.paused, view.page) == ("qp?", False, False, views.SESSIONS)


@pytest.mark.parametrize(("key", "page"), [("t", views.TOPICS), ("d", views.DETAILS), ("?", views.HELP)])
def test_pages_and_the_way_back(key: str, page: str) -> None:
    assert pressed(key).page == page
    assert pressed(key, key).page == views.SESSIONS
    assert pressed(key, "escape").page == views.SESSIONS


def test_pause_and_quit() -> None:
    assert pressed("p").paused
    assert not pressed("p", " ").paused
    assert pressed("q").ended


def test_details_scroll() -> None:
    assert pressed("d", "down", "down").scroll == 2
    assert pressed("d", "pagedown", "up").scroll == 1
    assert pressed("d", "up").scroll == 0
    assert pressed("d", "down", "escape").scroll == 0


def test_receivers_scroll_as_far_as_there_are_any() -> None:
    view = View(chosen=next(row.key for row in ROWS if row.session and row.session.source == SLOW))
    assert pressed("right", view=view).receivers == 1
    assert pressed("right", "right", "right", view=view).receivers == 1
    assert pressed("right", "left", "left", view=view).receivers == 0
    assert pressed("right", "down", view=view).receivers == 0


def test_from_a_topic_to_its_session() -> None:
    pairs = views.topics(shown(ROWS, View()), View())
    assert len(pairs) == 4
    view = pressed("t", "end", "enter")
    assert (view.page, view.chosen) == (views.DETAILS, pairs[-1][0].key)


def test_topics_of_a_session_that_fits_are_all_shown() -> None:
    rows = shown(ROWS, View())
    assert [source.topic for _, source in views.topics(rows, View(filter="orders"))] == ["orders"]
    assert [source.topic for _, source in views.topics(rows, View(filter=SMX))] == ["orders"]
    assert len(views.topics(rows, View(filter="python"))) == 4


def test_lines_without_numbers_come_last() -> None:
    def hide(session: SessionStats) -> SessionStats:
        if session.source != SLOW:
            return session
        return dataclasses.replace(session, counters={}, per_second={}, reason="refused")

    hidden = changed(frame().found, session=hide)
    for sort in SORTS:
        for reverse in (False, True):
            rows = shown(frame(hidden).rows, View(sort=sort, reverse=reverse))
            assert rows[-1].state == "not readable"


def test_the_help_names_every_key() -> None:
    named = " ".join(keys for keys, _ in KEYS).replace(",", " ").split()
    assert {"s", "S", "f", "t", "d", "p", "?", "q", "Enter", "Esc", "Space"} <= set(named)
