"""What the micro-batches of a stream wrote: a directory for each, so that one that is repeated overwrites its own.

    <directory>/_stream                 id of the stream that writes here, and what it makes
    <directory>/batch_id=<N>/           what micro-batch N wrote: Parquet in a directory for each table
    <directory>/merged=<N>/             the same of all up to N, put together

Spark numbers micro-batches from 0 and repeats one that it does not know to be finished, with the same rows. After a
crash at any point each row is therefore there once, for every reader of Parquet. The driver and its executors have to
see the directory under the same path.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Final

from ipcbus.embedding import Disk, FileMissing
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

MERGE_AT: Final = 64
"""So many micro-batches are put together; few enough that reading them is quick."""

_STREAM: Final = "_stream"
_MERGING: Final = "_merging"
_DONE: Final = "_SUCCESS"
_CLAIM_MAX: Final = 10_000
_FOLDER: Final = re.compile(r"(batch_id|merged)=(\d{1,18})", re.ASCII)


class BatchFiles:
    """The directory of one stream's micro-batches."""

    def __init__(self, path: Path) -> None:
        """Makes nothing yet."""
        self.path = path
        self._files = Disk()

    def check(self, what: str) -> None:
        """Makes sure that what is there can be merged with what a stream is about to make.

        Args:
            what: which tables, with all that their lines depend on, in words.

        Raises:
            ConfigError: it is something else.
        """
        known = self._claimed()
        if known is not None and known[1] != what:
            raise ConfigError(
                f"{self.path} holds {known[1] or 'something else'}, and this stream makes {what}; go on as it began, "
                "or begin with another directory and another checkpoint"
            )

    def claim(self, stream: str, batch: int, what: str) -> None:
        """Makes the directory this stream's.

        Args:
            stream: id of the streaming query; it stays the same as long as its checkpoint.
            batch: the micro-batch that it is about to write.
            what: see `check`.

        Raises:
            ConfigError: another stream has written here, whose batches have the same numbers and other rows; or the
                batches of this stream before that one were written elsewhere.
            StorageError: the system refuses.
        """
        self._files.make_dir(self.path)
        known = self._claimed()
        if known is None and batch > 0:
            raise ConfigError(
                f"{self.path} is new, and the checkpoint has come to micro-batch {batch}: what was read before is not "
                "here; give each pipeline a checkpoint of its own, which belongs to its results"
            )
        if known is None and self._files.create(self.path / _STREAM, f"{stream}\n{what}\n".encode()):
            return
        owner = (known or self._claimed() or ("unknown", ""))[0]
        if owner != stream:
            raise ConfigError(
                f"{self.path} holds what another stream wrote ({owner}, this one is {stream}); go on with the "
                "checkpoint of that one, or give another directory"
            )

    def write(self, batch: int, tables: Mapping[str, DataFrame]) -> None:
        """Writes the tables of a micro-batch, over what an unfinished attempt has left.

        Raises:
            ConfigError: it was put together with others long ago, so the checkpoint is an old one.
        """
        merged = self._newest("merged")
        if batch <= merged:
            raise ConfigError(
                f"{self.path} has all micro-batches up to {merged}, and number {batch} comes again: the checkpoint is "
                "an older one; start with a new checkpoint and another directory"
            )
        for name, table in tables.items():
            table.write.mode("overwrite").parquet(str(self.path / f"batch_id={batch}" / name))

    def tables(
        self, spark: SparkSession, names: Mapping[str, Callable[[DataFrame], DataFrame]]
    ) -> dict[str, DataFrame]:
        """Returns all that was written, merged.

        Args:
            spark: what reads it.
            names: the tables, and what merges the rows of several micro-batches.

        Returns:
            The tables that are there; none before the first micro-batch.
        """
        return self._merged(spark, names, self._complete(names))

    def merge(
        self, spark: SparkSession, names: Mapping[str, Callable[[DataFrame], DataFrame]], *, at: int | None = None
    ) -> None:
        """Puts micro-batches together when there are more than `at`; not the last one, which may come again."""
        self._tidy()
        ids = self._ids("batch_id")
        if len(ids) <= (MERGE_AT if at is None else at):
            return
        last = ids[-2]
        scratch = self.path / _MERGING
        for name, table in self._merged(spark, names, self._complete(names, last)).items():
            table.write.mode("overwrite").parquet(str(scratch / name))
        self._files.rename(scratch, self.path / f"merged={last}")
        self._files.sync_dir(self.path)
        self._tidy()

    def _tidy(self) -> None:
        """Removes what the newest merged directory holds too."""
        merged = self._newest("merged")
        covered = [f"batch_id={number}" for number in self._ids("batch_id") if number <= merged]
        for folder in covered + [f"merged={number}" for number in self._ids("merged") if number < merged]:
            shutil.rmtree(self.path / folder, ignore_errors=True)

    def _merged(
        self, spark: SparkSession, names: Mapping[str, Callable[[DataFrame], DataFrame]], folders: list[Path]
    ) -> dict[str, DataFrame]:
        if not folders:
            return {}
        return {
            name: merge(spark.read.parquet(*(str(folder / name) for folder in folders)))
            for name, merge in names.items()
        }

    def _complete(self, names: Mapping[str, object], last: int | None = None) -> list[Path]:
        """Returns the directories that count: the newest merged one, and the micro-batches after it."""
        merged = self._newest("merged")
        found = [self.path / f"merged={merged}"] if merged >= 0 else []
        for number in self._ids("batch_id"):
            folder = self.path / f"batch_id={number}"
            if (
                merged < number
                and (last is None or number <= last)
                and all((folder / name / _DONE).exists() for name in names)
            ):
                found.append(folder)
        return found

    def _newest(self, kind: str) -> int:
        return max(self._ids(kind), default=-1)

    def _ids(self, kind: str) -> list[int]:
        matches = map(_FOLDER.fullmatch, self._files.names(self.path))
        return sorted(int(match[2]) for match in matches if match and match[1] == kind)

    def _claimed(self) -> tuple[str, str] | None:
        """Who writes here, and what."""
        try:
            file = self._files.open(self.path / _STREAM)
        except FileMissing:
            return None
        try:
            stream, _, what = file.read_at(0, _CLAIM_MAX).decode(errors="replace").partition("\n")
            return stream, what.strip()
        finally:
            file.close()
