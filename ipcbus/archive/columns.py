"""The columns of rows that an archive returns: Kafka's columns first, then those that only this bus has."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["binary", "string", "int", "long", "timestamp", "headers"]


class Column(NamedTuple):
    """One column.

    Attributes:
        kind: the type, in Spark's words; `timestamp` is in us since the epoch, UTC, and `headers` is a list of pairs
            of `key` (string) and `value` (binary).
        nullable: whether the value may be null.
        meaning: text for the reference page.
    """

    kind: Kind
    nullable: bool
    meaning: str


COLUMNS: Final[dict[str, Column]] = {
    "key": Column("binary", True, "Value of the header `key`; null where the message lacks it."),
    "value": Column("binary", True, "The bytes of the message; null for losses and other events."),
    "topic": Column("string", False, "Topic; empty for a loss whose topic is not known."),
    "partition": Column("int", False, "Number of the log in the archive; each recorder writes its own log."),
    "offset": Column("long", False, "Offset of the row in the log."),
    "timestamp": Column("timestamp", False, "Receive time in us since the epoch."),
    "timestampType": Column("int", False, "Always 0."),
    "headers": Column("headers", True, "Headers of the message; null where it lacks headers."),
    "session": Column("long", False, "Id of the transport session; 0 where the source string has no id."),
    "seq": Column(
        "long", False, "Sequence number in the topic; the last one that the row spans. Below 0 for BOS and EOS."
    ),
    "publishTimeNs": Column("long", False, "Send time, ns since the epoch; 0 where it is not known."),
    "receiveTimeNs": Column("long", False, "Receive time, ns since the epoch."),
    "flags": Column("int", False, "The low eight bits of `Message.flags`; 0x40 marks a request."),
    "type": Column("int", False, "`MessageType`; 255: a loss by the recorder, 254: rows of a damaged archive."),
    "numbers": Column("long", False, "How many sequence numbers the row spans; for a loss, how many are lost."),
    "source": Column("string", False, "Source string of the transport session."),
    "batchWaitNs": Column(
        "long",
        True,
        "How long the message waited in its batch, from send to publication, ns; null where it is not known.",
    ),
}

EVENT_COLUMNS: Final = ("type", "numbers", "source")


def default_columns(
    *, headers: bool = False, value: bool = True, events: bool = False, waits: bool = False
) -> tuple[str, ...]:
    """Returns the names of the columns that a reader gets by default, in their order."""
    left_out = [*(() if headers else ("headers",)), *(() if value else ("value",)), *(() if events else EVENT_COLUMNS)]
    left_out += () if waits else ("batchWaitNs",)
    return tuple(name for name in COLUMNS if name not in left_out)
