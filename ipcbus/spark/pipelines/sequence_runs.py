"""Sequence runs: rows with consecutive numbers, joined. The audit reads runs instead of rows.

A cheap aggregate of all rows, in blocks of numbers, finds the blocks that are one run, which are nearly all: they have
as many numbers as from their lowest to their highest, and two sums that other numbers are unlikely to have. Only the
rows of the other blocks are sorted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F

from ipcbus import MessageType
from ipcbus.archive.archive_layout import TYPE_LOSS_DAMAGE, TYPE_LOSS_RECORDER
from ipcbus.spark.pipelines.row_columns import require

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY: Final = ("partition", "source", "session", "topic")
"""The columns that identify one sequence of numbers in one log."""

COLUMNS: Final = (*KEY, "type", "offset", "seq", "numbers")
"""The columns that it reads."""

TABLE: Final = "stretches"
"""Name of the table of runs in the directories of streams; those of earlier releases have this name too."""

DATA: Final = int(MessageType.DATA)
BOS: Final = int(MessageType.BOS)
LOST_BY_BUS: Final = (int(MessageType.UNRECOVERABLE_LOSS), int(MessageType.UNRECOVERABLE_LOSS_BURST))

COVERING: Final = (DATA, *LOST_BY_BUS, TYPE_LOSS_RECORDER)
"""Types of rows that account for numbers of a topic. The losses of a repair have an unknown topic."""

_MARKS: Final = (BOS, TYPE_LOSS_DAMAGE)
_IRREGULAR: Final = -1
"""Stands for the type of a block that is not one run of messages."""

_BLOCK: Final = 12
"""Binary logarithm of the numbers in a block; with smaller blocks, fewer rows are sorted and more lines aggregated."""

SORT_ALL: Final = 0.5
"""Share of rows in irregular blocks above which sorting all rows is faster than selecting these."""

_MASK: Final = (1 << _BLOCK) - 1
_SQUARES: Final = sum(n * n for n in range(_MASK + 1))


def sequence_runs(rows: DataFrame, *, order: bool = False) -> DataFrame:
    """Returns rows of one type with consecutive numbers, joined to runs.

    Runs a job whose lines come to the driver: few where nothing is wrong, else one for each irregular block of 4096
    numbers.

    Args:
        rows: rows of the data source, with events.
        order: sort all rows, not only those of blocks in which numbers are missing or come twice.

    Returns:
        KEY, type (of the rows; BOS: a receiver began here), first_offset, last_offset, first, last (numbers), rows,
        numbers, ordered (whether it is known that numbers grow with the offset). `merge` merges several of them.

    Raises:
        ConfigError: the rows were read without events.
    """
    require(rows, *COLUMNS, cure="read the archive with option includeEvents=true")
    used = rows.where(F.col("type").isin(*COVERING, *_MARKS)).select(
        *KEY,
        "type",
        "offset",
        F.try_add(F.try_subtract(F.col("seq"), F.col("numbers")), F.lit(1)).alias("first"),
        F.col("seq").alias("last"),
        "numbers",
    )
    if order:
        return _joined(_one_by_one(used))
    blocks = used.withColumn("block", _block()).groupBy(*KEY, "block").agg(*_sums())
    found = _joined(_judged(blocks))
    # A local table is computed once; where nothing is wrong, there is no second pass.
    table = found.toArrow()
    in_irregular = pc.sum(table.filter(pc.field("type") == _IRREGULAR)["rows"]).as_py() or 0
    if in_irregular > SORT_ALL * (pc.sum(table["rows"]).as_py() or 0):
        return _joined(_one_by_one(used))
    lines = rows.sparkSession.createDataFrame(table, found.schema)
    irregular = lines.where(F.col("type") == _IRREGULAR).select(*KEY, F.shiftright("last", _BLOCK).alias("block"))
    whole = lines.where(F.col("type") != _IRREGULAR)
    if not in_irregular:
        return whole
    again = used.withColumn("block", _block()).join(irregular, [*KEY, "block"], "left_semi").drop("block")
    return _joined(whole.unionByName(_one_by_one(again)))


def merge(several: DataFrame) -> DataFrame:
    """Merges several tables of runs into one; consecutive runs become one."""
    return _joined(several)


def _block() -> Column:
    """Returns the block of a row; a begin or a repair is a block of its own."""
    alone = F.try_subtract(F.lit(-1), F.col("offset"))
    return F.when(F.col("type").isin(*_MARKS), alone).otherwise(F.shiftright("last", _BLOCK))


def _sums() -> list[Column]:
    one_by_one = F.try_multiply(F.try_add(F.col("first"), F.col("last")), F.col("numbers"))
    return [
        F.min("type").alias("type"),
        F.max("type").alias("highest_type"),
        F.count("*").alias("rows"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sum("numbers").alias("numbers"),
        F.try_sum(one_by_one).alias("sum"),
        F.try_sum(_squares(F.col("first"), F.col("last"))).alias("squares"),
    ]


def _judged(blocks: DataFrame) -> DataFrame:
    """Returns blocks as runs; irregular blocks are marked."""
    first, last = F.col("first"), F.col("last")
    span = F.try_add(F.try_subtract(last, first), F.lit(1))
    adds_up = (
        (F.col("highest_type") == DATA)
        & (F.col("numbers") == span)
        & (F.col("sum") == F.try_multiply(F.try_add(first, last), span))
        & (F.col("squares") == _squares(first, last))
    )
    by_offset = Window.partitionBy(*KEY).orderBy("first_offset")
    overlaps = (
        F.max("last_offset").over(by_offset.rowsBetween(Window.unboundedPreceding, -1)) > F.col("first_offset")
    ) | (F.lead("first_offset").over(by_offset) < F.col("last_offset"))
    whole = F.coalesce(adds_up, F.lit(False)) & ~F.coalesce(overlaps, F.lit(False))
    is_mark, nothing = F.col("type").isin(*_MARKS), F.lit(0).cast("bigint")
    return blocks.select(
        *KEY,
        F.when(is_mark, F.col("type")).when(whole, DATA).otherwise(_IRREGULAR).alias("type"),
        "first_offset",
        "last_offset",
        F.when(is_mark, nothing).otherwise(first).alias("first"),
        F.when(is_mark, nothing).otherwise(last).alias("last"),
        "rows",
        F.when(F.col("type") == BOS, nothing).otherwise(F.col("numbers")).alias("numbers"),
        (F.col("rows") == 1).alias("ordered"),
    )


def _squares(first: Column, last: Column) -> Column:
    """Returns the sum of (n mod 4096) ** 2 of a range; null where it exceeds 64 bits."""
    return F.try_subtract(_squares_up_to(last), _squares_up_to(F.try_subtract(first, F.lit(1))))


def _squares_up_to(number: Column) -> Column:
    rest = number.bitwiseAND(_MASK)
    of_rest = F.call_function("div", rest * (rest + 1) * (2 * rest + 1), F.lit(6))
    return F.try_add(F.try_multiply(F.shiftright(number, _BLOCK), F.lit(_SQUARES)), of_rest)


def _one_by_one(used: DataFrame) -> DataFrame:
    """Returns each row as a run of its own."""
    counts, nothing = F.col("type").isin(*COVERING), F.lit(0).cast("bigint")
    return used.select(
        *KEY,
        "type",
        F.col("offset").alias("first_offset"),
        F.col("offset").alias("last_offset"),
        F.when(counts, F.col("first")).otherwise(nothing).alias("first"),
        F.when(counts, F.col("last")).otherwise(nothing).alias("last"),
        F.lit(1).cast("bigint").alias("rows"),
        F.when(F.col("type") == BOS, nothing).otherwise(F.col("numbers")).alias("numbers"),
        F.lit(True).alias("ordered"),
    )


def _joined(several: DataFrame) -> DataFrame:
    """Joins runs where, in the order of offsets, one continues the one before it."""
    in_order = Window.partitionBy(*KEY).orderBy("first_offset")
    follows = (
        F.col("type").isin(*COVERING)
        & (F.lag("type").over(in_order) == F.col("type"))
        & (F.try_add(F.lag("last").over(in_order), F.lit(1)) == F.col("first"))
        & (F.lag("last_offset").over(in_order) < F.col("first_offset"))
    )
    marked = several.withColumn("begins", F.when(follows, 0).otherwise(1))
    numbered = marked.withColumn("run", F.sum("begins").over(in_order.rowsBetween(Window.unboundedPreceding, 0)))
    return (
        numbered.groupBy(*KEY, "run", "type")
        .agg(
            F.min("first_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.sum("rows").alias("rows"),
            F.sum("numbers").alias("numbers"),
            F.bool_and("ordered").alias("ordered"),
        )
        .drop("run")
    )
