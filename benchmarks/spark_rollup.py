"""The pipeline `rollup` over a made-up market; every engine parses the JSON of each message, and the results agree.

At factor 1 there are 10 M messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from benchmarks import market
from benchmarks.spark_beside import Case, Data
from ipcbus.spark.pipelines import rollup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from benchmarks.spark_beside import Lines
    from benchmarks.spark_figures import Figure, Setting
    from ipcbus.spark.pipelines.pipeline import Tables

MESSAGES: Final = 10_000_000

_PARSED: Final = """
SELECT topic, f[1]::BIGINT // 1000 * 1000000000 AS start_ns, f[2]::BIGINT AS number, {columns} FROM (
    SELECT topic, json_extract_string(decode(value), [{paths}]) AS f FROM rows
    WHERE type = 0 AND contains(decode(value), '{has}')
)
"""
_TRADES: Final = _PARSED.format(
    columns="f[3]::DECIMAL(20, 8) AS price, f[4]::DECIMAL(20, 8) AS quantity",
    paths="'$.data.T', '$.data.t', '$.data.p', '$.data.q'",
    has='"trade"',
)
_QUOTES: Final = _PARSED.format(
    columns=", ".join(f"f[{place}]::DECIMAL(20, 8) AS q{place}" for place in (3, 4, 5, 6)),
    paths="'$.data.T', '$.data.u', '$.data.b', '$.data.B', '$.data.a', '$.data.A'",
    has='"u"',
)
_QUERIES: Final = (
    f"""SELECT topic, start_ns, arg_min(price, number), max(price), min(price), arg_max(price, number), sum(quantity),
    count(*) FROM ({_TRADES}) GROUP BY ALL""",
    f"""SELECT topic, start_ns, arg_max(q3, number), arg_max(q4, number), arg_max(q5, number), arg_max(q6, number),
    max(q5 - q3), count(*) FROM ({_QUOTES}) GROUP BY ALL""",
)


def figures(setting: Setting) -> Iterator[Figure]:
    """The suite."""
    data = Data(setting.directory / "market", setting.directory / "parquet", int(MESSAGES * setting.factor))
    market.write(data.archive, data.rows)
    yield data.compact(setting)
    yield from Case(rollup.pipeline(), _wanted, _QUERIES, _polars, _same).figures(setting, data)


def _wanted(results: Tables) -> list[DataFrame]:
    bars = ("open", "high", "low", "close", "volume", "trades")
    quotes = ("bid", "bid_quantity", "ask", "ask_quantity", "widest", "updates")
    tables = ((results["bars"], bars), (results["book"], quotes))
    return [table.select("topic", "start_ns", *columns) for table, columns in tables]


def _polars(rows: pl.LazyFrame) -> Lines:
    price, quantity, bid, ask = map(pl.col, ("p", "q", "b", "a"))
    trades = _parsed(rows, "trade", "t", "p", "q")
    quotes = _parsed(rows, "u", "u", "b", "B", "a", "A")
    bars = trades.agg(
        price.first(), price.max().alias("h"), price.min().alias("l"), price.last().alias("c"), quantity.sum(), pl.len()
    )
    book = quotes.agg(*(pl.col(name).last() for name in "bBaA"), (ask - bid).max().alias("widest"), pl.len())
    found = pl.collect_all([bars, book])
    return sorted(row for table in found for row in table.rows())


def _parsed(rows: pl.LazyFrame, has: str, number: str, *decimals: str) -> Any:  # noqa: ANN401 - of a private class
    """The messages that have these keys, in the order of their numbers, by topic and second."""
    types = {"T": pl.Int64, number: pl.Int64, **dict.fromkeys(decimals, pl.String)}
    text = pl.col("value").cast(pl.String)
    data = text.str.json_decode(pl.Struct({"data": pl.Struct(types)})).struct.field("data")
    parsed = (
        rows.filter((pl.col("type") == 0) & pl.col("value").bin.contains(f'"{has}"'.encode()))
        .select("topic", data.struct.unnest())
        .with_columns(pl.col(*decimals).cast(pl.Decimal(20, 8)), start_ns=pl.col("T") // 1000 * 10**9)
    )
    return parsed.sort(number).group_by("topic", "start_ns", maintain_order=True)


def _same(spark: Lines, by_duckdb: Lines, by_polars: Lines) -> None:
    if not spark == by_duckdb == by_polars:
        raise ValueError("rollup: the engines do not agree")
