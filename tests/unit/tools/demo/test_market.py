"""The made-up market of the demo."""

from __future__ import annotations

import json

from ipcbus_tools.demo.market import SYMBOLS, TOPICS, Market


def test_trades_are_numbered_without_gaps_and_best_prices_straddle_the_last_trade() -> None:
    market, trades, updates = Market(), dict.fromkeys(SYMBOLS, 0), 0
    prices = dict(SYMBOLS)
    for _ in range(2000):
        topic, message = market.next()
        found = json.loads(message)
        data = found["data"]
        assert found["stream"] == topic
        assert topic in TOPICS
        if data["e"] == "trade":
            trades[data["s"]] += 1
            assert data["t"] == trades[data["s"]]
            prices[data["s"]] = float(data["p"])
        else:
            updates += 1
            assert data["u"] == updates
            assert float(data["b"]) < prices[data["s"]] < float(data["a"])
    assert all(trades.values())


def test_a_seed_makes_the_same_walk() -> None:
    def walk(seed: int) -> list[tuple[str, str]]:
        market = Market(seed)
        events = [json.loads(market.next()[1])["data"] for _ in range(50)]
        return [(each["s"], each.get("p", each.get("b"))) for each in events]

    assert walk(3) == walk(3)
    assert walk(3) != walk(4)
