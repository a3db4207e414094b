"""Rewrites an archive as Parquet files that every engine reads: few, large, and sorted by topic."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ipcbus.embedding import Disk
from ipcbus.errors import ConfigError
from ipcbus.spark.pipelines.results import swap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

DATE: Final = "date"
"""Column that names the directories: the UTC day of the receive time."""

_DAY_NS: Final = 86_400_000_000_000
_ORDER: Final = ("topic", "partition", "offset")
_CONFS: Final = {
    # Other engines deprecate Spark's default type of time stamps.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # The approximate size of a file before encoding and compression.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(512 << 20),
}


def compact(rows: DataFrame, out: Path) -> None:
    """Writes rows to `out/date=YYYY-MM-DD/*.parquet`, in place of all files there.

    A second run makes the same files, without rows that the archive no longer has. The files are written beside `out`
    first: Spark would remove the old files before it begins, so a job that is stopped would leave none.

    All columns of the rows are written. Within a file rows are sorted by topic, partition and offset; small days are
    one file, large days are divided.

    Args:
        rows: rows of the data source.
        out: a directory for these files alone.

    Raises:
        ConfigError: the directory has other files.
        StorageError: the system refuses.
    """
    check_own(out, f"{DATE}=", "and all of it would be replaced")
    day = F.date_from_unix_date(F.call_function("div", F.col("receiveTimeNs"), F.lit(_DAY_NS)).cast("int"))
    dated = rows.withColumn(DATE, day).hint("rebalance", DATE).sortWithinPartitions(DATE, *_ORDER)
    with _confs(rows.sparkSession):
        swap(out, lambda new: dated.write.mode("overwrite").partitionBy(DATE).parquet(new))


def compact_batch(rows: DataFrame, out: Path) -> None:
    """Writes the rows of a micro-batch, sorted like `compact`, to its own directory, over the files there."""
    with _confs(rows.sparkSession):
        rows.hint("rebalance").sortWithinPartitions(*_ORDER).write.mode("overwrite").parquet(str(out))


def check_own(out: Path, ours: str, but: str) -> None:
    """Checks that a directory has no other files.

    Args:
        out: the directory.
        ours: prefix of the names that may be there.
        but: what would happen to other files.

    Raises:
        ConfigError: the directory has other files.
    """
    foreign = [name for name in Disk().names(out) if not name.startswith((ours, "_", "."))]
    if foreign:
        raise ConfigError(f"{out} holds {foreign[0]!r}, {but}; give another directory")


@contextlib.contextmanager
def _confs(spark: SparkSession) -> Iterator[None]:
    """Sets the settings that the files depend on, for the duration of a block."""
    before = {name: spark.conf.get(name) for name in _CONFS}
    try:
        for name, value in _CONFS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)
