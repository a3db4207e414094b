"""An archive becomes Parquet that every engine reads: few, large files, sorted so that a topic is found quickly."""

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
"""Column that names the directories: the UTC day on which a message was received."""

_DAY_NS: Final = 86_400_000_000_000
_ORDER: Final = ("topic", "partition", "offset")
_CONFS: Final = {
    # Spark's own kind of time stamp is outdated elsewhere.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # What a file holds before it is compressed and encoded, by and large.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(512 << 20),
}


def compact(rows: DataFrame, out: Path) -> None:
    """Writes rows to `out/date=YYYY-MM-DD/*.parquet`, in the place of all that was there.

    Whoever does it again has the same again, without what the archive no longer has. The files are written beside
    `out` first: Spark would remove the old ones before it begins, and a job that is stopped would leave none.

    All columns of the rows are written. Within a file rows are sorted by topic, partition and offset; small days are
    one file, large ones are divided.

    Args:
        rows: of the data source.
        out: a directory of its own.

    Raises:
        ConfigError: something else is in that directory.
        StorageError: the system refuses.
    """
    check_own(out, f"{DATE}=", "and all of it would be replaced")
    day = F.date_from_unix_date(F.call_function("div", F.col("receiveTimeNs"), F.lit(_DAY_NS)).cast("int"))
    dated = rows.withColumn(DATE, day).hint("rebalance", DATE).sortWithinPartitions(DATE, *_ORDER)
    with _confs(rows.sparkSession):
        swap(out, lambda new: dated.write.mode("overwrite").partitionBy(DATE).parquet(new))


def compact_batch(rows: DataFrame, out: Path) -> None:
    """Writes the rows of a micro-batch, sorted alike, to a directory of its own, over what is there."""
    with _confs(rows.sparkSession):
        rows.hint("rebalance").sortWithinPartitions(*_ORDER).write.mode("overwrite").parquet(str(out))


def check_own(out: Path, ours: str, but: str) -> None:
    """Makes sure that a directory holds nothing else.

    Args:
        out: the directory.
        ours: how names begin that may be there.
        but: what would become of anything else.

    Raises:
        ConfigError: something else is there.
    """
    foreign = [name for name in Disk().names(out) if not name.startswith((ours, "_", "."))]
    if foreign:
        raise ConfigError(f"{out} holds {foreign[0]!r}, {but}; give a directory of its own")


@contextlib.contextmanager
def _confs(spark: SparkSession) -> Iterator[None]:
    """Sets what the files depend on, for a while."""
    before = {name: spark.conf.get(name) for name in _CONFS}
    try:
        for name, value in _CONFS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)
