"""Reads an archive for a pipeline, as DataFrames of the data source."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import functions as F

from ipcbus.archive.columns import COLUMNS
from ipcbus.spark.row_schema import of_columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from ipcbus.archive import Archive

    _Reader = TypeVar("_Reader", DataFrameReader, DataStreamReader)


@dataclass(frozen=True, slots=True)
class Selection:
    """What to read.

    Attributes:
        archive: directory of the archive.
        topics: names, or with `pattern` regular expressions of Python that match whole names; empty: all topics.
        pattern: whether `topics` are regular expressions.
        since_ms: only rows received at this time or later, ms since the epoch.
        until_ms: only rows received before this time; for a batch only.
        partition: only the log of this number; None: all logs.
        careful: fail where offsets are damaged or lost; else a row says how many are lost (with events), or they are
            left out.
    """

    archive: Path
    topics: tuple[str, ...] = ()
    pattern: bool = False
    since_ms: int | None = None
    until_ms: int | None = None
    partition: int | None = None
    careful: bool = True

    def options(self) -> dict[str, str]:
        """Returns the selection as options of the data source."""
        found = {"archive": str(self.archive), "failOnDataLoss": str(self.careful).lower()}
        if self.topics:
            found["subscribePattern"] = self.expression()
        if self.since_ms is not None:
            found |= {"startingTimestamp": str(self.since_ms), "startingOffsetsByTimestampStrategy": "latest"}
        if self.until_ms is not None:
            found["endingTimestamp"] = str(self.until_ms)
        return found

    def expression(self) -> str:
        """Returns all topics as one regular expression."""
        # Names become expressions too, as `subscribe` does not accept names with a comma.
        each = self.topics if self.pattern else tuple(map(re.escape, self.topics))
        return each[0] if len(each) == 1 else "|".join(f"(?:{one})" for one in each)


def read(spark: SparkSession, what: Selection, columns: Sequence[str] = (), *, events: bool = False) -> DataFrame:
    """Returns the rows that an archive holds now.

    Args:
        spark: the session that reads them.
        what: which rows.
        columns: which columns; empty: all. Other columns cost nothing.
        events: whether losses and begins are read too.
    """
    return _load(spark.read.format("ipcbus"), what, columns, events)


def read_stream(
    spark: SparkSession,
    what: Selection,
    columns: Sequence[str] = (),
    *,
    events: bool = False,
    rows_per_batch: int | None = None,
) -> DataFrame:
    """Returns the rows that an archive holds and will hold, from its beginning; otherwise like `read`.

    Args:
        spark: the session that reads them.
        what: which rows.
        columns: which columns.
        events: whether losses and begins are read too.
        rows_per_batch: most rows of a micro-batch.
    """
    reader = spark.readStream.format("ipcbus")
    if what.since_ms is None:
        reader = reader.option("startingOffsets", "earliest")
    if rows_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(rows_per_batch))
    return _load(reader, what, columns, events)


def several(archive: Archive, what: Selection) -> list[str]:
    """Returns the source strings of sessions that several of the selected logs have, with a selected topic in common.

    Where two recorders have recorded one session, results that do not count by log count its messages twice. Only the
    lists of names are compared, so a log that continues another one looks like this too.
    """
    if what.partition is not None:
        return []
    wants = re.compile(what.expression() if what.topics else ".*", re.DOTALL).fullmatch
    names = [
        (set(log.sessions().values()), {topic for topic in log.topics().values() if wants(topic)})
        for log in archive.logs()
    ]
    found: set[str] = set()
    for (sessions, topics), (others, their_topics) in itertools.combinations(names, 2):
        if not topics.isdisjoint(their_topics):
            found |= sessions & others
    return sorted(found - {""})


def _load(reader: _Reader, what: Selection, columns: Sequence[str], events: bool) -> DataFrame:
    found = reader.options(**what.options(), includeEvents=str(events).lower())
    if columns:
        wanted = columns if what.partition is None else {*columns, "partition"}
        found = found.schema(of_columns(name for name in COLUMNS if name in wanted))
    rows = found.load()
    return rows if what.partition is None else rows.where(F.col("partition") == what.partition)
