"""The worked example: messages of an exchange become bars of trades and the top of the book, by interval.

Sums are decimal, so results do not depend on the order of addition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ipcbus.spark.pipelines.exchange_feed import parsed
from ipcbus.spark.pipelines.pipeline import Pipeline
from ipcbus.spark.pipelines.row_columns import SECOND_NS, each, start_of_interval, timestamp

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ipcbus.spark.pipelines.pipeline import Tables

KEY: Final = ("session", "topic", "symbol", "start_ns")

_QUOTE: Final = ("bid", "bid_quantity", "ask", "ask_quantity")


def pipeline(interval_ns: int = SECOND_NS) -> Pipeline:
    """Returns the pipeline `rollup` with intervals of this length."""
    return Pipeline(
        name="rollup",
        columns=("session", "topic", "value", "receiveTimeNs"),
        events=False,
        partials=lambda rows: {"trades": trades(rows, interval_ns), "quotes": quotes(rows, interval_ns)},
        merge={"trades": merge_trades, "quotes": merge_quotes},
        results=_results,
        parameters=f"intervals of {interval_ns} ns",
    )


def trades(rows: DataFrame, interval_ns: int = SECOND_NS) -> DataFrame:
    """Returns the trades of each session, topic, symbol and interval of the exchange's time.

    Args:
        rows: rows of the data source; messages other than trades are ignored.
        interval_ns: length of an interval, whole microseconds.

    Returns:
        KEY, first_trade and last_trade (their numbers), open, high, low, close, volume, notional (price times
        quantity), trades. `merge_trades` merges several of them.
    """
    found = parsed(rows, "event", "symbol", "trade", "trade_ms", "price", "quantity", has="trade")
    known = found.where((F.col("event") == "trade") & F.isnotnull("trade") & F.isnotnull("price"))
    price, quantity, number = F.col("price"), F.col("quantity"), F.col("trade")
    return known.groupBy(*KEY[:-1], _start(interval_ns, "trade_ms").alias("start_ns")).agg(
        F.min(number).alias("first_trade"),
        F.max(number).alias("last_trade"),
        F.min_by(price, number).alias("open"),
        F.max(price).alias("high"),
        F.min(price).alias("low"),
        F.max_by(price, number).alias("close"),
        F.sum(quantity).alias("volume"),
        F.sum(price * quantity).alias("notional"),
        F.count("*").alias("trades"),
    )


def merge_trades(several: DataFrame) -> DataFrame:
    """Merges several tables of `trades` into one."""
    return several.groupBy(*KEY).agg(
        F.min("first_trade").alias("first_trade"),
        F.max("last_trade").alias("last_trade"),
        F.min_by("open", "first_trade").alias("open"),
        F.max("high").alias("high"),
        F.min("low").alias("low"),
        F.max_by("close", "last_trade").alias("close"),
        F.sum("volume").cast("decimal(30,8)").alias("volume"),
        F.sum("notional").cast("decimal(38,13)").alias("notional"),
        F.sum("trades").alias("trades"),
    )


def quotes(rows: DataFrame, interval_ns: int = SECOND_NS) -> DataFrame:
    """Returns the best bid and offer at the end of each interval, by session, topic and symbol.

    The interval is one of the exchange's time, or of the receive time where messages lack the former.

    Args:
        rows: rows of the data source; messages other than quotes are ignored.
        interval_ns: length of an interval, whole microseconds.

    Returns:
        KEY, last_update (its number), bid, bid_quantity, ask, ask_quantity (of that update), widest and narrowest (ask
        less bid), updates. `merge_quotes` merges several of them.
    """
    found = parsed(rows, "symbol", "last_update", "trade_ms", "event_ms", *_QUOTE, has="u")
    known = found.where(F.isnotnull("last_update") & F.isnotnull("bid") & F.isnotnull("ask"))
    spread = F.col("ask") - F.col("bid")
    return (
        known.groupBy(*KEY[:-1], _start(interval_ns, "trade_ms", "event_ms").alias("start_ns"))
        .agg(
            F.max("last_update").alias("last_update"),
            F.max_by(F.struct(*_QUOTE), "last_update").alias("quote"),
            F.max(spread).alias("widest"),
            F.min(spread).alias("narrowest"),
            F.count("*").alias("updates"),
        )
        .select(*KEY, "last_update", *(f"quote.{name}" for name in _QUOTE), "widest", "narrowest", "updates")
    )


def merge_quotes(several: DataFrame) -> DataFrame:
    """Merges several tables of `quotes` into one."""
    return (
        several.groupBy(*KEY)
        .agg(
            F.max_by(F.struct(*_QUOTE), "last_update").alias("quote"),
            *each(F.max, "last_update", "widest"),
            *each(F.min, "narrowest"),
            *each(F.sum, "updates"),
        )
        .select(*KEY, "last_update", *(f"quote.{name}" for name in _QUOTE), "widest", "narrowest", "updates")
    )


def bars(counted: DataFrame) -> DataFrame:
    """Returns the table of bars: open, high, low, close, volume, vwap (mean price by volume), trades; ordered."""
    vwap = F.try_divide("notional", "volume").cast("decimal(20,6)")
    values = ("open", "high", "low", "close", "volume")
    return counted.select(_when(), *KEY, *values, vwap.alias("vwap"), "trades").orderBy(*KEY)


def book(counted: DataFrame) -> DataFrame:
    """Returns the table of the top of the book: bid, ask, their quantities, the spread and how it varied; ordered."""
    spread = (F.col("ask") - F.col("bid")).alias("spread")
    return counted.select(_when(), *KEY, *_QUOTE, spread, "widest", "narrowest", "updates").orderBy(*KEY)


def _results(tables: Tables) -> Tables:
    return {"bars": bars(tables["trades"]), "book": book(tables["quotes"])}


def _when() -> Column:
    return timestamp(F.col("start_ns")).alias("start")


def _start(interval_ns: int, *times_ms: str) -> Column:
    """Returns the begin of the interval of the first known time among these, else of the receive time."""
    known = (F.try_multiply(F.col(name), F.lit(1_000_000)) for name in times_ms)
    return start_of_interval(F.coalesce(*known, F.col("receiveTimeNs")), interval_ns)
