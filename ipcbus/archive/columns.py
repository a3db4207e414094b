"""The columns in which rows of an archive are handed out: Kafka's first, then what only this bus has."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["binary", "string", "int", "long", "timestamp", "headers"]


class Column(NamedTuple):
    """One column.

    Attributes:
        kind: its type, in Spark's words; `timestamp` is in us since the epoch, UTC, and `headers` a list of pairs of
            `key` (string) and `value` (binary).
        nullable: whether a row may be without it.
        meaning: for the page of the docs.
    """

    kind: Kind
    nullable: bool
    meaning: str


COLUMNS: Final[dict[str, Column]] = {
    "key": Column("binary", True, "Value of the header named `key`, where the message has one."),
    "value": Column("binary", True, "The message; null for what is none."),
    "topic": Column("string", False, "Topic; empty for losses of no one topic."),
    "partition": Column("int", False, "Number of the log in the archive: each recorder writes one of its own."),
    "offset": Column("long", False, "Place in the log."),
    "timestamp": Column("timestamp", False, "When it was received, in us."),
    "timestampType": Column("int", False, "Always 0."),
    "headers": Column("headers", True, "Headers of the message; null where it has none."),
    "session": Column("long", False, "Id of the transport session; 0 where its source string has none."),
    "seq": Column("long", False, "Sequence number in the topic, the last that the row spans."),
    "publishTimeNs": Column("long", False, "When it was sent, ns since the epoch; 0 where that is not known."),
    "receiveTimeNs": Column("long", False, "When it was received, ns since the epoch."),
    "flags": Column("int", False, "`Message.flags`."),
    "type": Column("int", False, "`MessageType`; 255 a loss by the recorder, 254 one by a damaged archive."),
    "numbers": Column("long", False, "How many sequence numbers the row spans; of a loss, how many are lost."),
    "source": Column("string", False, "Source string of the transport session."),
    "batchWaitNs": Column(
        "long", True, "How long it waited in its batch, from sending to publication, ns; null where that is not known."
    ),
}

EVENT_COLUMNS: Final = ("type", "numbers", "source")


def chosen(*, headers: bool = False, value: bool = True, events: bool = False, waits: bool = False) -> tuple[str, ...]:
    """Names of the columns that a reader is given who does not name them himself, in their order."""
    left_out = [*(() if headers else ("headers",)), *(() if value else ("value",)), *(() if events else EVENT_COLUMNS)]
    left_out += () if waits else ("batchWaitNs",)
    return tuple(name for name in COLUMNS if name not in left_out)
