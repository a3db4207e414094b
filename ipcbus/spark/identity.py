"""Who sent a message: the headers with which the sink marks each row, and what drops doubles by them.

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
"""Headers whose names begin so are the sink's own."""

QUERY: Final = "ipcbus.query"
"""Whose row it is: `txnAppId` of the sink, else the id of the streaming query or of the batch job. At least once it is
`<txnAppId>/<id of the streaming query>`, as with a new checkpoint the batches of another query count anew."""
BATCH: Final = "ipcbus.batch"
"""The micro-batch; of a batch job `txnVersion`, or 0."""
PARTITION: Final = "ipcbus.partition"
"""The partition of the frame that was written."""
ROW: Final = "ipcbus.row"
"""Number of the row among those of its partition that go to its topic; from 0, without gaps."""
POSSIBLE_DUPLICATE: Final = "ipcbus.possible_duplicate"
"""`1` on a message that may have been sent before: whoever sent it was killed at that moment."""
DOUBT: Final = (POSSIBLE_DUPLICATE, b"1")
"""That header."""

_DIGITS_MAX: Final = 18  # so that each number fits into 64 bits
_QUERY_MAX: Final = 255
_SPANS_MAX: Final = 64


class Identity(NamedTuple):
    """Which row of which write a message is; with its topic, a row has it once.

    Attributes:
        query: see `QUERY`; likewise the others.
        batch: the micro-batch.
        partition: the partition.
        row: the row's number.
    """

    query: str
    batch: int
    partition: int
    row: int


def identity_of(headers: Iterable[tuple[str, bytes]]) -> Identity | None:
    """The identity that the headers of a message carry; None where they carry none, or none that makes sense."""
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
    """Returns a number from 0, or -1 for anything else."""
    return int(value) if value.isdigit() and len(value) <= _DIGITS_MAX else -1


class Deduplicator:
    """A callback around another one, which gets no row of the sink twice.

    Events and messages without an identity pass. It remembers rows as ranges, so that a row that comes late (from the
    session of a process that was killed and replaced, while the receiver was behind) is not taken for a double. What
    it remembers is bounded: by `batches` for each topic, query and partition, and by `writers` of these; who wrote
    least recently is forgotten first. A double of something forgotten passes; a message that is no double never stays
    behind.

    Not for several threads: make one for each context.

    Attributes:
        delivered: messages with an identity that passed.
        dropped: doubles.
        unmarked: messages without an identity, which passed.
    """

    def __init__(
        self, on_message: Callable[[Message], object] | None = None, *, batches: int = 64, writers: int = 65536
    ) -> None:
        """Has seen nothing yet.

        Args:
            on_message: gets what is no double; None where only `is_new` is asked.
            batches: so many of the newest batches are remembered, from 1.
            writers: and for so many topics, queries and partitions together, from 1.

        Raises:
            ValueError: less than 1 of either.
        """
        if batches < 1 or writers < 1:
            raise ValueError(f"batches={batches}, writers={writers}: a Deduplicator has to remember 1 of each at least")
        self._on_message = on_message
        self._batches, self._writers = batches, writers
        self._seen: OrderedDict[tuple[str, str, int], dict[int, _Rows]] = OrderedDict()
        self.delivered = self.dropped = self.unmarked = 0

    def __call__(self, message: Message) -> None:
        """Hands a message or event on, unless it is a double."""
        if self.is_new(message) and self._on_message is not None:
            self._on_message(message)

    def is_new(self, message: Message) -> bool:
        """Returns whether a message or event is none that was asked for before; for receivers that pull."""
        if message.type != MessageType.DATA:
            return True
        return self.is_new_row(message.topic, identity_of(message.headers))

    def is_new_row(self, topic: str, identity: Identity | None) -> bool:
        """Returns the same of what is known of a message, for rows of an archive."""
        if identity is None:
            self.unmarked += 1
            return True
        if self._rows(topic, identity).add(identity.row):
            self.delivered += 1
            return True
        self.dropped += 1
        return False

    def _rows(self, topic: str, identity: Identity) -> _Rows:
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
            rows = batches[identity.batch] = _Rows()
            if len(batches) > self._batches:
                del batches[min(batches)]
        return rows


class _Rows:
    """Numbers of rows of one batch, as ranges; mostly one."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        """There are none."""
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, row: int) -> bool:
        """Adds a row; whether it was not there."""
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
                del starts[0], ends[0]  # the others are newer
        return True
