"""A pipeline as a streaming job: it writes the tables of each micro-batch to the disk, and results from all of them.

Each row counts once in the results, whatever process is killed at any time: Spark repeats a micro-batch that it does
not know to be finished, and that overwrites its own tables (`batch_files`).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ipcbus.spark.pipelines.batch_files import BatchFiles
from ipcbus.spark.pipelines.compact import check_own, compact_batch
from ipcbus.spark.pipelines.results import write_results

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ipcbus.spark.pipelines.pipeline import Pipeline, Tables

PARTS: Final = "_parts"
"""Directory of the tables of micro-batches, beside the results; readers of Parquet ignore the name."""


@dataclass
class StreamingJob:
    """A pipeline over a stream.

    Attributes:
        pipeline: the pipeline.
        out: directory of the results, for this job alone.
        refresh_seconds: how often the results are written while the stream runs, by a micro-batch or by `refresh`;
            None: only by `write_results`.
    """

    pipeline: Pipeline
    out: Path
    refresh_seconds: float | None = None
    _refreshed: float = field(default_factory=time.monotonic, init=False)
    _is_old: bool = field(default=True, init=False)
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def start(self, rows: DataFrame, checkpoint: Path, *, every_seconds: float | None = None) -> StreamingQuery:
        """Starts the stream, or continues from its checkpoint.

        Args:
            rows: a stream of the data source.
            checkpoint: directory of the checkpoint, for this job alone; it belongs to `out`.
            every_seconds: time between micro-batches; None: read what the archive holds now, and end.

        Returns:
            The query; its `awaitTermination` raises the error of the stream.

        Raises:
            ConfigError: `out` has results of another pipeline, or of this one with other parameters.
        """
        BatchFiles(self.out / PARTS).check(self._what)
        return start(rows, checkpoint, self._write, name=self.pipeline.name, every_seconds=every_seconds)

    def tables(self, spark: SparkSession) -> Tables:
        """Returns the merged tables of all micro-batches; empty before the first."""
        return BatchFiles(self.out / PARTS).tables(spark, self.pipeline.merge)

    def write_results(self, spark: SparkSession) -> dict[str, Path]:
        """Writes the results so far; returns their directories by name, empty before the first micro-batch."""
        tables = self.tables(spark)
        return write_results(self.pipeline, tables, self.out) if tables else {}

    def refresh(self, spark: SparkSession) -> None:
        """Writes the results when that is due and they are out of date; to be called while no micro-batch comes.

        Does nothing while a micro-batch is written, which refreshes the results itself.
        """
        if self._writing.acquire(blocking=False):
            try:
                self._refresh(spark)
            finally:
                self._writing.release()

    def _refresh(self, spark: SparkSession) -> None:
        waited = time.monotonic() - self._refreshed
        if self._is_old and self.refresh_seconds is not None and waited >= self.refresh_seconds:
            self.write_results(spark)
            self._refreshed, self._is_old = time.monotonic(), False

    @property
    def _what(self) -> str:
        return " in ".join(filter(None, (self.pipeline.name, self.pipeline.parameters)))

    def _write(self, rows: DataFrame, batch: int) -> None:
        spark = rows.sparkSession
        parts = BatchFiles(self.out / PARTS)
        with self._writing:
            parts.claim(_stream_id(spark), batch, self._what)
            self._is_old = True
            parts.write(batch, self.pipeline.partials(rows))
            parts.merge(spark, self.pipeline.merge)
            self._refresh(spark)


def start_compact(
    rows: DataFrame, checkpoint: Path, out: Path, *, every_seconds: float | None = None
) -> StreamingQuery:
    """Starts the stream that writes rows to `out/batch_id=N/*.parquet`, or continues from its checkpoint.

    Arguments are those of `StreamingJob.start`.

    Raises:
        ConfigError: the directory has files with other columns, or files that another program wrote, for example
            `compact`.
    """
    check_own(out, "batch_id=", "which would be read together with what this stream writes")
    what = f"columns {', '.join(rows.columns)}"
    BatchFiles(out).check(what)

    def write(rows: DataFrame, batch: int) -> None:
        BatchFiles(out).claim(_stream_id(rows.sparkSession), batch, what)
        compact_batch(rows, out / f"batch_id={batch}")

    return start(rows, checkpoint, write, name="compact", every_seconds=every_seconds)


def start(
    rows: DataFrame,
    checkpoint: Path,
    write: Callable[[DataFrame, int], None],
    *,
    name: str,
    every_seconds: float | None,
) -> StreamingQuery:
    """Starts a stream that passes each micro-batch and its number to a function."""
    writer = rows.writeStream.queryName(name).option("checkpointLocation", str(checkpoint)).foreachBatch(write)
    if every_seconds is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(every_seconds * 1000)} milliseconds").start()


def _stream_id(spark: SparkSession) -> str:
    """Returns the id of the streaming query that the calling thread works for."""
    return str(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
