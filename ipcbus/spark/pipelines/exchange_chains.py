"""Checks of the numbers that the exchange of the captured feed gave itself, independent of the bus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ipcbus.spark.pipelines.exchange_feed import parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = ("topic", "partition", "offset", "session", "value")
"""The columns that it reads."""

KEY: Final = ("partition", "session", "topic", "symbol", "event")


def chains(rows: DataFrame) -> DataFrame:
    """Returns how many messages of a chain do not name the message before them.

    In `depthUpdate` of futures, `pu` equals `u` of the message before; in that of spot, `U` is one more; in `trade`,
    `t` grows by one. Other messages are ignored.

    Args:
        rows: rows of the data source.

    Returns:
        KEY, messages, broken (links that do not fit), first and last (numbers); ordered; empty without such messages.
    """
    found = parsed(rows, "event", "symbol", "trade", "first_update", "last_update", "previous_update")
    is_trade = F.col("event") == "trade"
    number = F.when(is_trade, F.col("trade")).otherwise(F.col("last_update"))
    after = F.coalesce(F.col("previous_update"), F.col("first_update") - 1)
    links = found.where(F.col("event").isin("trade", "depthUpdate")).select(
        *KEY,
        "offset",
        number.alias("number"),
        F.when(is_trade, F.col("trade") - 1).otherwise(after).alias("after"),
    )
    before = F.lag("number").over(Window.partitionBy(*KEY).orderBy("offset"))
    return (
        links.withColumn("before", before)
        .groupBy(*KEY)
        .agg(
            F.count("*").alias("messages"),
            F.count_if(F.col("before") != F.col("after")).alias("broken"),
            F.min("number").alias("first"),
            F.max("number").alias("last"),
        )
        .orderBy(*KEY)
    )
