"""Writes an archive as Parquet or Arrow files, which Spark, DuckDB, Polars and pandas read.

Memory does not grow with the archive, as rows are converted in batches. A file gets its name when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from ipcbus.archive.arrow import Converter, chunks, loss_row, schema
from ipcbus.archive.columns import default_columns
from ipcbus.archive.export_result import Exported, Missing
from ipcbus.archive.row_filter import Labels, RowSelection
from ipcbus.errors import ArchiveDamaged, ConfigError, StorageError, StorageFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ipcbus.archive.archive import Archive
    from ipcbus.archive.log import Log
    from ipcbus.archive.segments import Chunk

Form = Literal["parquet", "arrow"]

FILE_BYTES: Final = 256 << 20
"""In a directory, the next file begins when one has reached this size in bytes."""

_GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 64 << 20
"""Most rows and bytes of a row group, which is held in memory here and by readers."""
_READ_ROWS: Final = 65536
_READ_BYTES: Final = 16 << 20
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def export(
    archive: Archive,
    to: Path,
    *,
    form: Form = "parquet",
    selection: RowSelection | None = None,
    on_progress: Callable[[int], None] = lambda _rows: None,
    skip_damaged: bool = False,
    on_missing: Callable[[Missing], None] = lambda _missing: None,
) -> list[Exported]:
    """Writes what an archive holds now.

    Args:
        archive: the archive; recorders may go on meanwhile.
        to: a new file, where the name ends in `.parquet` or `.arrow`; else a directory, made if needed, for files
            `<stream>-<partition>-<number>.parquet`, each of one log.
        form: Parquet, or Arrow's IPC file; both are compressed with zstd.
        selection: which rows; by default all messages. A selection with events adds their columns, and a row for each
            hole.
        on_progress: called with the number of rows that were read since the last call.
        skip_damaged: leave damaged rows out; with events a row of type 254 stands in their place, as for a hole.
        on_missing: called for each range of rows that is left out, because of damage or a hole.

    Returns:
        The files, by logs.

    Raises:
        ConfigError: a file exists already, or its name contradicts the form.
        ArchiveDamaged: the archive is damaged, and `skip_damaged` is false.
        OffsetsExpired: retention removed rows before they were read.
        StorageFull: the disk is full.
        StorageError: the system refuses.
    """
    selected = selection or RowSelection()
    columns = schema(default_columns(headers=True, events=selected.events, waits=True))
    parts = [(log, _LogRows(log, columns, selected, on_progress, skip_damaged, on_missing)) for log in archive.logs()]
    if to.suffix in (".parquet", ".arrow"):
        if to.suffix != f".{form}":
            raise ConfigError(f"{to} cannot be {form}; name it {to.with_suffix('.' + form).name}, or give a directory")
        batches = (batch for _, part in parts for batch in part.batches())
        return [_File.write_all(to, form, columns, _tables(batches))]
    with _typed_errors(to):
        to.mkdir(parents=True, exist_ok=True)
    found = []
    for log, part in parts:
        tables = _tables(part.batches())
        stem = log.key.replace("/", "-")
        for number, first in enumerate(tables):
            path = to / f"{stem}-{number:05d}.{form}"
            found.append(_File.write_all(path, form, columns, itertools.chain([first], tables), FILE_BYTES))
    return found


class _LogRows:
    """The rows of one log."""

    def __init__(
        self,
        log: Log,
        columns: Any,  # noqa: ANN401
        selection: RowSelection,
        on_progress: Callable[[int], None],
        skip_damaged: bool,
        on_missing: Callable[[Missing], None],
    ) -> None:
        self._log = log
        self._columns = columns
        self._selection = selection
        self._on_progress = on_progress
        self._on_damage = self._damage if skip_damaged else None
        self._on_missing = on_missing
        self._losses: list[Chunk] = []  # rows that stand for rows that are left out

    def batches(self) -> Iterator[Any]:
        """Yields the rows as record batches."""
        try:
            start, end = self._log.bounds()
            converter = Converter(Labels(self._log), self._columns, self._selection)
        except ArchiveDamaged as error:
            if self._on_damage is None:
                raise
            self._on_missing(Missing(self._log.key, None, None, str(error), damaged=True))
            return
        limits: dict[str, Any] = {"max_rows": _READ_ROWS, "max_bytes": _READ_BYTES, "on_damage": self._on_damage}
        at = end if converter.wants_none else start
        self._on_progress(at - start)
        for chunk in chunks(self._log, at, end, converter, on_hole=self._hole, **limits):
            for batch in converter.good_batches(chunk, self._on_damage):
                yield from self._loss_batches(converter)
                yield batch
            after = chunk.offset + len(chunk.rows)
            self._on_progress(after - at)
            at = after
        self._on_progress(end - at)
        yield from self._loss_batches(converter)

    def _loss_batches(self, converter: Converter) -> Iterator[Any]:
        yield from filter(None, map(converter.batch, self._losses))
        self._losses.clear()

    def _hole(self, first: int, end: int) -> None:
        self._losses.append(loss_row(first, end))
        self._on_missing(Missing(self._log.key, first, end, "lost in a power loss", damaged=False))

    def _damage(self, first: int, end: int, reason: str) -> None:
        self._losses.append(loss_row(first, end))
        self._on_missing(Missing(self._log.key, first, end, reason, damaged=True))


def _tables(batches: Iterable[Any]) -> Iterator[Any]:
    """Yields batches joined to tables of the size of a row group."""
    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


class _File:
    """A file that has a temporary name until it is complete."""

    def __init__(self, path: Path, form: Form, columns: Any) -> None:  # noqa: ANN401
        """Opens the file.

        Raises:
            ConfigError: a file of this name exists.
        """
        if path.exists():
            raise ConfigError(f"{path} exists already; remove it, or export to another place")
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        self._rows = 0
        self.sink = self._unfinished.open("xb")
        if form == "parquet":
            import pyarrow.parquet as pq

            self._writer = pq.ParquetWriter(self.sink, columns, compression="zstd")
        else:
            self._writer = pa.ipc.new_file(self.sink, columns, options=pa.ipc.IpcWriteOptions(compression="zstd"))

    @classmethod
    def write_all(
        cls,
        path: Path,
        form: Form,
        columns: Any,  # noqa: ANN401
        tables: Iterator[Any],
        limit: int | None = None,
    ) -> Exported:
        """Writes tables into a file until no more come, or the file has reached the limit in bytes."""
        with _typed_errors(path):
            file = cls(path, form, columns)
            try:
                for table in tables:
                    file.write(table)
                    if limit is not None and file.sink.tell() >= limit:
                        break
                return file.finish()
            except BaseException:
                file.discard()
                raise

    def write(self, table: Any) -> None:  # noqa: ANN401
        """Writes a table as a row group."""
        self._writer.write_table(table, table.num_rows)
        self._rows += table.num_rows

    def finish(self) -> Exported:
        """Completes the file and gives it its name."""
        self._writer.close()
        self.sink.flush()
        os.fsync(self.sink.fileno())
        length = self.sink.tell()
        self.sink.close()
        self._unfinished.rename(self._path)
        return Exported(str(self._path), self._rows, length)

    def discard(self) -> None:
        """Removes what was written."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        with contextlib.suppress(OSError):
            self.sink.close()
        self._unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def _typed_errors(path: Path) -> Iterator[None]:
    """Raises an error of the system as an error of this package."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(
                f"{path}: the disk is full ({error.strerror}); make room, or export to another disk"
            ) from error
        raise StorageError(f"{path} cannot be written ({error.strerror or error}); export to another place") from error
