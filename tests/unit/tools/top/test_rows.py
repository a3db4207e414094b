from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ipcbus_tools.top.rows import LINGER, RowList
from tests.unit.tools.top.recorded import FAST, SECOND, SLOW, TRADING, changed

if TYPE_CHECKING:
    from ipcbus.stats import ContextStats, DomainSnapshot


def states(row_list: RowList, found: DomainSnapshot) -> dict[str, str]:
    return {row.session.source: row.state for row in row_list.rows(found, SECOND) if row.session}


def without(found: DomainSnapshot, source: str, later_s: float) -> DomainSnapshot:
    return changed(
        found,
        context=lambda each: dataclasses.replace(
            each, sessions=tuple(session for session in each.sessions if session.source != source)
        ),
        later_s=later_s,
    )


def killed(found: DomainSnapshot, later_s: float) -> DomainSnapshot:
    return changed(
        found,
        context=lambda each: dataclasses.replace(each, alive=not each.sessions, reason="its process is gone"),
        session=lambda each: dataclasses.replace(each, alive=False),
        later_s=later_s,
    )


def test_states() -> None:
    found = states(RowList(), TRADING)
    assert found[SLOW] == "blocked"
    assert found[FAST] == "sends"
    quiet = changed(TRADING, session=lambda each: dataclasses.replace(each, per_second={"msgs_sent": 0.0}, wait=""))
    assert set(states(RowList(), quiet).values()) == {"idle"}
    refused = changed(TRADING, session=lambda each: dataclasses.replace(each, wait="refused"))
    assert set(states(RowList(), refused).values()) == {"refused"}
    closed = changed(TRADING, session=lambda each: dataclasses.replace(each, closed=True))
    assert set(states(RowList(), closed).values()) == {"closed"}
    hidden = changed(TRADING, session=lambda each: dataclasses.replace(each, reason="no permission"))
    assert set(states(RowList(), hidden).values()) == {"not readable"}


def test_what_vanished_is_gone_for_two_intervals() -> None:
    row_list = RowList()
    states(row_list, TRADING)
    seen = [states(row_list, without(TRADING, FAST, later_s)).get(FAST) for later_s in (1, 2, 3, 4)]
    assert seen == ["gone"] * LINGER + [None] * 2


def test_the_dead_are_shown_for_two_intervals() -> None:
    row_list = RowList()
    states(row_list, TRADING)
    seen = [states(row_list, killed(TRADING, later_s)).get(FAST) for later_s in (1, 2, 3, 4)]
    assert seen == ["dead"] * LINGER + [None] * 2
    assert row_list.hidden_dead == 1


def test_dead_and_then_removed_is_two_intervals_together() -> None:
    row_list = RowList()
    states(row_list, TRADING)
    assert states(row_list, killed(TRADING, 1))[FAST] == "dead"
    assert states(row_list, without(killed(TRADING, 2), FAST, 0))[FAST] == "dead"
    assert FAST not in states(row_list, without(killed(TRADING, 3), FAST, 0))
    assert FAST not in states(row_list, without(killed(TRADING, 4), FAST, 0))


def test_what_comes_back_is_shown_at_once() -> None:
    row_list = RowList()
    states(row_list, TRADING)
    states(row_list, without(TRADING, FAST, 1))
    assert states(row_list, changed(TRADING, later_s=2))[FAST] == "sends"
    assert states(row_list, without(TRADING, FAST, 3))[FAST] == "gone"


def test_dead_readers_go_after_two_intervals() -> None:
    dying = changed(
        TRADING,
        session=lambda each: dataclasses.replace(
            each, receivers=tuple(dataclasses.replace(slot, alive=slot.slot > 0) for slot in each.receivers)
        ),
    )
    row_list = RowList()
    seen = []
    for later_s in (0, 1, 2, 3):
        rows = row_list.rows(changed(dying, later_s=later_s), SECOND)
        (slow,) = (row.session for row in rows if row.session and row.session.source == SLOW)
        seen.append([slot.alive for slot in slow.receivers])
    assert seen == [[False, True]] * LINGER + [[True]] * 2


def test_a_registry_that_cannot_be_read_is_a_line() -> None:
    def unread(context: ContextStats) -> ContextStats:
        return (
            dataclasses.replace(context, pid=0, sessions=(), reason="another layout") if context.sessions else context
        )

    found = changed(TRADING, context=unread)
    (row,) = RowList().rows(found, SECOND)
    assert (row.state, row.session, row.reason) == ("not readable", None, "another layout")


def test_a_look_that_comes_early_does_not_show_it_once_more() -> None:
    for early_s in (0.0, 0.005, 0.1):
        row_list = RowList()
        states(row_list, TRADING)
        seen = [states(row_list, without(TRADING, FAST, look - early_s * look)).get(FAST) for look in (1, 2, 3)]
        assert seen == ["gone"] * LINGER + [None]


def test_the_dead_keep_their_command() -> None:
    row_list = RowList()
    states(row_list, TRADING)
    dead = changed(killed(TRADING, 1), session=lambda each: dataclasses.replace(each, command=""))
    rows = row_list.rows(dead, SECOND)
    assert {row.session.command for row in rows if row.session} == {"python traffic.py pub"}


def test_what_was_lost_stays_counted() -> None:
    def losing(context: ContextStats) -> ContextStats:
        receivers = tuple(
            dataclasses.replace(each, counters={**each.counters, "lost": 5}) for each in context.receivers
        )
        return dataclasses.replace(context, receivers=receivers)

    found = changed(TRADING, context=losing)
    lost = 5 * sum(len(context.receivers) for context in found.contexts)
    row_list = RowList()
    row_list.rows(found, SECOND)
    assert row_list.lost == lost
    row_list.rows(changed(found, context=lambda each: dataclasses.replace(each, receivers=()), later_s=1), SECOND)
    assert row_list.lost == lost
