from __future__ import annotations

import pytest

from ipcbus.stats import ReceiverStats, SessionStats, absent
from tests.unit.ipcbus.stats.made import START, context, counters, session, slot, snapshot, source


def wanting(*topics: str, wildcard: bool = False, context_id: int = 50, uid: int = 1, stopped: bool = False) -> object:
    receivers = tuple(ReceiverStats(topic, wildcard, START, counters("receiver")) for topic in topics)
    return context(context_id=context_id, receivers=receivers, uid=uid, stopped=stopped)


def missing(offered: SessionStats, *others: object) -> list[tuple[tuple[str, ...], str]]:
    found = snapshot(context(offered), *others)  # type: ignore[arg-type]
    return [(each.topics, each.reason) for each in absent(found, offered)]


OFFERED = session(sources=(source(1, "a"), source(2, "b")))


def test_who_wants_and_has_no_slot() -> None:
    assert missing(OFFERED, wanting("b", "a", "c")) == [(("a", "b"), "not joined yet")]
    assert missing(OFFERED, wanting("c"), wanting("a", wildcard=True)) == []
    assert missing(session(sources=OFFERED.sources, slots=(slot(0),)), wanting("a")) == []


@pytest.mark.parametrize("fields", [{"closed": True}, {"alive": False}, {"counters": {}}])
def test_nobody_misses_what_has_ended_or_cannot_be_read(fields: dict[str, object]) -> None:
    assert missing(session(sources=OFFERED.sources, **fields), wanting("a")) == []


def test_reasons() -> None:
    assert missing(OFFERED, wanting("a", uid=2, stopped=True))[0][1] == "its process is stopped"
    full = session(sources=OFFERED.sources, slots=(slot(1),), slots_max=1)
    assert missing(full, wanting("a"))[0][1] == "all 1 slots are in use"
    assert "only ann may read" in missing(OFFERED, wanting("a", uid=2))[0][1]
    assert missing(OFFERED, wanting("a", uid=0))[0][1] == "not joined yet"
