"""What of an archive a pipeline reads, as DataFrames of the data source."""

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
        archive: its directory.
        topics: names, or with `pattern` regular expressions of Python that match whole names; all when there are none.
        pattern: whether `topics` are regular expressions.
        since_ms: only what was received then or later, ms since the epoch.
        until_ms: only what was received before; a batch only.
        partition: only the log of this number; all when there is none.
        careful: fail where offsets are damaged or gone; else a row says how many are lost (with events), or they are
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
        """Returns the same as options of the data source."""
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
        # Names as expressions too: `subscribe` takes none with a comma.
        each = self.topics if self.pattern else tuple(map(re.escape, self.topics))
        return each[0] if len(each) == 1 else "|".join(f"(?:{one})" for one in each)


def read(spark: SparkSession, what: Selection, columns: Sequence[str] = (), *, events: bool = False) -> DataFrame:
    """Returns the rows that an archive holds now.

    Args:
        spark: reads them.
        what: which.
        columns: which columns; all when there are none. What is not named costs nothing.
        events: losses and begins too.
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
    """Returns the rows that an archive holds and will hold, from its beginning; otherwise as `read`.

    Args:
        spark: reads them.
        what: which.
        columns: which columns.
        events: losses and begins too.
        rows_per_batch: at most so many in a micro-batch.
    """
    reader = spark.readStream.format("ipcbus")
    if what.since_ms is None:
        reader = reader.option("startingOffsets", "earliest")
    if rows_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(rows_per_batch))
    return _load(reader, what, columns, events)


def several(archive: Archive, what: Selection) -> list[str]:
    """Sessions that more than one of the logs that are read has, with a topic that is: sorted source strings.

    Where two recorders have recorded the same messages, what is not counted by log counts them twice. Only the lists
    of names of the logs are looked at; so one that went on where another one had ended looks like this too.
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
