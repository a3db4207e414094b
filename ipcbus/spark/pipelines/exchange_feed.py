"""The payload of the worked example: the JSON of an exchange, as columns.

A line is `{"stream": ..., "data": {"e": event, "s": symbol, ...}}`, with keys that differ only in case (`t` is the
number of a trade, `T` its time, ms since the epoch). Other payload has nulls in all columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ipcbus.spark.pipelines.row_columns import messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NUMBER: Final = "decimal(20,8)"
"""Prices and quantities are decimal texts; binary floating point would not add them up exactly."""

_KEYS: Final = {
    "event": ("e", "string"),
    "symbol": ("s", "string"),
    "event_ms": ("E", "bigint"),
    "trade_ms": ("T", "bigint"),
    "trade": ("t", "bigint"),
    "price": ("p", NUMBER),
    "quantity": ("q", NUMBER),
    "first_update": ("U", "bigint"),
    "last_update": ("u", "bigint"),
    "previous_update": ("pu", "bigint"),
    "bid": ("b", NUMBER),
    "bid_quantity": ("B", NUMBER),
    "ask": ("a", NUMBER),
    "ask_quantity": ("A", NUMBER),
}
"""Column -> key and type."""


CHAIN_COLUMNS: Final = ("topic", "partition", "offset", "session", "value")
"""The columns that `chains` reads."""

CHAIN_KEY: Final = ("partition", "session", "topic", "symbol", "event")


def parsed(rows: DataFrame, *columns: str, has: str = "") -> DataFrame:
    """Returns the messages with columns of their payload; null where the payload lacks a value or has an invalid one.

    Args:
        rows: rows of the data source.
        columns: names of `_KEYS`.
        has: leave out messages without this key or text. The search takes a fraction of the time of parsing.
    """
    value = F.col("value").cast("string")
    if has:
        rows = rows.where(F.contains(value, F.lit(f'"{has}"')))
    text = F.get_json_object(value, "$.data")
    # Fields of a struct that differ only in case would be ambiguous.
    found = F.json_tuple(text, *(_KEYS[name][0] for name in columns)).alias(*(f"_{name}" for name in columns))
    typed = (F.col(f"_{name}").try_cast(_KEYS[name][1]).alias(name) for name in columns)
    return messages(rows).select("*", found).select(*rows.columns, *typed)


def topics_of(rows: DataFrame) -> list[str]:
    """Returns the topics with such a feed, judged by a few messages each, so that other payload need not be parsed."""
    few = (
        messages(rows)
        .groupBy("topic")
        .agg(F.array(F.any_value("value"), F.min("value"), F.max("value")).alias("values"))
    )
    each = few.select("topic", F.explode("values").alias("value"))
    found = parsed(each, "symbol", "event", "last_update").where(
        F.isnotnull("symbol") & (F.isnotnull("event") | F.isnotnull("last_update"))
    )
    return sorted(row["topic"] for row in found.select("topic").distinct().collect())


def chains(rows: DataFrame) -> DataFrame:
    """Returns how many messages of a chain do not name the message before them.

    In `depthUpdate` of futures, `pu` equals `u` of the message before; in that of spot, `U` is one more; in `trade`,
    `t` grows by one. Other messages are ignored.

    Args:
        rows: rows of the data source.

    Returns:
        CHAIN_KEY, messages, broken (links that do not fit), first and last (numbers); ordered; empty without such
        messages.
    """
    found = parsed(rows, "event", "symbol", "trade", "first_update", "last_update", "previous_update")
    is_trade = F.col("event") == "trade"
    number = F.when(is_trade, F.col("trade")).otherwise(F.col("last_update"))
    after = F.coalesce(F.col("previous_update"), F.col("first_update") - 1)
    links = found.where(F.col("event").isin("trade", "depthUpdate")).select(
        *CHAIN_KEY,
        "offset",
        number.alias("number"),
        F.when(is_trade, F.col("trade") - 1).otherwise(after).alias("after"),
    )
    before = F.lag("number").over(Window.partitionBy(*CHAIN_KEY).orderBy("offset"))
    return (
        links.withColumn("before", before)
        .groupBy(*CHAIN_KEY)
        .agg(
            F.count("*").alias("messages"),
            F.count_if(F.col("before") != F.col("after")).alias("broken"),
            F.min("number").alias("first"),
            F.max("number").alias("last"),
        )
        .orderBy(*CHAIN_KEY)
    )
