"""The files of a stream's micro-batches: a directory for each, so that a repeated micro-batch overwrites its own files.

    <directory>/_stream                 id of the stream that writes here, and what it makes
    <directory>/batch_id=<N>/           the tables of micro-batch N: a directory of Parquet files for each table
    <directory>/merged=<N>/             the merged tables of all micro-batches up to N

Spark numbers micro-batches from 0, and repeats a micro-batch with its rows when it does not know that it is finished.
So after a crash at any point each row is there once, for every reader of Parquet. The driver and its executors must see
the directory under one path.
"""

from __future__ import annotations

import contextlib
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
"""Above this number, micro-batches are merged; reading this many is still quick."""

_STREAM: Final = "_stream"
_MERGING: Final = "_merging"
_DONE: Final = "_SUCCESS"
_CLAIM_MAX: Final = 10_000
_FOLDER: Final = re.compile(r"(batch_id|merged)=(\d{1,18})", re.ASCII)


class BatchFiles:
    """The directory of one stream's micro-batches."""

    def __init__(self, path: Path) -> None:
        """Takes the directory; makes nothing yet."""
        self.path = path
        self._files = Disk()

    def check(self, what: str) -> None:
        """Checks that the files in the directory can be merged with those that a stream is about to make.

        Args:
            what: the tables, with all that their lines depend on, in words.

        Raises:
            ConfigError: the directory holds other files.
        """
        known = self._claimed()
        if known is not None and known[1] != what:
            raise ConfigError(
                f"{self.path} holds {known[1] or 'other files'}, but this stream makes {what}; use the parameters "
                "of the first run, or another directory and another checkpoint"
            )

    def claim(self, stream: str, batch: int, what: str) -> None:
        """Notes that the directory belongs to this stream.

        Args:
            stream: id of the streaming query; it does not change as long as its checkpoint exists.
            batch: the micro-batch that the stream is about to write.
            what: see `check`.

        Raises:
            ConfigError: another stream has written here, whose micro-batches have the same numbers and other rows; or
                earlier micro-batches of this stream were written elsewhere.
            StorageError: the system refuses.
        """
        self._files.make_dir(self.path)
        known = self._claimed()
        if known is None and batch > 0:
            raise ConfigError(
                f"{self.path} is new, but the checkpoint has reached micro-batch {batch}: the results of earlier ones "
                "are elsewhere; give each pipeline its own checkpoint, which belongs to its results"
            )
        if known is None and self._files.create(self.path / _STREAM, f"{stream}\n{what}\n".encode()):
            return
        owner = (known or self._claimed() or ("unknown", ""))[0]
        if owner != stream:
            raise ConfigError(
                f"{self.path} holds files of another stream ({owner}, this one is {stream}); use the checkpoint of "
                "that stream, or give another directory"
            )

    def write(self, batch: int, tables: Mapping[str, DataFrame]) -> None:
        """Writes the tables of a micro-batch, over the files of an unfinished attempt.

        Raises:
            ConfigError: the micro-batch was merged already, so the checkpoint is an old one.
        """
        merged = self._newest("merged")
        if batch <= merged:
            raise ConfigError(
                f"{self.path} has all micro-batches up to {merged}, but number {batch} comes again, as the checkpoint "
                "is older; start with a new checkpoint and another directory"
            )
        for name, table in tables.items():
            table.write.mode("overwrite").parquet(str(self.path / f"batch_id={batch}" / name))

    def tables(
        self, spark: SparkSession, names: Mapping[str, Callable[[DataFrame], DataFrame]]
    ) -> dict[str, DataFrame]:
        """Returns the merged tables of all micro-batches.

        Args:
            spark: the session that reads them.
            names: name of a table -> function that merges the rows of several micro-batches.

        Returns:
            The tables; empty before the first micro-batch.
        """
        return self._merged(spark, names, self._complete(names))

    def merge(
        self, spark: SparkSession, names: Mapping[str, Callable[[DataFrame], DataFrame]], *, at: int | None = None
    ) -> None:
        """Merges micro-batches when there are more than `at`; not the last one, which may be repeated."""
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
        """Removes files that the newest merged directory holds too."""
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
        """Returns the directories to read: the newest merged one, and the complete micro-batches after it."""
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
        """Returns the id of the stream that writes here, and what it makes; None for a new directory."""
        try:
            with contextlib.closing(self._files.open(self.path / _STREAM)) as file:
                stream, _, what = file.read_at(0, _CLAIM_MAX).decode(errors="replace").partition("\n")
        except FileMissing:
            return None
        return stream, what.strip()
