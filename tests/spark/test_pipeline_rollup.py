"""Bars, top of the book and chains against naive calculations, of a made-up feed and of the captured ones."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus.spark.pipelines import rollup
from ipcbus.spark.pipelines.exchange_feed import chains
from tests.kit.recorded import BEGIN_NS, DATA, Log, Row, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DATA_DIR = Path(os.environ.get("IPCBUS_FEEDS", Path(__file__).resolve().parents[3] / "shared" / "data"))
FEEDS = ("binance_usdm_btcusdt_20240808.gz", "binance_spot_btcusdt_20240808.gz")
INTERVAL_NS = 10_000_000_000
SIX_PLACES = Decimal("0.000001")

Parsed = tuple[Row, dict[str, Any]]


def payload(stream: str, **data: object) -> bytes:
    """A message as the exchange sends it."""
    return json.dumps({"stream": stream, "data": data}).encode()


def made_up(seed: int) -> list[Row]:
    """Two sessions with trades, quotes and depth, with breaks, and messages that are none of these."""
    dice = random.Random(seed)
    log = Log(0, dice)
    numbers: dict[tuple[int, str], int] = defaultdict(lambda: dice.randrange(10**6))
    for _ in range(1500):
        session, kind = dice.choice([1, 2]), dice.choice(["trade", "bookTicker", "depthUpdate", "other"])
        now_ms = BEGIN_NS // 10**6 + len(log.rows) * 40 + dice.randrange(-20, 20)
        before = numbers[session, kind]
        number = numbers[session, kind] = before + (1 if dice.random() < 0.97 else dice.randrange(2, 5))
        price, quantity = f"{dice.uniform(99, 101):.2f}", f"{dice.uniform(0, 3):.8f}"
        common = {"s": f"COIN{session}", "E": now_ms}
        if kind == "trade":
            value = payload("a@trade", e="trade", T=now_ms, t=number, p=price, q=quantity, **common)
        elif kind == "bookTicker":
            quote = {"b": price, "B": quantity, "a": f"{float(price) + dice.uniform(0.01, 1):.2f}", "A": "1.5"}
            times = {"T": now_ms, "E": now_ms, "e": kind} if session == 1 else {}
            value = payload("a@bookTicker", u=number, s=f"COIN{session}", **quote, **times)
        elif kind == "depthUpdate":
            link = {"pu": number - 1, "U": 7} if session == 1 else {"U": number}
            value = payload("a@depth", e=kind, u=number, b=[[price, "0"]], a=[], **link, **common)
        else:
            value = dice.choice([b"", b"\xff\xfe", b"no JSON", b'{"data":7}', b'{"data":{"e":"trade","p":"x","t":1}}'])
        log.add("s", f"a@{kind}" if kind != "other" else "t", DATA, number)
        log.rows[-1].update(session=session, value=value)
    return log.rows


def captured() -> list[Row]:
    """Both feeds, a session each."""
    log = Log(0, random.Random(0))
    for session, feed in enumerate(FEEDS):
        with gzip.open(DATA_DIR / feed) as lines:
            for line in lines:
                time_ns, value = line.rstrip(b"\n").split(b" ", 1)
                log.add("s", json.loads(value).get("stream", "feed"), DATA, 0)
                log.rows[-1].update(session=session, value=value, receiveTimeNs=int(time_ns))
    return log.rows


def parsed(rows: list[Row]) -> list[Parsed]:
    """The messages that are objects with data."""
    found = []
    for row in rows:
        try:
            data = json.loads(row["value"]).get("data")
        except (ValueError, AttributeError):
            continue
        if isinstance(data, dict):
            found.append((row, data))
    return found


def grouped(messages: list[Parsed], *times: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Messages by session, topic, symbol and interval."""
    found = defaultdict(list)
    for row, data in messages:
        time_ns = next((data[name] * 10**6 for name in times if name in data), row["receiveTimeNs"])
        found[row["session"], row["topic"], data["s"], time_ns // INTERVAL_NS * INTERVAL_NS].append(data)
    return dict(sorted(found.items()))


def bars(messages: list[Parsed]) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {}
    trades = [(row, data) for row, data in messages if data.get("e") == "trade" and "s" in data]
    for key, group in grouped(trades, "T").items():
        in_order = [(Decimal(each["p"]), Decimal(each["q"])) for each in sorted(group, key=lambda each: each["t"])]
        prices, volume = [price for price, _ in in_order], sum((quantity for _, quantity in in_order), Decimal())
        notional = sum((price * quantity for price, quantity in in_order), Decimal())
        found[key] = {
            **{"open": prices[0], "high": max(prices), "low": min(prices), "close": prices[-1]},
            **{"volume": volume, "trades": len(group), "vwap": (notional / volume).quantize(SIX_PLACES)},
        }
    return found


def book(messages: list[Parsed]) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {}
    quotes = [(row, data) for row, data in messages if isinstance(data.get("b"), str) and "a" in data]
    for key, group in grouped(quotes, "T", "E").items():
        last = max(group, key=lambda each: each["u"])
        spreads = [Decimal(each["a"]) - Decimal(each["b"]) for each in group]
        names = {"bid": "b", "bid_quantity": "B", "ask": "a", "ask_quantity": "A"}
        best = {name: Decimal(last[letter]) for name, letter in names.items()}
        found[key] = {**best, "widest": max(spreads), "narrowest": min(spreads), "updates": len(group)}
    return found


def breaks(messages: list[Parsed]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Messages and broken links by session, topic and event."""
    found: dict[tuple[Any, ...], tuple[int, int]] = {}
    last: dict[tuple[Any, ...], int] = {}
    for row, data in messages:
        kind = data.get("e")
        key = (row["session"], row["topic"], kind)
        if kind == "trade" and "s" in data:
            number, after = data["t"], data["t"] - 1
        elif kind == "depthUpdate":
            number, after = data["u"], data["pu"] if "pu" in data else data["U"] - 1
        else:
            continue
        count, broken = found.get(key, (0, 0))
        found[key] = (count + 1, broken + (last.get(key, after) != after))
        last[key] = number
    return found


def by_key(result: DataFrame, expected: dict[tuple[Any, ...], dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The result in the form of what is expected."""
    names = next(iter(expected.values()))
    return {tuple(line[name] for name in rollup.KEY): {name: line[name] for name in names} for line in result.collect()}


def check(spark: SparkSession, rows: list[Row]) -> None:
    messages = parsed(rows)
    pipeline = rollup.pipeline(INTERVAL_NS)
    # As two micro-batches, in a cut that has every interval in both.
    parts = [pipeline.partials(spark.createDataFrame(table(rows[n::2]))) for n in range(2)]
    tables = {name: merge(parts[0][name].unionByName(parts[1][name])) for name, merge in pipeline.merge.items()}
    results = pipeline.results(tables)
    for name, expected in (("bars", bars(messages)), ("book", book(messages))):
        found = by_key(results[name], expected)
        assert found == expected
        assert list(found) == sorted(found)
    links = chains(spark.createDataFrame(table(rows))).collect()
    found_links = {
        (line["session"], line["topic"], line["event"]): (line["messages"], line["broken"])
        for line in links
        if line["symbol"]
    }
    assert found_links == breaks(messages)


def test_made_up_feed(spark: SparkSession) -> None:
    rows = made_up(4)
    assert sum(broken for _, broken in breaks(parsed(rows)).values()) > 5
    check(spark, rows)


@pytest.mark.skipif(not all((DATA_DIR / feed).exists() for feed in FEEDS), reason=f"the feeds are not in {DATA_DIR}")
@pytest.mark.long  # what is short is the made-up feed, which has every kind of message
def test_captured_feeds(spark: SparkSession) -> None:
    rows = captured()
    assert len(rows) == 135_203
    assert sum(broken for _, broken in breaks(parsed(rows)).values()) == 0
    check(spark, rows)


def test_no_feed_at_all(spark: SparkSession) -> None:
    log = Log(0, random.Random(0))
    log.add("s", "t", DATA, 0)
    rows = spark.createDataFrame(table(log.rows))
    assert all(result.collect() == [] for result in rollup.pipeline().run(rows).values())
    assert chains(rows).collect() == []
