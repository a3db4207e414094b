"""Rows whose numbers follow one another, put together: what the audit looks at instead of rows.

A cheap aggregate of all rows finds those (stream, session, topic) that are one stretch, nearly all: as many numbers as
from the lowest to the highest, and two sums that no other numbers are likely to have. Only the others are sorted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ipcbus import MessageType
from ipcbus.archive.layout import TYPE_LOSS_DAMAGE, TYPE_LOSS_RECORDER
from ipcbus.spark.pipelines.rows import require

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY: Final = ("partition", "source", "session", "topic")
"""What is numbered on its own, and recorded on its own."""

COLUMNS: Final = (*KEY, "type", "offset", "seq", "numbers")
"""What it takes of the rows."""

DATA: Final = int(MessageType.DATA)
BOS: Final = int(MessageType.BOS)
LOST_BY_BUS: Final = (int(MessageType.UNRECOVERABLE_LOSS), int(MessageType.UNRECOVERABLE_LOSS_BURST))

COVERING: Final = (DATA, *LOST_BY_BUS, TYPE_LOSS_RECORDER)
"""Types of rows that account for numbers. What a repair took out is of unknown topic, so its numbers are no such."""

_USED: Final = (*COVERING, BOS, TYPE_LOSS_DAMAGE)

_CYCLE: Final = 12
_MASK: Final = (1 << _CYCLE) - 1
_SQUARES: Final = sum(n * n for n in range(_MASK + 1))


def stretches(rows: DataFrame, *, order: bool = False) -> DataFrame:
    """Rows of one kind whose numbers follow one another, put together.

    Runs a job, of which a line for each (stream, session, topic) comes to the driver.

    Args:
        rows: of the data source, with events.
        order: sort all rows, not only those of a (stream, session, topic) in which numbers are missing or come twice.

    Returns:
        KEY, type (of the rows; BOS: a receiver began here), first_offset, last_offset, first, last (numbers), rows,
        numbers, ordered (whether it is known that numbers grow with the offset). Several of them merge with `merge`.

    Raises:
        ConfigError: the rows were read without events.
    """
    require(rows, *COLUMNS, cure="read the archive with option includeEvents=true")
    used = rows.where(F.col("type").isin(*_USED)).select(
        *KEY,
        "type",
        "offset",
        F.try_add(F.try_subtract(F.col("seq"), F.col("numbers")), F.lit(1)).alias("first"),
        F.col("seq").alias("last"),
        F.col("numbers"),
    )
    if order:
        return _sorted(used)
    found = used.groupBy(*KEY).agg(*_sums()).withColumn("whole", _is_whole())
    # Few lines: as a local table they are computed once, and where nothing is wrong there is no second pass.
    sums = rows.sparkSession.createDataFrame(found.toArrow(), found.schema)
    whole = _begins(sums.where("whole")).unionByName(_whole(sums.where("whole")))
    disturbed = sums.where("NOT whole").select(*KEY)
    if disturbed.isEmpty():
        return whole
    return whole.unionByName(_sorted(used.join(F.broadcast(disturbed), list(KEY), "left_semi")))


def merge(several: DataFrame) -> DataFrame:
    """One table of stretches of several; those that follow one another become one."""
    return _joined(several)


def _sums() -> list[Column]:
    covers, begins = F.col("type").isin(*COVERING), F.col("type") == BOS
    one_by_one = F.try_multiply(F.try_add(F.col("first"), F.col("last")), F.col("numbers"))
    squares = _squares(F.col("first"), F.col("last"))
    return [
        F.count_if(~F.col("type").isin(DATA, BOS)).alias("losses"),
        F.count_if(begins).alias("begins"),
        F.min(F.when(begins, F.col("offset"))).alias("begin_offset"),
        F.count_if(covers).alias("rows"),
        F.min(F.when(covers, F.col("offset"))).alias("first_offset"),
        F.max(F.when(covers, F.col("offset"))).alias("last_offset"),
        F.min(F.when(covers, F.col("first"))).alias("first"),
        F.max(F.when(covers, F.col("last"))).alias("last"),
        F.coalesce(F.sum(F.when(covers, F.col("numbers"))), F.lit(0)).alias("numbers"),
        F.try_sum(F.when(covers, one_by_one)).alias("sum"),
        F.try_sum(F.when(covers, squares)).alias("squares"),
    ]


def _is_whole() -> Column:
    """Whether the rows are messages that hold each number of a range once, after the begin if there is one."""
    first, last = F.col("first"), F.col("last")
    span = F.try_add(F.try_subtract(last, first), F.lit(1))
    adds_up = (
        (F.col("numbers") == span)
        & (F.col("sum") == F.try_multiply(F.try_add(first, last), span))
        & (F.col("squares") == _squares(first, last))
    )
    begins_first = F.isnull("begin_offset") | (F.col("begin_offset") < F.col("first_offset"))
    only_begins = (F.col("rows") == 0) & (F.col("begins") == 1)
    messages = (F.col("begins") <= 1) & begins_first & adds_up
    return (F.col("losses") == 0) & (only_begins | F.coalesce(messages, F.lit(False)))


def _squares(first: Column, last: Column) -> Column:
    """Sum of (n mod 4096) ** 2 of a range; null where it is no number of 64 bits."""
    return F.try_subtract(_squares_up_to(last), _squares_up_to(F.try_subtract(first, F.lit(1))))


def _squares_up_to(number: Column) -> Column:
    rest = number.bitwiseAND(_MASK)
    of_rest = F.call_function("div", rest * (rest + 1) * (2 * rest + 1), F.lit(6))
    return F.try_add(F.try_multiply(F.shiftright(number, _CYCLE), F.lit(_SQUARES)), of_rest)


def _begins(sums: DataFrame) -> DataFrame:
    offset, nothing = F.col("begin_offset"), F.lit(0).cast("bigint")
    return sums.where("begins > 0").select(
        *KEY,
        F.lit(BOS).alias("type"),
        offset.alias("first_offset"),
        offset.alias("last_offset"),
        nothing.alias("first"),
        nothing.alias("last"),
        F.lit(1).cast("bigint").alias("rows"),
        nothing.alias("numbers"),
        F.lit(True).alias("ordered"),
    )


def _whole(sums: DataFrame) -> DataFrame:
    return sums.where("rows > 0").select(
        *KEY,
        F.lit(DATA).alias("type"),
        "first_offset",
        "last_offset",
        "first",
        "last",
        "rows",
        "numbers",
        (F.col("rows") == 1).alias("ordered"),
    )


def _sorted(used: DataFrame) -> DataFrame:
    """The stretches of rows, one by one in the order of their offsets."""
    counts = F.col("type").isin(*COVERING)
    nothing = F.lit(0).cast("bigint")
    return _joined(
        used.select(
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
    )


def _joined(several: DataFrame) -> DataFrame:
    """Puts stretches together where, in the order of offsets, one goes on where the one before it ended."""
    in_order = Window.partitionBy(*KEY).orderBy("first_offset", "first")
    follows = (
        F.col("type").isin(*COVERING)
        & (F.lag("type").over(in_order) == F.col("type"))
        & (F.lag("last").over(in_order) + 1 == F.col("first"))
        & (F.lag("last_offset").over(in_order) < F.col("first_offset"))
    )
    marked = several.withColumn("begins", F.when(follows, 0).otherwise(1))
    numbered = marked.withColumn("stretch", F.sum("begins").over(in_order.rowsBetween(Window.unboundedPreceding, 0)))
    return (
        numbered.groupBy(*KEY, "stretch", "type")
        .agg(
            F.min("first_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.sum("rows").alias("rows"),
            F.sum("numbers").alias("numbers"),
            F.bool_and("ordered").alias("ordered"),
        )
        .drop("stretch")
    )
