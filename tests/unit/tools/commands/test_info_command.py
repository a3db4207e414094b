from __future__ import annotations

import dataclasses

from ipcbus.stats.snapshot_model import NO_COUNTERS
from ipcbus_tools.commands.info_command import SessionInfo, facts, held_up
from ipcbus_tools.name_lookup import pick_session
from tests.kit.cases import each_of
from tests.unit.tools.top.recorded import FAST, SLOW, TRADING


def info(source: str, **fields: object) -> SessionInfo:
    """What there is to say of a session, perhaps of one with other fields."""
    return SessionInfo.of(TRADING, dataclasses.replace(pick_session(TRADING, source), **fields))


def test_facts_of_a_session() -> None:
    found = dict(facts(info(FAST)))
    assert found["sent by"].startswith("pid 29702 (ann)  feed  python")
    assert (found["state"], found["held up"], found["unread"]) == ("alive", "no", "0.0%")
    assert found["transport"] == "LBT-IPC, receiver-paced"
    assert "1 of 1024 topics, 2 of 20 receivers" in found["room"]


def test_who_holds_it_up_and_for_how_long() -> None:
    told = dict(facts(info(SLOW, held_up_for_ns=2_500_000_000, blocked_for_ns=1_000_000)))["held up"]
    assert told.startswith("a send waits for room, for at least 2.5 s, by pid 29705 (ann)  slow  python")
    assert told.endswith(", 4.0 MiB behind")
    session = info(SLOW).session
    stopped = tuple(dataclasses.replace(slot, stopped=True) for slot in session.receivers)
    assert held_up(dataclasses.replace(session, receivers=stopped)).endswith(", 4.0 MiB behind, stopped")


@each_of(
    ("fields", "text"),
    [
        ({"wait": "", "blocked": 0.0}, "no"),
        ({"wait": "", "blocked": None}, "no"),
        ({"wait": "", "blocked": 0.25}, "sends waited 25.0% of the time"),
        ({"wait": "refused"}, "a send found no room, and the source waits for its WAKEUP"),
        ({"wait": "blocked", "receivers": ()}, "a send waits for room, for at least "),
    ],
)
def test_how_it_is_held_up(fields: dict[str, object], text: str) -> None:
    assert held_up(info(SLOW, **fields).session).startswith(text)


def test_what_cannot_be_read_is_told_with_its_reason() -> None:
    fields = {"counters": NO_COUNTERS, "receivers": (), "reason": "permission denied", "start_ns": 0}
    found = dict(facts(info(FAST, **fields)))
    assert found["state"] == "not readable: permission denied"
    assert "held up" not in found
    assert dict(facts(info(FAST, alive=False, **fields)))["state"] == "dead: permission denied"


def test_who_is_not_joined() -> None:
    # The contexts of the receivers are there, but none has a slot any more.
    found = info(FAST, receivers=())
    assert sorted((each.context_name, each.topics) for each in found.absent) == [
        ("gui", ("quotes.AAPL",)),
        ("risk", ("quotes.AAPL",)),
    ]
    assert found.to_dict()["absent"][0]["topics"] == ["quotes.AAPL"]
    assert info(FAST).absent == ()


def test_session_in_json_is_as_in_the_snapshot() -> None:
    sessions = [session for context in TRADING.to_dict()["contexts"] for session in context["sessions"]]
    assert [info(session["source"]).to_dict()["session"] for session in sessions] == sessions
    assert [session["held_up_by"] for session in sessions if session["source"] == SLOW] != [None]
