"""A pipeline as a streaming job: its tables for each micro-batch on the disk, its results from all of them.

What was read is in the results once, whatever is killed when: Spark repeats a micro-batch that it does not know to be
finished, and that overwrites its own tables (`batches`).
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
"""Directory of the tables of micro-batches, beside the results; readers of Parquet pass over the name."""


@dataclass
class StreamingJob:
    """A pipeline over a stream.

    Attributes:
        pipeline: what it computes.
        out: directory of the results, of this job alone.
        refresh_seconds: how often they are written anew while the stream goes on, by a micro-batch or by `refresh`;
            None: only by `write_results`.
    """

    pipeline: Pipeline
    out: Path
    refresh_seconds: float | None = None
    _refreshed: float = field(default_factory=time.monotonic, init=False)
    _is_old: bool = field(default=True, init=False)
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def start(self, rows: DataFrame, checkpoint: Path, *, every_seconds: float | None = None) -> StreamingQuery:
        """Starts the stream, or goes on where its checkpoint says.

        Args:
            rows: a stream of the data source.
            checkpoint: directory of its own; it and `out` belong together.
            every_seconds: begin a micro-batch this often; None: read what there is now, and end.

        Returns:
            The query; `awaitTermination` raises what it failed of.

        Raises:
            ConfigError: in `out` are results of another pipeline, or of this one with other parameters.
        """
        BatchFiles(self.out / PARTS).check(self._what)
        return start(rows, checkpoint, self._write, name=self.pipeline.name, every_seconds=every_seconds)

    def tables(self, spark: SparkSession) -> Tables:
        """Returns the merged tables of all micro-batches; none before the first."""
        return BatchFiles(self.out / PARTS).tables(spark, self.pipeline.merge)

    def write_results(self, spark: SparkSession) -> dict[str, Path]:
        """Writes the results of all that was read so far; returns their directories, none before anything was."""
        tables = self.tables(spark)
        return write_results(self.pipeline, tables, self.out) if tables else {}

    def refresh(self, spark: SparkSession) -> None:
        """Writes the results when it is time and they lack something; to be called while no micro-batch comes.

        Does nothing while one is being written, which sees to it itself.
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
    """Starts the stream that writes rows to `out/batch_id=N/*.parquet`, or goes on where its checkpoint says.

    Arguments are those of `StreamingJob.start`.

    Raises:
        ConfigError: what lies there has other columns, or was written by something else: `compact`, for one.
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
    """Starts a stream whose micro-batches go to a function with their number."""
    writer = rows.writeStream.queryName(name).option("checkpointLocation", str(checkpoint)).foreachBatch(write)
    if every_seconds is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(every_seconds * 1000)} milliseconds").start()


def _stream_id(spark: SparkSession) -> str:
    """Id of the streaming query that the calling thread works for."""
    return str(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
