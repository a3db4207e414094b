"""The screen of recorded snapshots: at any size, without colour, with everything that can be wrong."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from ipcbus.stats import COUNTERS, DomainSnapshot
from ipcbus.stats.peek import Peeked
from ipcbus_tools.top import figures
from ipcbus_tools.top import view as views
from ipcbus_tools.top.message_view import Messages
from ipcbus_tools.top.screen import Size, clicked, report
from ipcbus_tools.top.view import KEYS, View
from tests.kit.cases import each_of
from tests.unit.tools.top.recorded import EVERYTHING, FAST, HOST, SLOW, TRADING, changed, frame, lines, text

PAGES = (views.SESSIONS, views.TOPICS, views.DETAILS, views.HELP, views.DOMAINS, views.MESSAGES)
SLOW_CHOSEN = View(chosen=next(row.key for row in frame().rows if row.session and row.session.source == SLOW))


@each_of("page", PAGES)
@each_of("size", [(80, 24), (200, 60), (40, 10), (30, 8), (500, 9)])
def test_fills_the_screen_exactly(page: str, size: tuple[int, int]) -> None:
    for unicode in (True, False):
        found = lines(frame(), View(page=page), *size, unicode=unicode)
        assert len(found) == size[1]
        assert max(map(cell_len, found)) <= size[0]
        assert unicode or "".join(found).isascii()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 220), st.integers(1, 70), st.sampled_from(PAGES), st.integers(0, 500), st.booleans())
def test_any_size(width: int, height: int, page: str, scroll: int, typing: bool) -> None:
    view = View(page=page, scroll=scroll, topic=scroll, receivers=scroll, typing=typing, filter="a" * (scroll % 3))
    found = lines(frame(), view, width, height)
    assert len(found) <= height
    assert max(map(cell_len, found)) <= width


def test_on_80_columns() -> None:
    found = text(frame(), SLOW_CHOSEN)
    for wanted in ("domain trading", "msg/s", "blkd%", "held up by pid", "quotes.MSFT", "q quit", "p99"):
        assert wanted in found
    assert re.search(rf"> {SLOW} +blocked", found)
    assert re.search(r"^! +\d+ +reads", found, re.MULTILINE)  # who holds it up, first of the receivers


def test_a_wide_screen_has_everything() -> None:
    found = text(frame(), SLOW_CHOSEN, 220, 40)
    for wanted in (
        "command",
        "user",
        "topics",
        "dgram/s",
        "msg/dg",
        "last minute",
        "p99.9",
        "layer",
    ):
        assert wanted in found


def with_counters(**counts: int) -> DomainSnapshot:
    """The domain with these counters in each context."""
    return changed(
        TRADING, context=lambda context: dataclasses.replace(context, counters={**context.counters, **counts})
    )


def test_recoveries_kept_bytes_and_requests_are_shown_while_there_are_some() -> None:
    busy = with_counters(retained_bytes=3 << 20, recoveries_running=2, retransmissions_missing=3400, reqs_pending=7)
    contexts = sum(context.alive for context in busy.contexts)
    found = text(frame(busy), SLOW_CHOSEN, 260, 40)
    head = found.split("\n")[2]
    assert f"recovering {2 * contexts}, missing {figures.whole(3400 * contexts)}" in head
    assert f"kept {figures.size(contexts * 3 << 20)}" in head
    assert f"requests {7 * contexts}" in head
    sessions, receivers = (next(line for line in found.split("\n") if mark in line) for mark in ("dgram/s", "lag msg"))
    assert re.search(r"lost +kept +reqs +last minute", sessions)
    assert re.search(r"lost +recov +missing +p50", receivers)
    assert re.search(rf"{SLOW} .* {figures.size(3 << 20)} +7 ", found)
    assert re.search(rf"^! .* 2 +{figures.whole(3400)} ", found, re.MULTILINE)
    narrow = text(frame(busy), SLOW_CHOSEN, 100, 24)
    assert "recovering" in narrow
    for name in ("recov", "missing", "kept", "reqs", "requests"):
        assert name not in text(frame(), SLOW_CHOSEN, 260, 40)


def test_guaranteed_messages_are_shown_while_some_are_pending() -> None:
    busy = with_counters(gmd_pending=12, gmd_oldest_ns=90_000_000_000, gmd_area_bytes=5 << 20, gmd_failures=3)
    contexts = sum(context.alive for context in busy.contexts)
    found = text(frame(busy), SLOW_CHOSEN, 260, 40)
    head = found.split("\n")[2]
    assert f"pending {12 * contexts}  failed {3 * contexts}" in head
    assert re.search(r"lost +pend +oldest +area +failed +last minute", found)
    assert re.search(rf"{SLOW} .* 12 +{figures.time(90e9)} +{figures.size(5 << 20)} +3 ", found)
    for name in ("pend", "oldest", "failed"):
        assert name not in text(frame(), SLOW_CHOSEN, 260, 40)


def test_sparklines() -> None:
    assert "▁▆█" in text(frame(trail=(0.0, 5.0, 10.0)), width=200)


def test_each_number_is_where_its_title_is() -> None:
    session = TRADING.session(FAST)
    assert session is not None
    head, line = (next(line for line in lines(frame(), width=220) if mark in line) for mark in ("msg/dg", f"{FAST} "))
    end = head.index("dgram/s") + len("dgram/s")
    assert line[:end].split()[-1] == f"{session.per_second['msgs_sent']:.0f}"


def test_nobody_there() -> None:
    empty = DomainSnapshot("empty", TRADING.taken_ns, TRADING.read_ns, ())
    assert "no session in this domain" in text(frame(empty))
    for page in PAGES:
        assert len(lines(frame(empty), View(page=page))) == 24


def test_nothing_fits_the_filter() -> None:
    assert "no session fits the filter" in text(frame(), View(filter="nonsense"))
    assert "no topic fits the filter" in text(frame(), View(filter="nonsense", page=views.TOPICS))


def test_not_readable() -> None:
    hidden = changed(
        TRADING,
        session=lambda each: dataclasses.replace(
            each, counters={}, per_second={}, receivers=(), reason="ipcbus.d.1.r0 belongs to user bob"
        ),
    )
    found = text(frame(hidden), width=120)
    assert re.search(rf"{FAST} +not readable +pid \d+ .ann. +ipcbus.d.1.r0 belongs to user bob", found)
    assert "not readable 4" in found
    assert "belongs to user bob" in text(frame(hidden), View(page=views.DETAILS), width=120)


def test_dead() -> None:
    dead = changed(
        TRADING,
        context=lambda each: dataclasses.replace(each, alive=False),
        session=lambda each: dataclasses.replace(each, alive=False),
    )
    found = text(frame(dead))
    assert len(re.findall(r"LBT-\S+ +dead ", found)) == 4
    assert "dead 4" in found


def test_lost_and_evicted_are_seen() -> None:
    losing = changed(
        TRADING,
        session=lambda each: dataclasses.replace(
            each,
            counters={**each.counters, "receivers_evicted": 1},
            receivers=tuple(
                dataclasses.replace(slot, counters={**slot.counters, "lost": 7}, per_second={"lost": 2.0})
                for slot in each.receivers
            ),
        ),
    )
    readers = sum(len(session.receivers) for session in losing.sessions)
    found = text(dataclasses.replace(frame(losing), lost=7))
    assert f"lost 7 ({2 * readers}/s)" in found
    assert "evicted 4" in found


def test_stopped() -> None:
    stopped = changed(
        TRADING,
        session=lambda each: dataclasses.replace(
            each, stopped=True, receivers=tuple(dataclasses.replace(slot, stopped=True) for slot in each.receivers)
        ),
    )
    found = text(frame(stopped))
    assert len(re.findall(r"LBT-\S+ +stopped ", found)) == 4
    assert re.search(r"^! +\d+ stopped", text(frame(stopped), SLOW_CHOSEN), re.MULTILINE)


def test_what_a_recording_may_say() -> None:
    odd = dataclasses.replace(TRADING, taken_ns=(1 << 64) - 1)
    found = text(dataclasses.replace(frame(odd), host=None, title="replay of log.jsonl, look 3"))
    assert "replay of log.jsonl, look 3" in found
    assert "20" in text(dataclasses.replace(frame(), host=None)).split("\n")[0]  # a date


def test_other_domains_are_named() -> None:
    empty = DomainSnapshot("empty", TRADING.taken_ns, TRADING.read_ns, ())
    assert "other domains (--domain): trading" in text(dataclasses.replace(frame(empty), others=("trading",)))


def test_what_the_dead_left_is_said() -> None:
    empty = DomainSnapshot("empty", TRADING.taken_ns, TRADING.read_ns, ())
    assert "44 dead contexts" in text(dataclasses.replace(frame(empty), hidden_dead=44))


def test_who_could_not_join() -> None:
    alone = changed(TRADING, session=lambda each: dataclasses.replace(each, receivers=()))
    found = text(frame(alone), SLOW_CHOSEN, width=120)
    assert re.search(r"absent +not joined", found)
    full = changed(TRADING, session=lambda each: dataclasses.replace(each, receivers=(), slots_max=0))
    assert "all 0 slots are in use" in text(frame(full), SLOW_CHOSEN, width=120)
    other = changed(TRADING, session=lambda each: dataclasses.replace(each, receivers=(), uid=7, user="bob"))
    assert "only bob may read" in text(frame(other), SLOW_CHOSEN, width=120)


def test_names_of_others_do_nothing_to_the_terminal() -> None:
    evil = "\x1b[2J[red]\n\u202e"
    found = changed(
        TRADING,
        context=lambda each: dataclasses.replace(each, name=evil),
        session=lambda each: dataclasses.replace(
            each,
            command=evil,
            user=evil,
            context_name=evil,
            sources=tuple(dataclasses.replace(source, topic=evil) for source in each.sources),
            receivers=tuple(
                dataclasses.replace(slot, command=evil, user=evil, context_name=evil) for slot in each.receivers
            ),
        ),
    )
    for page in PAGES:
        shown = lines(frame(found), View(page=page, filter=evil, typing=True), 220, 60)
        assert len(shown) == 60
        assert not set("\x1b\u202e") & set("".join(shown))
    assert "[red]" in text(frame(found), View(page=views.TOPICS), 220)


def test_details_have_every_counter_and_its_meaning() -> None:
    found = text(frame(), View(page=views.DETAILS, chosen=SLOW_CHOSEN.chosen), 200, 400)
    for counter in COUNTERS:
        if counter.of in ("session", "source", "slot"):
            assert re.search(rf"{counter.name} .*{re.escape(counter.meaning)}", found)
    assert "held up by" in found
    assert "p99.9" in found


def test_details_scroll_to_their_end_and_no_further() -> None:
    found = text(frame(), View(page=views.DETAILS, chosen=SLOW_CHOSEN.chosen, scroll=10_000))
    assert "send_would_block" in found.split("\n")[-2]


def test_help_has_every_key() -> None:
    found = text(frame(), View(page=views.HELP), 100, 40)
    assert all(what in found for _, what in KEYS)


def test_paused_and_typing_are_said() -> None:
    assert "PAUSED" in text(frame(), View(paused=True))
    assert "filter: aapl_" in text(frame(), View(filter="aapl", typing=True))
    assert "'aapl'" in text(frame(), View(filter="aapl"))


def test_many_sessions_scroll_to_the_chosen_one() -> None:
    (owner,) = (context for context in TRADING.contexts if context.sessions)
    many = tuple(dataclasses.replace(owner.sessions[0], source=f"LBT-IPC:{i:08x}:20001") for i in range(300))
    found = dataclasses.replace(TRADING, contexts=(dataclasses.replace(owner, sessions=many),))
    last = View(chosen=("session", many[-1].source, owner.context_id), sort="session")
    for height in (24, 10, 60):
        assert f"> {many[-1].source}" in text(frame(found), last, 80, height)


def test_the_report_has_all_of_it() -> None:
    found = [line.plain for line in report(frame(), Size(200, 10)).renderables]  # type: ignore[union-attr]
    joined = "\n".join(found)
    for session in TRADING.sessions:
        assert joined.count(session.source) == 3  # its line, the title above its receivers, its topic
    assert sum("python traffic.py s" in line for line in found) >= 6
    assert ">" not in joined


@each_of("width", [80, 100, 120, 160, 200])
def test_a_session_row_has_throughput_latency_and_lag_and_its_topic_written_out(width: int) -> None:
    long = changed(
        TRADING,
        session=lambda each: dataclasses.replace(
            each,
            sources=tuple(dataclasses.replace(source, topic=f"{source.topic}.NASDAQ") for source in each.sources),
        ),
    )
    shown = lines(frame(long), width=width)
    (head,) = (line for line in shown if line.startswith("  session "))
    assert {"topic", "msg/s", "p99", "lag"} <= set(head.split())
    if width <= 120:
        assert "command" not in head
    (row,) = (line for line in shown if FAST in line and "NASDAQ" in line and "──" not in line)
    assert "quotes.AAPL.NASDAQ" in row if width >= 100 else "quotes.AAPL.NA" in row
    session = long.session(FAST)
    assert session is not None
    found = [slot.recent.percentiles() for slot in session.receivers if slot.recent is not None]
    worst = max(each.p99 for each in found if each is not None)
    end = head.index("p99") + len("p99")
    assert row[:end].split()[-1] == figures.time(worst)


@pytest.mark.parametrize(("size", "charts"), [((80, 24), 0), ((120, 40), 2), ((200, 50), 3)])
def test_free_lines_hold_charts(size: tuple[int, int], charts: int) -> None:
    shown = lines(frame(trail=(0.0, 5.0, 10.0)), SLOW_CHOSEN, *size)
    titles = [line for line in shown if "── the last" in line]
    assert len(titles) >= charts
    if charts:
        assert SLOW in titles[0]  # the chosen one first
        assert "msg/s 10, max 10" in "\n".join(shown)
        assert "p99 10ns, max 10ns" in "\n".join(shown)
        assert "lag 9.8KiB, max 9.8KiB" in "\n".join(shown)
        assert sum(not line.strip() for line in shown) < 6  # the height is used
    assert "".join(lines(frame(), SLOW_CHOSEN, *size, unicode=False)).isascii()


def test_processors_have_names() -> None:
    assert "CPU0 12% CPU1 100%" in text(frame())
    many = dataclasses.replace(HOST, processors=(0.0,) * 15 + (80.0,))
    assert "16 CPUs 5%, busiest 80%" in text(dataclasses.replace(frame(), host=many))


def test_a_click_on_a_title_sorts_and_one_on_a_line_chooses() -> None:
    shown, size = frame(), Size(120, 40)
    (head,) = (line for line in lines(shown, width=120, height=40) if line.startswith("  session "))
    view = clicked(shown, EVERYTHING, size, head.index("p99"), 3)
    assert (view.sort, view.reverse) == ("p99", False)
    assert clicked(shown, view, size, head.index("p99") + 2, 3).reverse
    assert clicked(shown, EVERYTHING, size, head.index("state"), 3) == EVERYTHING  # nobody sorts by that
    order = views.shown(shown.rows, EVERYTHING)
    for place in range(4):
        assert clicked(shown, EVERYTHING, size, 30, 4 + place).chosen == order[place].key
    assert clicked(shown, EVERYTHING, size, 30, 20) == EVERYTHING
    assert clicked(shown, View(page=views.TOPICS), size, 5, 6).topic == 2
    domains = dataclasses.replace(shown, domains=("a", "b"))
    assert clicked(domains, View(page=views.DOMAINS), size, 5, 5).line == 1
    for page in PAGES:
        for y in range(-1, 41):
            clicked(frame(DomainSnapshot("e", 0, 0, ())), View(page=page), size, 119, y)


def test_domains_and_messages_are_pages() -> None:
    found = text(dataclasses.replace(frame(), domains=("risk", "trading")), View(page=views.DOMAINS, line=1))
    assert re.search(r"^  risk\s*$", found, re.MULTILINE)
    assert "> trading  this one" in found
    topic = views.Topic(1, SLOW, 0, "quotes.MSFT")
    latest = tuple(
        Peeked(i, 1, 4, b"abc\x1b" if i else b"\x00" * 600, fragment=False, headers=False, request=i == 7)
        for i in range(30)
    )
    shown = dataclasses.replace(frame(), messages=Messages(topic, latest, 30, part=True))
    found = text(shown, View(page=views.MESSAGES, message_topic=topic))
    assert "without a receiver" in found
    assert "only a part of all messages" in found
    assert "abc\\x1b" in found.split("\n")[-2]
    assert " 29 " in found.split("\n")[-2]
    refused = dataclasses.replace(frame(), messages=Messages(topic, reason="belongs to bob"))
    assert "belongs to bob" in text(refused, View(page=views.MESSAGES))
