"""Rows of an archive as Arrow record batches: whole columns at a time; the bytes of messages are copied once at most.

Needs pyarrow, which only this module of the package uses; the extra `spark` installs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ipcbus.archive.archive_layout import ROW, TYPE_LOSS_DAMAGE
from ipcbus.archive.batch_waits import UNKNOWN
from ipcbus.archive.columns import COLUMNS
from ipcbus.archive.row_filter import Labels, RowFilter, RowSelection, numbers
from ipcbus.archive.segments import Chunk
from ipcbus.embedding import unpack_headers
from ipcbus.errors import ArchiveDamaged
from ipcbus.extras import how_to_install
from ipcbus.message import MessageType

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError(f"Arrow batches of an archive need pyarrow; {how_to_install('spark')}") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ipcbus.archive.log import Log

    Headers = tuple[tuple[str, bytes], ...]

KEY: Final = "key"
"""The header whose value becomes the column `key`."""

# Names and nullability are those that Spark gives to the type.
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
TYPES: Final[dict[str, Any]] = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": _HEADERS,
}
"""Kind of a column -> pyarrow type."""


def schema(names: Sequence[str], nullable: Sequence[bool] | None = None) -> Any:  # noqa: ANN401
    """Returns the pyarrow schema of some columns, in this order.

    Args:
        names: names of `COLUMNS`.
        nullable: whether each may be null; by default what `COLUMNS` says.
    """
    declared = nullable if nullable is not None else [COLUMNS[name].nullable for name in names]
    return pa.schema(
        [pa.field(name, TYPES[COLUMNS[name].kind], may) for name, may in zip(names, declared, strict=True)]
    )


def chunks(
    log: Log,
    start: int,
    end: int,
    converter: Converter,
    *,
    max_rows: int,
    max_bytes: int,
    on_damage: Callable[[int, int, str], None] | None = None,
    on_hole: Callable[[int, int], None] | None = None,
) -> Iterator[Chunk]:
    """Reads what a converter needs, as `Log.read` does: only blocks and bytes of messages that can be selected."""
    limits: dict[str, Any] = {"max_rows": max_rows, "max_bytes": max_bytes, "on_damage": on_damage, "on_hole": on_hole}
    limits["wants"] = converter.row_filter.wants
    names = converter.names
    headers = "key" in names or "headers" in names
    # Where only some rows are selected, the rows are read before the bytes of messages.
    at_once = "value" in names and not converter.row_filter.selective
    for chunk in log.read(start, end, messages=at_once, **limits):
        if at_once or not ("value" in names or (headers and chunk.rows["headers"].any())):
            yield chunk
            continue
        found = converter.row_filter.indices(chunk.rows, chunk.offset)
        if found is None:
            yield from log.read(chunk.offset, chunk.offset + len(chunk.rows), **limits)
        elif len(found):
            yield from log.read(chunk.offset + int(found[0]), chunk.offset + int(found[-1]) + 1, **limits)


class Converter:
    """Makes record batches of the rows of one log; makes and reads only the columns of the schema.

    Attributes:
        names: the names of the columns.
        row_filter: which rows are selected.
        wants_none: whether no row of the log can be selected.
    """

    def __init__(self, labels: Labels, schema: Any, selection: RowSelection | None = None) -> None:  # noqa: ANN401
        """Prepares for the rows of one log.

        Args:
            labels: names of the log, read after the rows were published.
            schema: what the function `schema` returned.
            selection: which rows to convert; by default all messages.
        """
        self._labels = labels
        self._schema = schema
        self.names: Sequence[str] = schema.names
        self.row_filter = RowFilter(selection or RowSelection(), labels)
        self.wants_none = self.row_filter.wants_none
        self._topics = pa.array(labels.topics, pa.string())
        self._sources = pa.array(labels.sources, pa.string())

    def batch(self, chunk: Chunk) -> Any:  # noqa: ANN401
        """Returns the selected rows of a chunk as a `pyarrow.RecordBatch`; None when no row is selected.

        Raises:
            ArchiveDamaged: the rows contradict the log's names or the bytes.
        """
        indices = self.row_filter.indices(chunk.rows, chunk.offset)
        count = len(chunk.rows) if indices is None else len(indices)
        if not count:
            return None
        rows = chunk.rows if indices is None else chunk.rows[indices]
        offsets = chunk.offset + (np.arange(count) if indices is None else indices)
        payload = _Payload(chunk, indices, rows)
        arrays = [self._column(name, rows, offsets, payload) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def good_batches(self, chunk: Chunk, on_damage: Callable[[int, int, str], None] | None) -> Iterator[Any]:
        """Yields batches as `batch` does, without damaged rows.

        `on_damage` gets their offsets and the reason; where it is None, the error is raised.
        """
        try:
            found = self.batch(chunk)
        except ArchiveDamaged as error:
            if on_damage is None:
                raise
            count, middle = len(chunk.rows), len(chunk.rows) // 2
            if count == 1:
                on_damage(chunk.offset, chunk.offset + 1, str(error))
                return
            begin = int(chunk.rows[middle]["position"])
            at = begin - chunk.data_start
            yield from self.good_batches(
                Chunk(chunk.offset, chunk.rows[:middle], chunk.data[:at], chunk.data_start), on_damage
            )
            yield from self.good_batches(
                Chunk(chunk.offset + middle, chunk.rows[middle:], chunk.data[at:], begin), on_damage
            )
            return
        if found is not None:
            yield found

    def _column(self, name: str, rows: NDArray[np.void], offsets: NDArray[np.int64], payload: _Payload) -> Any:  # noqa: ANN401
        if name == "value":
            return payload.values()
        if name == "key":
            return payload.keys()
        if name == "headers":
            return payload.headers()
        if name in ("topic", "source"):
            texts, field = (self._topics, "topic") if name == "topic" else (self._sources, "session")
            return _texts(texts, rows[field])
        found = numbers(name, rows, offsets, self._labels)
        if name == "batchWaitNs":
            return pa.array(found, mask=found == UNKNOWN)
        kind = COLUMNS[name].kind
        if kind == "int":
            return pa.array(found.astype(np.int32))
        return pa.array(found) if kind == "long" else pa.array(found).view(TYPES[kind])


def loss_row(first: int, end: int) -> Chunk:
    """Returns one row, at the offset `first`, for the offsets up to `end` that cannot be read."""
    rows = np.zeros(1, ROW)
    rows["type"] = TYPE_LOSS_DAMAGE
    rows["numbers"] = min(end - first, np.iinfo(np.uint32).max)
    return Chunk(first, rows, np.empty(0, np.uint8), 0)


def _texts(texts: Any, which: NDArray[np.void]) -> Any:  # noqa: ANN401
    """Returns the text of each number; faster where all are equal, which is common."""
    first = which[0]
    if (which == first).all():
        return pa.repeat(texts[int(first)], len(which))
    return texts.take(pa.array(np.ascontiguousarray(which)))


class _Payload:
    """The bytes of some rows of a chunk; each column is made when it is asked for."""

    def __init__(self, chunk: Chunk, indices: NDArray[np.intp] | None, rows: NDArray[np.void]) -> None:
        """Takes the chunk, the indices of the selected rows (None: all), and these rows."""
        self._chunk = chunk
        self._indices = indices
        self._rows = rows
        self._header_lists: tuple[NDArray[np.intp], list[Headers]] | None = None

    def values(self) -> Any:  # noqa: ANN401
        """Returns the values, without header blocks; null for rows that are not messages."""
        rows = self._chunk.rows
        # `Log.read` has checked that messages follow each other without a gap.
        begins = rows["position"].astype(np.int64) - self._chunk.data_start
        heads = rows["headers"]
        has_heads = bool(heads.any())
        if has_heads:
            # Header blocks and values alternate; every second one is a value.
            edges = np.empty(2 * len(rows) + 1, np.int32)
            edges[:-1:2] = begins
            edges[1::2] = begins + heads
        else:
            edges = np.empty(len(rows) + 1, np.int32)
            edges[:-1] = begins
        edges[-1] = len(self._chunk.data)
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(self._chunk.data)]
        pieces = pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)
        not_message = self._rows["type"] != MessageType.DATA
        if self._indices is None and not has_heads and not not_message.any():
            return pieces
        which = np.arange(len(rows)) if self._indices is None else self._indices
        return pieces.take(pa.array(2 * which + 1 if has_heads else which, mask=not_message))

    def keys(self) -> Any:  # noqa: ANN401
        """Returns the value of the header KEY of each row; null where a row lacks it."""
        where, lists = self._parsed()
        found = [next((value for name, value in headers if name == KEY), None) for headers in lists]
        return self._spread(pa.array(found, pa.binary()), where)

    def headers(self) -> Any:  # noqa: ANN401
        """Returns the headers of each row; null where a row lacks headers."""
        where, lists = self._parsed()
        edges = np.zeros(len(lists) + 1, np.int32)
        np.cumsum([len(headers) for headers in lists], out=edges[1:])
        names = pa.array([name for headers in lists for name, _ in headers], pa.string())
        values = pa.array([value for headers in lists for _, value in headers], pa.binary())
        pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
        return self._spread(pa.ListArray.from_arrays(pa.array(edges), pairs, type=_HEADERS), where)

    def _spread(self, found: Any, where: NDArray[np.intp]) -> Any:  # noqa: ANN401
        """Returns an entry for each row: the values at the rows `where`, and null elsewhere."""
        if not len(found):
            return pa.nulls(len(self._rows), found.type)
        which = np.zeros(len(self._rows), np.intp)
        which[where] = np.arange(len(where))
        missing = np.ones(len(self._rows), np.bool_)
        missing[where] = False
        return found.take(pa.array(which, mask=missing))

    def _parsed(self) -> tuple[NDArray[np.intp], list[Headers]]:
        """Returns the indices of the rows with a header block, and the headers of each."""
        if self._header_lists is None:
            where = np.flatnonzero(self._rows["headers"])
            data = self._chunk.data
            begins = self._rows["position"][where].astype(np.int64) - self._chunk.data_start
            ends = begins + self._rows["headers"][where]
            lists = [self._unpacked(data[a:b]) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
            self._header_lists = where, lists
        return self._header_lists

    def _unpacked(self, block: NDArray[np.uint8]) -> Headers:
        try:
            return unpack_headers(block.tobytes())
        except ValueError as error:
            raise ArchiveDamaged(
                f"a header block in the rows from offset {self._chunk.offset} on is damaged "
                f"({error}); see ipcbus archive verify"
            ) from error
