"""The audit: gaps, duplicates and late messages, and whether each loss was reported.

The messages of a session and topic are numbered without gaps, so an archive can be checked against itself: each number
must be there once, in a message or in a loss that the bus, the recorder or a repair has reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ipcbus.archive.archive_layout import TYPE_LOSS_DAMAGE, TYPE_LOSS_RECORDER
from ipcbus.spark.pipelines.pipeline import Pipeline
from ipcbus.spark.pipelines.sequence_runs import (
    BOS,
    COLUMNS,
    COVERING,
    DATA,
    KEY,
    LOST_BY_BUS,
    TABLE,
    merge,
    sequence_runs,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ipcbus.spark.pipelines.pipeline import Tables

MISSING: Final = "missing"
"""Numbers are missing without a report: the alarm."""

LOST: Final = "lost"
"""All missing numbers were reported as lost."""

ABSENT: Final = "absent"
"""Complete, except for times in which no recorder had joined."""

DUPLICATES: Final = "duplicates"
"""All numbers are there, and some twice."""

COMPLETE: Final = "complete"
"""All numbers are there once."""

VERDICTS: Final = (MISSING, LOST, ABSENT, DUPLICATES, COMPLETE)
"""All verdicts, from the worst to the best."""

_COUNTS: Final = (
    *("messages", "numbers", "lost_bus", "lost_recorder", "lost_repair"),
    *("missing", "damaged", "absent", "gaps", "duplicates", "late", "contradicted"),
)


def pipeline(*, order: bool = False) -> Pipeline:
    """Returns the pipeline `audit`.

    Args:
        order: check the order of all messages, not only where numbers are missing or come twice. Takes about ten times
            as long; without it, `late` is null where nothing else is wrong.
    """
    return Pipeline(
        name="audit",
        columns=COLUMNS,
        events=True,
        partials=lambda rows: {TABLE: sequence_runs(rows, order=order)},
        merge={TABLE: merge},
        results=_results,
    )


def _results(tables: Tables) -> Tables:
    account = verdicts(tables[TABLE])
    return {"audit": account, "summary": summary(account)}


def verdicts(runs: DataFrame) -> DataFrame:
    """Returns the account of each stream, session and topic.

    All counts but messages and gaps are counts of sequence numbers; a message in fragments has several.

    Args:
        runs: the sequence runs of all that was recorded.

    Returns:
        One line each, ordered:

        * partition (of the stream), source (string of the session), session, topic; rows that a repair replaced by
          losses stand in a line with source and topic empty;
        * first, last: the lowest and highest number that is accounted for;
        * messages, numbers: recorded messages, and their sequence numbers;
        * lost_bus, lost_recorder: reported lost by the bus, and by the recorder for lack of memory; lost_repair: rows
            that a repair replaced by losses;
        * missing: numbers that are not there and were not reported; damaged: such numbers at a place where a repair
            replaced rows; absent: sent while no receiver of the recorder had joined;
        * gaps: places where the numbers of messages jump without a new begin of a receiver;
        * duplicates: recorded again; late: recorded after a higher number (null: not checked, see `sequence_runs`);
            contradicted: reported lost, but recorded, or reported twice;
        * begins: how often a receiver began;
        * verdict: one of VERDICTS.
    """
    damage = (
        runs.where(F.col("type") == TYPE_LOSS_DAMAGE)
        .groupBy(F.col("partition").alias("damaged_partition"))
        .agg(F.collect_list("first_offset").alias("damages"))
    )
    marked = _marked(runs).join(F.broadcast(damage), F.col("partition") == F.col("damaged_partition"), "left_outer")
    return (
        marked.groupBy(*KEY)
        .agg(*_accounts())
        .withColumn("late", F.when(F.col("ordered"), F.col("not_rising") - F.col("duplicates")))
        .select(*KEY, "first", "last", *_COUNTS, "begins", _verdict().alias("verdict"))
        .orderBy(*KEY)
    )


def summary(account: DataFrame) -> DataFrame:
    """Returns one line for everything: the sums of the lines of `verdicts`, their number, and the worst verdict."""
    unknown = F.count_if(F.isnull("late")) > 0
    sums = {name: F.coalesce(F.sum(name), F.lit(0)) for name in _COUNTS}
    sums["late"] = F.when(~unknown, sums["late"])
    worst = F.min(F.array_position(F.lit(list(VERDICTS)), F.col("verdict")))
    verdict = F.coalesce(F.element_at(F.lit(list(VERDICTS)), worst.cast("int")), F.lit(COMPLETE))
    return account.agg(
        F.count("*").alias("lines"), *(each.alias(name) for name, each in sums.items()), verdict.alias("verdict")
    )


def _marked(runs: DataFrame) -> DataFrame:
    """Returns each run with the begin of its receiver, and with the runs before it by offset and by number."""
    by_offset = Window.partitionBy(*KEY).orderBy("first_offset")
    by_number = Window.partitionBy(*KEY).orderBy("first", "first_offset").rowsBetween(Window.unboundedPreceding, -1)
    covers, is_data = F.col("type").isin(*COVERING), F.col("type") == DATA
    run = F.count_if(F.col("type") == BOS).over(by_offset)
    highest = F.max(F.when(is_data, F.col("last"))).over(by_offset.rowsBetween(Window.unboundedPreceding, -1))
    with_run = runs.withColumn("run", run).withColumn("highest", highest)
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
    """Returns how many numbers of a run are not above a number that was reached before."""
    common = F.greatest(F.least(F.col("last"), reached) - F.col("first") + 1, F.lit(0))
    return F.when(F.isnotnull(reached), common).otherwise(0)  # least and greatest ignore null


def _contradicted(covers: Column, is_data: Column) -> Column:
    """Returns how many numbers are accounted for more than once, without those of repeated messages."""
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
