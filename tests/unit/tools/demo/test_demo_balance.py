from __future__ import annotations

import json

from ipcbus.stats import Percentiles
from ipcbus_tools.demo.demo_balance import BalanceEntry, facts, rows, verdict
from ipcbus_tools.render.text_tables import lines
from tests.kit.cases import each_of

LATENCY = Percentiles(100, 50_000, 90_000, 200_000, 900_000, 1_000_000)


def entry(received: int = 100, lost: int = 0, receiver: str = "receiver 1") -> BalanceEntry:
    return BalanceEntry(receiver, 4711, "LBT-IPC", 100, received, lost, 2_500_000.0, LATENCY)


@each_of(("received", "lost", "balances"), [(100, 0, True), (90, 10, True), (99, 0, False), (100, 1, False)])
def test_balance(received: int, lost: int, balances: bool) -> None:
    assert entry(received, lost).balances is balances


def test_verdict() -> None:
    assert verdict([entry(), entry()]).startswith("nothing lost: 200 messages")
    assert verdict([entry(), entry(90, 10)]).startswith("10 lost, each one counted")
    wrong = verdict([entry(), entry(98, 1, "receiver 2")])
    assert "receiver 2 on LBT-IPC: 100 sent, but 98 received and 1 lost" in wrong
    assert "receiver 1" not in wrong


def test_facts_are_json() -> None:
    found = json.loads(json.dumps(facts([entry(), entry(90, 10)], 1.5)))
    assert (found["balances"], found["lost"], found["seconds"]) == (True, 10, 1.5)
    assert found["receivers"][0]["latency"]["p999"] == 900_000


def test_table_fits_a_terminal() -> None:
    many = BalanceEntry("receiver 1", 4711, "LBT-IPC", 10**9, 10**9, 0, 12_345_678.9, LATENCY)
    nothing = BalanceEntry("receiver 2", 4712, "LBT-SMX", 0, 0, 0, 0.0, None)
    text = "\n".join(line.plain for line in lines("account", rows([many, nothing]), 80))
    assert "1,000,000,000" in text
    assert "12.35 M" in text
    assert "p99.9" in text
    assert "900 us" in text
    assert "…" not in text
