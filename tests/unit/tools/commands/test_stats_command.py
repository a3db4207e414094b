from __future__ import annotations

import dataclasses

from ipcbus.stats import counters_of as rows
from ipcbus_tools.commands.stats_command import counters_of
from ipcbus_tools.name_lookup import pick_session
from tests.unit.tools.top.recorded import FAST, TRADING

SESSION = pick_session(TRADING, FAST)


def test_every_counter_stands_there_once() -> None:
    found = counters_of(TRADING, SESSION)
    names = [(line.of, line.topic, line.slot, line.name) for line in found.counters]
    expected: list[tuple[str, str | None, int | None, str]] = [
        ("session", None, None, row.name) for row in rows("session")
    ]
    expected += [("source", "quotes.AAPL", None, row.name) for row in rows("source")]
    expected += [("slot", None, slot.slot, row.name) for slot in SESSION.receivers for row in rows("slot")]
    assert names == expected
    assert (found.source, found.domain, found.seconds) == (FAST, "trading", TRADING.seconds)
    assert [reader.pid for reader in found.receivers] == [29703, 29704]


def test_the_counters_of_the_context_stand_there_too() -> None:
    figures = {row.name: 7 for row in rows("context")}
    contexts = tuple(dataclasses.replace(each, counters=figures) for each in TRADING.contexts)
    found = counters_of(dataclasses.replace(TRADING, contexts=contexts), SESSION)
    values = [(line.name, line.value) for line in found.counters if line.of == "context"]
    assert values == list(figures.items())
    assert ("gmd_pending", 7) in values


def test_value_rate_unit_and_meaning() -> None:
    found = {(line.of, line.slot, line.name): line for line in counters_of(TRADING, SESSION).counters}
    sent = found["session", None, "msgs_sent"]
    assert (sent.value, sent.per_second) == (SESSION.counters["msgs_sent"], SESSION.per_second["msgs_sent"])
    assert (sent.unit, sent.meaning) == ("datagrams", "Datagrams published.")
    slot = SESSION.receivers[0]
    assert found["slot", slot.slot, "lbm_msgs_rcved"].value == slot.counters["lbm_msgs_rcved"]
    assert found["session", None, "num_clients"].per_second is None
