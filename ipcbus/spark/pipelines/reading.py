"""What of an archive a pipeline reads, as DataFrames of the data source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

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
        careful: fail where offsets are damaged or gone; else a row says how many are lost (with events), or they are
            left out.
    """

    archive: Path
    topics: tuple[str, ...] = ()
    pattern: bool = False
    since_ms: int | None = None
    until_ms: int | None = None
    careful: bool = True

    def options(self) -> dict[str, str]:
        """The same as options of the data source."""
        found = {"archive": str(self.archive), "failOnDataLoss": str(self.careful).lower()}
        if self.topics:
            found["subscribePattern"] = self._expression()
        if self.since_ms is not None:
            found |= {"startingTimestamp": str(self.since_ms), "startingOffsetsByTimestampStrategy": "latest"}
        if self.until_ms is not None:
            found["endingTimestamp"] = str(self.until_ms)
        return found

    def _expression(self) -> str:
        # Names as expressions too: `subscribe` takes none with a comma.
        each = self.topics if self.pattern else tuple(map(re.escape, self.topics))
        return each[0] if len(each) == 1 else "|".join(f"(?:{one})" for one in each)


def read(spark: SparkSession, what: Selection, columns: Sequence[str] = (), *, events: bool = False) -> DataFrame:
    """The rows that an archive holds now.

    Args:
        spark: reads them.
        what: which.
        columns: which columns; all when there are none. What is not named costs nothing.
        events: losses and begins too.
    """
    return _narrowed(spark.read.format("ipcbus"), what, columns, events).load()


def read_stream(
    spark: SparkSession,
    what: Selection,
    columns: Sequence[str] = (),
    *,
    events: bool = False,
    rows_per_batch: int | None = None,
) -> DataFrame:
    """The rows that an archive holds and will hold, from its beginning; otherwise as `read`.

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
    return _narrowed(reader, what, columns, events).load()


def _narrowed(reader: _Reader, what: Selection, columns: Sequence[str], events: bool) -> _Reader:
    found = reader.options(**what.options(), includeEvents=str(events).lower())
    if not columns:
        return found
    every = found.load().schema
    return found.schema(StructType([field for field in every.fields if field.name in columns]))
