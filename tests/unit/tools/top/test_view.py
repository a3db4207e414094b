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
    assert view.sort == "msg/s"
    assert pressed("<").sort == list(SORTS)[-1]
    assert pressed("S").reverse
    assert sources(View(sort="session")) == sorted((SLOW, FAST, SMX, SPARSE))
    assert sources(View(sort="blkd%"))[0] == SLOW
    assert sources(View(sort="fill%"))[0] == SLOW


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


def test_a_column_has_a_key_which_pressed_again_inverts() -> None:
    assert len({key for key, _ in SORTS.values()}) == len(SORTS)
    for title, (key, _) in SORTS.items():
        view = pressed(key)
        assert (view.sort, view.reverse) == (title, title == "msg/s")
        again = pressed(key, view=view)
        assert (again.sort, again.reverse) == (title, title != "msg/s")
        sources(view)
    assert pressed("I").reverse
    assert pressed("S").reverse
    order = [row.session for row in shown(ROWS, View(sort="p99")) if row.session]
    late = [
        max((slot.recent.percentile(0.99) or 0 for slot in each.receivers if slot.recent), default=-1) for each in order
    ]
    assert late == sorted(late, reverse=True)


def test_from_a_topic_to_its_session() -> None:
    pairs = views.topics(shown(ROWS, View()), View())
    assert len(pairs) == 4
    view = pressed("t", "end", "d")
    assert (view.page, view.chosen) == (views.DETAILS, pairs[-1][0].key)


def test_enter_looks_at_messages_and_escape_returns() -> None:
    session = next(row.session for row in shown(ROWS, View()) if row.session)
    view = pressed("enter")
    assert view.page == views.MESSAGES
    topic = session.sources[0]
    assert view.message_topic == views.Topic(session.context_id, session.source, topic.number, topic.topic)
    back = pressed("escape", view=view)
    assert (back.page, back.message_topic) == (views.SESSIONS, None)
    assert pressed("escape", view=pressed("t", "enter")).page == views.TOPICS
    assert pressed("?", "enter").page == views.SESSIONS


def test_enter_on_a_session_of_several_topics_asks_which() -> None:
    found = changed(frame().found, session=two_topics)
    rows = frame(found).rows
    view = press(View(), "enter", shown(rows, View()))
    assert view.page == views.TOPICS
    pairs = views.topics(shown(rows, view), view)
    assert {source.topic for _, source in pairs} == {source.topic for source in pairs[0][0].session.sources}  # type: ignore[union-attr]
    assert len(pairs) == 2
    chosen = press(press(view, "down", rows), "enter", rows)
    assert chosen.message_topic is not None
    assert chosen.message_topic.name == pairs[1][1].topic
    assert press(view, "escape", rows).only is None
    fitting = View(filter="second")
    assert press(fitting, "enter", shown(rows, fitting)).page == views.MESSAGES


def test_another_domain() -> None:
    domains = ("a", "b", "c")
    view = press(press(View(), "D", ROWS), "down", ROWS, domains=domains)
    assert press(view, "enter", ROWS, domains=domains).switch == "b"
    assert press(press(view, "end", ROWS, domains=domains), "enter", ROWS, domains=domains).switch == "c"
    assert press(view, "escape", ROWS, domains=domains).page == views.SESSIONS
    assert press(View(page=views.DOMAINS), "enter", ROWS).switch == ""


def two_topics(session: SessionStats) -> SessionStats:
    (first, *_) = session.sources
    second = dataclasses.replace(first, topic=f"{first.topic}.second", number=first.number + 1)
    return dataclasses.replace(session, sources=(first, second))


def test_a_filter_that_fits_a_topic_leaves_the_others_of_its_session_out() -> None:
    rows = shown(frame(changed(frame().found, session=two_topics)).rows, View(filter="orders.second"))
    view = View(filter="ORDERS.second")
    assert [source.topic for _, source in views.topics(rows, view)] == ["orders.second"]
    # The command line has the name too, and that does not bring the others back.
    named = changed(
        frame().found, session=lambda each: dataclasses.replace(two_topics(each), command="pub orders.second")
    )
    everywhere = frame(named).rows
    assert [s.topic for row, s in views.topics(everywhere, view) if row.session and row.session.source == SMX] == [
        "orders.second"
    ]


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
    wanted = {"S", "I", "<", ">", "f", "/", "t", "d", "D", "p", "m", "?", "q", "Enter", "Esc", "Space"}
    assert wanted | {key for key, _ in SORTS.values()} <= set(named)
