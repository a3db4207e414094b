"""An archive as Parquet or Arrow files, which Spark, DuckDB, Polars and pandas read; made without any of them.

Rows go through in batches, so that memory does not grow with the archive. A file gets its name when it is whole.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from ipcbus.archive.arrow import Converter, chunks, lost_rows, schema
from ipcbus.archive.columns import chosen
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
"""In a directory, the next file begins when one has become so long."""

_GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 64 << 20
"""Rows of a row group and its bytes in memory: what readers read in one go, and what is held here."""
_READ_ROWS: Final = 65536
_READ_BYTES: Final = 16 << 20
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def export(
    archive: Archive,
    to: Path,
    *,
    form: Form = "parquet",
    choice: RowSelection | None = None,
    told: Callable[[int], None] = lambda _rows: None,
    skip_damaged: bool = False,
    missing: Callable[[Missing], None] = lambda _missing: None,
) -> list[Exported]:
    """Writes what an archive holds now.

    Args:
        archive: the archive; recorders may go on meanwhile.
        to: a new file, where the name ends in `.parquet` or `.arrow`; else a directory, which is made if needed, for
            files `<stream>-<partition>-<number>.parquet` of one log each.
        form: Parquet, or Arrow's IPC file; both are compressed with zstd.
        choice: which rows; all messages by default. With events come their columns, and a row for each hole.
        told: called with how many rows were looked at since the last call.
        skip_damaged: leave out what is damaged; with events a row of type 254 stands in its place, as for a hole.
        missing: called for each stretch of rows that is left out, because of damage or a hole.

    Returns:
        The files, by logs.

    Raises:
        ConfigError: a file is there already, or its name contradicts the form.
        ArchiveDamaged: the archive is damaged, and `skip_damaged` is false.
        OffsetsExpired: retention was faster.
        StorageFull: there is no room.
        StorageError: the system refuses.
    """
    wanted = choice or RowSelection()
    columns = schema(chosen(headers=True, events=wanted.events, waits=True))
    parts = [(log, _Part(log, columns, wanted, told, skip_damaged, missing)) for log in archive.logs()]
    if to.suffix in (".parquet", ".arrow"):
        if to.suffix != f".{form}":
            raise ConfigError(f"{to} cannot be {form}; name it {to.with_suffix('.' + form).name}, or give a directory")
        batches = (batch for _, part in parts for batch in part.batches())
        return [_File.whole(to, form, columns, _tables(batches))]
    with _explained(to):
        to.mkdir(parents=True, exist_ok=True)
    found = []
    for log, part in parts:
        tables = _tables(part.batches())
        stem = log.key.replace("/", "-")
        for number, first in enumerate(tables):
            path = to / f"{stem}-{number:05d}.{form}"
            found.append(_File.whole(path, form, columns, _chain(first, tables), FILE_BYTES))
    return found


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:  # noqa: ANN401
    yield first
    yield from rest


class _Part:
    """The rows of one log."""

    def __init__(
        self,
        log: Log,
        columns: Any,  # noqa: ANN401
        choice: RowSelection,
        told: Callable[[int], None],
        skip_damaged: bool,
        missing: Callable[[Missing], None],
    ) -> None:
        """As `export` was asked for them."""
        self._log = log
        self._columns = columns
        self._choice = choice
        self._told = told
        self._on_damage = self._damage if skip_damaged else None
        self._missing = missing
        self._lost: list[Chunk] = []  # rows that stand for what is left out, and are not handed out yet

    def batches(self) -> Iterator[Any]:
        """Yields the rows as record batches."""
        try:
            start, end = self._log.bounds()
            converter = Converter(Labels(self._log), self._columns, self._choice)
        except ArchiveDamaged as error:
            if self._on_damage is None:
                raise
            self._missing(Missing(self._log.key, None, None, str(error), damaged=True))
            return
        limits: dict[str, Any] = {"max_rows": _READ_ROWS, "max_bytes": _READ_BYTES, "on_damage": self._on_damage}
        at = end if converter.wants_none else start
        self._told(at - start)
        for chunk in chunks(self._log, at, end, converter, on_hole=self._hole, **limits):
            for batch in converter.good_batches(chunk, self._on_damage):
                yield from self._instead(converter)
                yield batch
            after = chunk.offset + len(chunk.rows)
            self._told(after - at)
            at = after
        self._told(end - at)
        yield from self._instead(converter)

    def _instead(self, converter: Converter) -> Iterator[Any]:
        yield from filter(None, map(converter.batch, self._lost))
        self._lost.clear()

    def _hole(self, first: int, end: int) -> None:
        self._lost.append(lost_rows(first, end))
        self._missing(Missing(self._log.key, first, end, "lost in a power loss", damaged=False))

    def _damage(self, first: int, end: int, reason: str) -> None:
        self._lost.append(lost_rows(first, end))
        self._missing(Missing(self._log.key, first, end, reason, damaged=True))


def _tables(batches: Iterable[Any]) -> Iterator[Any]:
    """Batches put together to tables of the size of a row group."""
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
    """A file that is written under another name first."""

    def __init__(self, path: Path, form: Form, columns: Any) -> None:  # noqa: ANN401
        """Opens it.

        Raises:
            ConfigError: there is one of this name.
        """
        if path.exists():
            raise ConfigError(f"{path} is there already; remove it, or export to another place")
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
    def whole(
        cls,
        path: Path,
        form: Form,
        columns: Any,  # noqa: ANN401
        tables: Iterator[Any],
        limit: int | None = None,
    ) -> Exported:
        """Writes tables into a file until there are no more, or it has become as long as the limit."""
        with _explained(path):
            file = cls(path, form, columns)
            try:
                for table in tables:
                    file.write(table)
                    if limit is not None and file.sink.tell() >= limit:
                        break
                return file.done()
            except BaseException:
                file.given_up()
                raise

    def write(self, table: Any) -> None:  # noqa: ANN401
        """Writes a table as a row group."""
        self._writer.write_table(table, table.num_rows)
        self._rows += table.num_rows

    def done(self) -> Exported:
        """Gives it its name."""
        self._writer.close()
        self.sink.flush()
        os.fsync(self.sink.fileno())
        length = self.sink.tell()
        self.sink.close()
        self._unfinished.rename(self._path)
        return Exported(str(self._path), self._rows, length)

    def given_up(self) -> None:
        """Leaves nothing behind."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        with contextlib.suppress(OSError):
            self.sink.close()
        self._unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raises what the system refuses as an error of ours."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(f"{path} has no room ({error.strerror}); make room, or export to another disk") from error
        raise StorageError(f"{path} cannot be written: {error.strerror or error}; export to another place") from error
