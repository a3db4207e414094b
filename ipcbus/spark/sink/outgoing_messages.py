"""Makes messages of the rows of a frame."""

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
"""Column of a frame -> the types that the sink accepts, as Spark writes them."""

PLAIN: Final = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The schema of every batch here; `key` and `headers` are null where the frame lacks these columns."""

KEY: Final = "key"
"""The header with the column `key`."""


class OutgoingMessage(NamedTuple):
    """A message to be sent."""

    topic: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Stamp:
    """The identity that the messages of one task share.

    Attributes:
        query: see `ipcbus.spark.identity.QUERY`.
        batch: the micro-batch.
        partition: the partition of the frame.
    """

    query: str
    batch: int
    partition: int

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Returns the headers that all messages of the task share."""
        return (
            (identity.QUERY, self.query.encode()),
            (identity.BATCH, b"%d" % self.batch),
            (identity.PARTITION, b"%d" % self.partition),
        )


def check_schema(schema: StructType, topic: str | None) -> None:
    """Refuses a frame whose rows cannot become messages.

    Args:
        schema: the schema of the frame.
        topic: the option `topic`, which replaces the column.

    Raises:
        ConfigError: a column is missing, unknown, or has another type; the text names it and the cure.
    """
    found: dict[str, str] = {}
    for field in schema.fields:
        if field.name in found:
            raise _wrong(f"column {field.name} comes twice; drop one of them")
        found[field.name] = field.dataType.simpleString()
    for name, has in found.items():
        if name == "partition":
            raise _wrong("column partition: a topic of the bus has no partitions; remove the column with drop")
        if name not in TAKES:
            raise _wrong(f"column {name} is not part of a message; select only {', '.join(TAKES)}")
        if has not in TAKES[name]:
            raise _wrong(f"column {name} is {has}; cast it to {' or '.join(TAKES[name])}")
    if "value" not in found:
        raise _wrong(
            f"column value is missing; rename the column to send to value; there are: {', '.join(found) or 'none'}"
        )
    if "topic" not in found and topic is None:
        raise _wrong("column topic and option topic are both missing; give one of them")


def _wrong(text: str) -> ConfigError:
    return ConfigError(f"sink ipcbus: {text}")


def plain(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """Returns a batch of a frame as a batch of the schema `PLAIN`.

    Args:
        batch: a record batch with the columns of a checked schema.
        topic: the option `topic`.

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
                f"sink ipcbus: {name} is null in {column.null_count} of {rows} rows, but a message needs one; "
                f"leave these rows out with where('{name} is not null')"
            )
    optional = [
        batch.column(name).cast(PLAIN.field(name).type) if name in names else pa.nulls(rows, PLAIN.field(name).type)
        for name in ("key", "headers")
    ]
    return pa.record_batch([topics.cast(PLAIN.field("topic").type), value, *optional], schema=PLAIN)


class OutgoingMessages:
    """The messages of one task, from its batches in their order."""

    def __init__(self, stamp: Stamp | None) -> None:
        """Begins a task; without a stamp, its messages carry no identity."""
        self._shared = stamp.headers() if stamp is not None else None
        self._rows: Counter[str] = Counter()

    def of(self, batch: pa.RecordBatch) -> Iterator[OutgoingMessage]:
        """Yields the messages of the next batch, of schema `PLAIN`.

        Raises:
            SinkError: a header has no value.
            ConfigError: a topic is not a valid topic name.
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
    """Returns the frame's headers, with the key in place of the header `key` or after them.

    So rows that were read are sent with their headers, except those of the sink, which sets its own.
    """
    found = []
    for header in given:
        name, value = (None, None) if header is None else (header["key"], header["value"])
        if name is None or value is None:
            raise SinkError(f"sink ipcbus: header {name!r} has value {value!r}; give each header a name and a value")
        if name == KEY and key is not None:
            value, key = key, None
        if not name.startswith(identity.PREFIX):
            found.append((name, value))
    if key is not None:
        found.append((KEY, key))
    return found


def check_sizes(messages: Iterable[OutgoingMessage], longest: Callable[[str], int | None]) -> None:
    """Checks that messages can be sent, before a commit decides to send them.

    Args:
        messages: the messages.
        longest: returns the most bytes of a message of a topic, with its headers; None without a limit.

    Raises:
        SinkError: the headers of a message are invalid, or it is too long.
    """
    for topic, value, headers in messages:
        limit = longest(topic)
        try:
            length = len(value) + len(
                pack_headers((*headers, identity.POSSIBLE_DUPLICATE_HEADER))
            )  # after a crash it has one more header
        except (MessageTooLarge, ValueError) as error:
            raise SinkError(f"sink ipcbus: topic {topic!r}: {error}; change the column headers") from error
        if limit is not None and length > limit:
            raise SinkError(
                f"sink ipcbus: topic {topic!r}: a message of {length} bytes with its headers exceeds {limit} bytes, "
                "the limit of the transport; send it in parts, raise source.transport_lbtsmx_datagram_max_size, or use "
                "transport lbtipc"
            )
