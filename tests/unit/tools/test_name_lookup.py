from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from ipcbus.stats.snapshot_model import NO_COUNTERS
from ipcbus_tools.common import Failure
from ipcbus_tools.name_lookup import full_name, pick_session, session_again, state, wait_for_topic
from tests.kit.cases import each_of
from tests.unit.tools.top.recorded import FAST, SLOW, SMX, TRADING, changed

if TYPE_CHECKING:
    from ipcbus.stats import SessionStats

NOBODY = dataclasses.replace(TRADING, contexts=())


def named(topic: str) -> SessionStats:
    """A session that carries this topic."""
    session = next(TRADING.sessions)
    return dataclasses.replace(session, sources=(dataclasses.replace(session.sources[0], topic=topic),))


@each_of(
    ("text", "source"),
    [(FAST, FAST), ("orders", SMX), ("smx", SMX), (SLOW.split(":")[1].upper(), SLOW), (":20002", SLOW)],
)
def test_session_by_name_topic_or_part(text: str, source: str) -> None:
    assert pick_session(TRADING, text).source == source


def test_topic_goes_before_a_part_of_a_source_string() -> None:
    number = SLOW.rpartition(":")[2]

    def renamed(session: SessionStats) -> SessionStats:
        return session if session.source != FAST else dataclasses.replace(session, sources=named(number).sources)

    assert pick_session(changed(TRADING, session=renamed), number).source == FAST


def test_several_sessions_are_listed() -> None:
    with pytest.raises(Failure, match="'lbt-ipc' fits 3 sessions") as caught:
        pick_session(TRADING, "lbt-ipc")
    assert f"{SLOW} (pid 29702, topic quotes.MSFT)" in str(caught.value.message)


def test_contexts_with_the_same_source_string() -> None:
    # Each context of the domain, four of them, claims the same session.
    copies = [
        dataclasses.replace(each, sessions=(dataclasses.replace(named("t"), source=FAST, context_id=each.context_id),))
        for each in TRADING.contexts
    ]
    found = dataclasses.replace(TRADING, contexts=tuple(copies))
    with pytest.raises(Failure, match=r"fits 4 sessions; name one by CONTEXT:SOURCE, since other contexts") as caught:
        pick_session(found, FAST)
    for session in found.sessions:
        assert full_name(session) in caught.value.message
        assert pick_session(found, full_name(session)) is session
        assert pick_session(found, f"{session.context_id:08X}") is session


def test_no_session_tells_what_there_is_and_was_probably_meant() -> None:
    with pytest.raises(Failure) as caught:
        pick_session(TRADING, "quotes.AAPPL")
    assert "no session or topic 'quotes.AAPPL' in domain 'trading' (did you mean quotes.AAPL" in caught.value.message
    assert all(session.source in caught.value.message for session in TRADING.sessions)
    with pytest.raises(Failure, match="it has no session; 'ipcbus list --all'"):
        pick_session(NOBODY, "x")
    with pytest.raises(Failure, match="no session or topic ''"):
        pick_session(TRADING, "")


def test_no_session_tells_that_some_cannot_be_read() -> None:
    context = dataclasses.replace(TRADING.contexts[0], pid=0, sessions=(), reason="permission denied")
    with pytest.raises(Failure, match="1 context cannot be read: permission denied"):
        pick_session(dataclasses.replace(TRADING, contexts=(context,)), "x")


def test_a_session_that_has_ended_is_named_by_what_was_typed() -> None:
    picked = pick_session(TRADING, "orders")
    assert session_again(TRADING, full_name(picked), "orders") is picked
    with pytest.raises(Failure, match=rf"'orders': session {picked.source} ended between two snapshots"):
        session_again(NOBODY, full_name(picked), "orders")


def test_names_of_others_do_nothing_to_the_terminal() -> None:
    found = changed(TRADING, session=lambda session: dataclasses.replace(session, sources=named("\x1b[2J").sources))
    with pytest.raises(Failure) as caught:
        pick_session(found, "LBT")
    assert "\x1b" not in caught.value.message
    assert "\\x1b[2J" in caught.value.message


def test_state() -> None:
    session = named("t")
    assert state(session) == ""
    assert state(dataclasses.replace(session, wait="blocked")) == "blocked"
    assert state(dataclasses.replace(session, wait="blocked", stopped=True)) == "stopped"
    assert state(dataclasses.replace(session, wait="blocked", stopped=True, closed=True)) == "closed"
    assert state(dataclasses.replace(session, counters=NO_COUNTERS)) == "not readable"
    assert state(dataclasses.replace(session, counters=NO_COUNTERS, alive=False)) == "dead"


def test_wait_gives_up(domain: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Failure, match=f"topic 't': no source in 0 s in domain '{domain}'"):
        wait_for_topic(domain, "t", 0)
    assert capsys.readouterr().err == ""
