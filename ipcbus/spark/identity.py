"""The identity of a message: headers with which the sink marks each row, and a filter that drops duplicates by them.

Needs no Spark: a plain receiver imports it.

    receiver = context.receiver("quotes", Deduplicator(on_quote))
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from ipcbus.message import MessageType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipcbus.message import Message

PREFIX: Final = "ipcbus."
"""The prefix of the names of the sink's own headers."""

QUERY: Final = "ipcbus.query"
"""Header with the writer: `txnAppId` of the sink, else the id of the streaming query or of the batch job. With
`at-least-once` it is `<txnAppId>/<id of the streaming query>`, as a new query counts its batches from 0 again."""
BATCH: Final = "ipcbus.batch"
"""Header with the number of the micro-batch; in a batch job `txnVersion`, or 0."""
PARTITION: Final = "ipcbus.partition"
"""Header with the partition of the frame."""
ROW: Final = "ipcbus.row"
"""Header with the number of the row among the rows of its partition and topic; from 0, without gaps."""
POSSIBLE_DUPLICATE: Final = "ipcbus.possible_duplicate"
"""Header with `1` on a message that may have been sent before, because its sender was killed at that moment."""
POSSIBLE_DUPLICATE_HEADER: Final = (POSSIBLE_DUPLICATE, b"1")
"""The header POSSIBLE_DUPLICATE with its value."""

_DIGITS_MAX: Final = 18  # each number fits into 64 bits
_QUERY_MAX: Final = 255
_SPANS_MAX: Final = 64


class Identity(NamedTuple):
    """The row and the write of a message; within a topic, each row has its own identity.

    Attributes:
        query: see `QUERY`.
        batch: see `BATCH`.
        partition: see `PARTITION`.
        row: see `ROW`.
    """

    query: str
    batch: int
    partition: int
    row: int


def identity_of(headers: Iterable[tuple[str, bytes]]) -> Identity | None:
    """Returns the identity in the headers of a message; None where it is missing or invalid."""
    query, batch, partition, row = "", -1, -1, -1
    for name, value in headers:
        if name == ROW:
            row = _number(value)
        elif name == PARTITION:
            partition = _number(value)
        elif name == BATCH:
            batch = _number(value)
        elif name == QUERY and len(value) <= _QUERY_MAX:
            query = value.decode(errors="replace")
    if not query or batch < 0 or partition < 0 or row < 0:
        return None
    return Identity(query, batch, partition, row)


def _number(value: bytes) -> int:
    """Returns a number from 0, or -1 for any other text."""
    return int(value) if value.isdigit() and len(value) <= _DIGITS_MAX else -1


class Deduplicator:
    """A callback around another one, which gets no row of the sink twice.

    Events and messages without an identity pass. Rows are remembered as ranges, so that a late row (from the session of
    a process that was killed and replaced, while the receiver was behind) does not count as a duplicate. Memory is
    bounded: `batches` for each topic, query and partition, and `writers` of these; the one that wrote least recently is
    forgotten first. A duplicate of a forgotten row passes; a message that is not a duplicate always passes.

    One thread at a time may use it: make one for each context.

    Attributes:
        delivered: messages with an identity that passed.
        dropped: duplicates.
        unmarked: messages without an identity, which passed.
    """

    def __init__(
        self, on_message: Callable[[Message], object] | None = None, *, batches: int = 64, writers: int = 65536
    ) -> None:
        """Makes a filter that has seen no rows.

        Args:
            on_message: called with each message that is not a duplicate; None where only `is_new` is used.
            batches: how many of the newest batches to remember, from 1.
            writers: for how many topics, queries and partitions together to remember batches, from 1.

        Raises:
            ValueError: `batches` or `writers` is less than 1.
        """
        if batches < 1 or writers < 1:
            raise ValueError(f"batches={batches}, writers={writers}: give 1 or more of each")
        self._on_message = on_message
        self._batches, self._writers = batches, writers
        self._seen: OrderedDict[tuple[str, str, int], dict[int, _RowRanges]] = OrderedDict()
        self.delivered = self.dropped = self.unmarked = 0

    def __call__(self, message: Message) -> None:
        """Passes a message or event on, unless it is a duplicate."""
        if self.is_new(message) and self._on_message is not None:
            self._on_message(message)

    def is_new(self, message: Message) -> bool:
        """Returns whether a message or event is new, and remembers it; for receivers that pull."""
        if message.type != MessageType.DATA:
            return True
        return self.is_new_row(message.topic, identity_of(message.headers))

    def is_new_row(self, topic: str, identity: Identity | None) -> bool:
        """Returns what `is_new` does, for a row of an archive."""
        if identity is None:
            self.unmarked += 1
            return True
        if self._rows(topic, identity).add(identity.row):
            self.delivered += 1
            return True
        self.dropped += 1
        return False

    def _rows(self, topic: str, identity: Identity) -> _RowRanges:
        key = (topic, identity.query, identity.partition)
        batches = self._seen.get(key)
        if batches is None:
            batches = self._seen[key] = {}
            if len(self._seen) > self._writers:
                self._seen.popitem(last=False)
        else:
            self._seen.move_to_end(key)
        rows = batches.get(identity.batch)
        if rows is None:
            rows = batches[identity.batch] = _RowRanges()
            if len(batches) > self._batches:
                del batches[min(batches)]
        return rows


class _RowRanges:
    """Numbers of rows of one batch, as ranges; usually one range."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, row: int) -> bool:
        """Adds a row; returns whether it is new."""
        starts, ends = self._starts, self._ends
        at = bisect_right(starts, row)  # the range that may hold it is the one before
        if at and row < ends[at - 1]:
            return False
        behind = at > 0 and ends[at - 1] == row
        before = at < len(starts) and starts[at] == row + 1
        if behind and before:
            ends[at - 1] = ends.pop(at)
            del starts[at]
        elif behind:
            ends[at - 1] = row + 1
        elif before:
            starts[at] = row
        else:
            starts.insert(at, row)
            ends.insert(at, row + 1)
            if len(starts) > _SPANS_MAX:
                del starts[0], ends[0]  # the other ranges are newer
        return True
