"""From the rows of a frame to messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from ipcbus.embedding import check_topic, pack_headers
from ipcbus.errors import ConfigError, MessageTooLarge, SinkError
from ipcbus.spark import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql.types import StructType

TAKES: Final = {
    "value": ("binary", "string"),
    "topic": ("string",),
    "key": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""The columns of a frame that is written, and their types as Spark writes them."""

PLAIN: Final = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns of every batch here, whatever the frame had: `key` and `headers` are null where it has no such column."""

KEY: Final = "key"
"""The header that carries the column `key`."""


class OutgoingMessage(NamedTuple):
    """A message to be sent."""

    topic: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Stamp:
    """What marks the messages of one task.

    Attributes:
        query: see `ipcbus.spark.identity`; likewise the others.
        batch: the micro-batch.
        partition: the partition.
    """

    query: str
    batch: int
    partition: int

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Returns the headers that all of them share."""
        return (
            (identity.QUERY, self.query.encode()),
            (identity.BATCH, b"%d" % self.batch),
            (identity.PARTITION, b"%d" % self.partition),
        )


def check_schema(schema: StructType, topic: str | None) -> None:
    """Refuses a frame whose rows are no messages.

    Args:
        schema: of the frame.
        topic: the option of that name, which takes the place of the column.

    Raises:
        ConfigError: a column is missing, unknown, or of another type; the text names it and the cure.
    """
    found: dict[str, str] = {}
    for field in schema.fields:
        if field.name in found:
            raise _wrong(f"column {field.name} is there twice; leave one of them out")
        found[field.name] = field.dataType.simpleString()
    for name, has in found.items():
        if name == "partition":
            raise _wrong("column partition: a topic of the bus has no partitions; leave the column out with drop")
        if name not in TAKES:
            raise _wrong(f"column {name} is no part of a message; select only {', '.join(TAKES)}")
        if has not in TAKES[name]:
            raise _wrong(f"column {name} is {has}; cast it to {' or '.join(TAKES[name])}")
    if "value" not in found:
        raise _wrong(f"column value is missing among {', '.join(found) or 'none'}; name what is to be sent so")
    if "topic" not in found and topic is None:
        raise _wrong("neither column topic nor option topic says where to; give one of them")


def _wrong(text: str) -> ConfigError:
    return ConfigError(f"sink ipcbus: {text}")


def plain(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """Returns a batch of a frame as one of the schema `PLAIN`.

    Args:
        batch: a record batch whose columns are those of a checked schema.
        topic: the option of that name.

    Raises:
        SinkError: a value or a topic is null.
    """
    rows = batch.num_rows
    names = batch.schema.names
    if topic is None:
        topics = batch.column("topic").cast(pa.string()).dictionary_encode()
    else:
        topics = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([topic]))
    value = batch.column("value").cast(pa.binary())
    for name, column in (("value", value), ("topic", topics)):
        if column.null_count:
            raise SinkError(
                f"sink ipcbus: {name} is null in {column.null_count} of {rows} rows, and a message has to have one; "
                f"leave them out with where('{name} is not null')"
            )
    optional = [
        batch.column(name).cast(PLAIN.field(name).type) if name in names else pa.nulls(rows, PLAIN.field(name).type)
        for name in ("key", "headers")
    ]
    return pa.record_batch([topics.cast(PLAIN.field("topic").type), value, *optional], schema=PLAIN)


class OutgoingMessages:
    """The messages of one task, from its batches in their order."""

    def __init__(self, stamp: Stamp | None) -> None:
        """None so far; a stamp of None leaves them unmarked."""
        self._shared = stamp.headers() if stamp is not None else None
        self._rows: Counter[str] = Counter()

    def of(self, batch: pa.RecordBatch) -> Iterator[OutgoingMessage]:
        """Yields the messages of the next batch, of schema `PLAIN`.

        Raises:
            SinkError: a header has no value.
            ConfigError: a topic is no topic name.
        """
        column = batch.column("topic")
        topics = column.dictionary.to_pylist()
        for topic in topics:
            if topic not in self._rows:
                check_topic(topic)
        each = (column.indices.to_pylist(), *(batch.column(name).to_pylist() for name in ("value", "key", "headers")))
        for index, value, key, given in zip(*each, strict=True):
            topic = topics[index]
            headers = _headers(given or (), key)
            if self._shared is not None:
                row = self._rows[topic]
                self._rows[topic] = row + 1
                headers += self._shared
                headers.append((identity.ROW, b"%d" % row))
            yield OutgoingMessage(topic, value, tuple(headers))


def _headers(given: Iterable[dict[str, Any] | None], key: bytes | None) -> list[tuple[str, bytes]]:
    """Returns the frame's headers, and its key in the place of the header of that name, or behind them.

    So rows that were read are sent as they came; but for the headers of the sink, which sets its own.
    """
    found = []
    for header in given:
        name, value = (None, None) if header is None else (header["key"], header["value"])
        if name is None or value is None:
            raise SinkError(f"sink ipcbus: header {name!r} has value {value!r}; a header has a name and a value")
        if name == KEY and key is not None:
            value, key = key, None
        if not name.startswith(identity.PREFIX):
            found.append((name, value))
    if key is not None:
        found.append((KEY, key))
    return found


def check_sizes(messages: Iterable[OutgoingMessage], longest: Callable[[str], int | None]) -> None:
    """Finds out whether messages can be sent, before it is decided that they will be.

    Args:
        messages: which.
        longest: gives the most bytes of a message of a topic, with its headers; None where any length goes.

    Raises:
        SinkError: one has headers that cannot be, or is too long.
    """
    for topic, value, headers in messages:
        limit = longest(topic)
        try:
            length = len(value) + len(pack_headers((*headers, identity.DOUBT)))  # it has to go after a crash, too
        except (MessageTooLarge, ValueError) as error:
            raise SinkError(f"sink ipcbus: topic {topic!r}: {error}; change the column headers") from error
        if limit is not None and length > limit:
            raise SinkError(
                f"sink ipcbus: topic {topic!r}: a message of {length} bytes with its headers exceeds {limit}, the "
                "most of this transport; send it in parts, raise source.transport_lbtsmx_datagram_max_size, or use "
                "transport lbtipc"
            )
