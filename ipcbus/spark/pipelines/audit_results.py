"""What the stretches of an archive say: what is lost, who reported it, and what nobody reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ipcbus.archive.archive_layout import TYPE_LOSS_DAMAGE, TYPE_LOSS_RECORDER
from ipcbus.spark.pipelines.sequence_runs import BOS, COVERING, DATA, KEY, LOST_BY_BUS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MISSING: Final = "missing"
"""Numbers are not there and nobody has reported them: the alarm."""

LOST: Final = "lost"
"""What is not there has been reported."""

ABSENT: Final = "absent"
"""Complete, but for the time in which no recorder had joined."""

DUPLICATES: Final = "duplicates"
"""Everything is there, and something twice."""

COMPLETE: Final = "complete"
"""Everything is there once."""

VERDICTS: Final = (MISSING, LOST, ABSENT, DUPLICATES, COMPLETE)
"""From the worst to the best."""

_COUNTS: Final = (
    *("messages", "numbers", "lost_bus", "lost_recorder", "lost_repair"),
    *("missing", "damaged", "absent", "gaps", "duplicates", "late", "contradicted"),
)


def verdicts(stretches: DataFrame) -> DataFrame:
    """Returns the account of each stream, session and topic.

    All but messages and gaps are counts of sequence numbers; a message in fragments has several.

    Args:
        stretches: of all that was recorded.

    Returns:
        One line each, ordered:

        * partition (of the stream), source (string of the session), session, topic; what a repair took out stands in a
          line with source and topic empty;
        * first, last: the lowest and highest number that is accounted for;
        * messages, numbers: what was recorded;
        * lost_bus, lost_recorder: reported lost by the bus, and by the recorder because it had no room; lost_repair:
          rows that a repair took out;
        * missing: not there, and nobody has reported them; damaged: the same, but a repair took something out just
          there; absent: sent while no receiver of the recorder had joined;
        * gaps: places where the numbers of messages jump without a receiver having begun anew;
        * duplicates: recorded again; late: recorded after a higher one (null: not looked at, see `stretches`);
          contradicted: reported lost, but recorded, or reported twice;
        * begins: how often a receiver began;
        * verdict: one of VERDICTS.
    """
    damage = (
        stretches.where(F.col("type") == TYPE_LOSS_DAMAGE)
        .groupBy(F.col("partition").alias("damaged_partition"))
        .agg(F.collect_list("first_offset").alias("damages"))
    )
    marked = _marked(stretches).join(
        F.broadcast(damage), F.col("partition") == F.col("damaged_partition"), "left_outer"
    )
    return (
        marked.groupBy(*KEY)
        .agg(*_accounts())
        .withColumn("late", F.when(F.col("ordered"), F.col("not_rising") - F.col("duplicates")))
        .select(*KEY, "first", "last", *_COUNTS, "begins", _verdict().alias("verdict"))
        .orderBy(*KEY)
    )


def summary(account: DataFrame) -> DataFrame:
    """One line for everything: the sums of all lines of `verdicts`, how many there are, and the worst verdict."""
    unknown = F.count_if(F.isnull("late")) > 0
    sums = {name: F.coalesce(F.sum(name), F.lit(0)) for name in _COUNTS}
    sums["late"] = F.when(~unknown, sums["late"])
    worst = F.min(F.array_position(F.lit(list(VERDICTS)), F.col("verdict")))
    verdict = F.coalesce(F.element_at(F.lit(list(VERDICTS)), worst.cast("int")), F.lit(COMPLETE))
    return account.agg(
        F.count("*").alias("lines"), *(each.alias(name) for name, each in sums.items()), verdict.alias("verdict")
    )


def _marked(stretches: DataFrame) -> DataFrame:
    """Beside each stretch: which receiver's it is, and who was there before, by offset and by number."""
    by_offset = Window.partitionBy(*KEY).orderBy("first_offset")
    by_number = Window.partitionBy(*KEY).orderBy("first", "first_offset").rowsBetween(Window.unboundedPreceding, -1)
    covers, is_data = F.col("type").isin(*COVERING), F.col("type") == DATA
    run = F.count_if(F.col("type") == BOS).over(by_offset)
    highest = F.max(F.when(is_data, F.col("last"))).over(by_offset.rowsBetween(Window.unboundedPreceding, -1))
    with_run = stretches.withColumn("run", run).withColumn("highest", highest)
    end = F.struct("last", "run", "last_offset")
    return with_run.withColumn("before", F.max(F.when(covers, end)).over(by_number)).withColumn(
        "before_data", F.max(F.when(is_data, end)).over(by_number)
    )


def _accounts() -> list[Column]:
    covers, is_data = F.col("type").isin(*COVERING), F.col("type") == DATA
    hole = F.col("first") - F.col("before.last") - 1
    is_hole = covers & (hole > 0)
    same_run = F.col("before.run") == F.col("run")
    edges = F.col("before.last_offset"), F.col("first_offset")
    was_damaged = F.coalesce(
        F.exists("damages", lambda at: at.between(F.least(*edges), F.greatest(*edges))), F.lit(False)
    )
    jump = is_data & (F.col("first") > F.col("before_data.last") + 1) & (F.col("before_data.run") == F.col("run"))
    return [
        F.min(F.when(covers, F.col("first"))).alias("first"),
        F.max(F.when(covers, F.col("last"))).alias("last"),
        _sum(is_data, F.col("rows")).alias("messages"),
        _sum(is_data, F.col("numbers")).alias("numbers"),
        _sum(F.col("type").isin(*LOST_BY_BUS), F.col("numbers")).alias("lost_bus"),
        _sum(F.col("type") == TYPE_LOSS_RECORDER, F.col("numbers")).alias("lost_recorder"),
        _sum(F.col("type") == TYPE_LOSS_DAMAGE, F.col("numbers")).alias("lost_repair"),
        _sum(is_hole & same_run & ~was_damaged, hole).alias("missing"),
        _sum(is_hole & same_run & was_damaged, hole).alias("damaged"),
        _sum(is_hole & ~same_run, hole).alias("absent"),
        F.count_if(jump).alias("gaps"),
        _sum(is_data, _common(F.col("before_data.last"))).alias("duplicates"),
        _sum(is_data, _common(F.col("highest"))).alias("not_rising"),
        _contradicted(covers, is_data).alias("contradicted"),
        F.count_if(F.col("type") == BOS).alias("begins"),
        F.bool_and("ordered").alias("ordered"),
    ]


def _common(reached: Column) -> Column:
    """Returns how many numbers of a stretch are not above one that was reached before."""
    common = F.greatest(F.least(F.col("last"), reached) - F.col("first") + 1, F.lit(0))
    return F.when(F.isnotnull(reached), common).otherwise(0)  # least and greatest pass over what is null


def _contradicted(covers: Column, is_data: Column) -> Column:
    """What is accounted for more than once, but for messages that are there more than once."""
    return _sum(covers, _common(F.col("before.last"))) - _sum(is_data, _common(F.col("before_data.last")))


def _sum(where: Column, value: Column) -> Column:
    return F.coalesce(F.sum(F.when(where, value)), F.lit(0))


def _verdict() -> Column:
    lost = F.col("lost_bus") + F.col("lost_recorder") + F.col("lost_repair") + F.col("damaged")
    return (
        F.when(F.col("missing") > 0, MISSING)
        .when(lost > 0, LOST)
        .when(F.col("absent") > 0, ABSENT)
        .when(F.col("duplicates") > 0, DUPLICATES)
        .otherwise(COMPLETE)
    )
