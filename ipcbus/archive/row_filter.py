"""Which rows of a log a reader wants, decided for a whole block of them at a time."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive import batch_waits
from ipcbus.archive.archive_layout import LOSS_TYPES
from ipcbus.errors import ArchiveDamaged
from ipcbus.message import MessageType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from numpy.typing import NDArray

    from ipcbus.archive.blocks import Block
    from ipcbus.archive.log import Log

_SESSION: Final = re.compile(r":([0-9a-f]{8})(?=:|$)")
_ANY: Final = (-(2**63), 2**63 - 1)
_NEAR: Final = 3  # names that a text suggests, at most


def near(topic: str, there: Collection[str]) -> str:
    """The names that are most like a topic, for the end of a text; where none is like it, how many there are."""
    found = difflib.get_close_matches(topic, sorted(there), _NEAR)
    if found:
        return f", but {', '.join(map(repr, found))}"
    return f"; there are {len(there)} topics, which 'ipcbus archive info' lists" if there else "; there is none at all"


def session_id(source: str) -> int:
    """The 32-bit id in a source string, for example 0x6481f8d4 of `LBT-IPC:6481f8d4:20001`; 0 where there is none."""
    found = _SESSION.search(source)
    return int(found[1], 16) if found else 0


class Labels:
    """What the numbers in the rows of a log stand for.

    Attributes:
        key: `<stream>/<partition>`, for texts.
        partition: number of the log.
        topics: topic of each number; number 0 is none.
        sources: source string of each number.
        sessions: session id of each number.
    """

    def __init__(self, log: Log) -> None:
        """Takes the names as they are now; rows published before are sure to find theirs.

        Raises:
            ArchiveDamaged: the log's list of names is damaged.
        """
        self.key = log.key
        self.partition = log.partition
        self.topics = _listed(log.topics())
        self.sources = _listed(log.sessions())
        self.sessions = np.array([session_id(source) for source in self.sources], np.int64)

    def check(self, rows: NDArray[np.void], offset: int) -> None:
        """Makes sure that every number in some rows has a name here.

        Raises:
            ArchiveDamaged: one has none.
        """
        for name, known in (("topic", self.topics), ("session", self.sources)):
            numbers = rows[name]
            if len(numbers) and int(numbers.max()) >= len(known):
                at = int(numbers.argmax())
                raise ArchiveDamaged(
                    f"log {self.key}: the row at offset {offset + at} is of {name} number {int(numbers[at])}, and the "
                    f"log has names up to {len(known) - 1}; see ipcbus archive verify"
                )


def _listed(names: Mapping[int, str]) -> list[str]:
    """Names by their number; topics and sessions share the numbers, so that some are no name here."""
    return [names.get(number, "") for number in range(max(names, default=0) + 1)]


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which rows are wanted.

    Attributes:
        topic: says of a topic whether it was asked for; None: all were.
        events: whether what is no message is wanted too: losses, beginnings and ends of sessions. Losses of no one
            topic come then whatever the topics are.
        passes: says of a topic whether its rows pass a filter, also of the empty one of losses of no one topic; None:
            all do.
        begins: topic -> offset before which it is not wanted.
        ends: topic -> offset from which on it is not wanted.
        tests: name of a column -> says of its numbers which are wanted; all have to agree.
        ranges: name of a column -> the least and the greatest of its numbers that can be wanted, as `tests` say it too:
            what a block's record says of its rows is held against them.
    """

    topic: Callable[[str], bool] | None = None
    events: bool = False
    passes: Callable[[str], bool] | None = None
    begins: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    tests: tuple[tuple[str, Callable[[NDArray[np.int64]], NDArray[np.bool_]]], ...] = ()
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class RowFilter:
    """A choice, made ready for the rows of one log.

    Attributes:
        wants_none: whether no row of the log can be wanted, as none of its topics is.
        selective: whether the rows of a block have to be looked at to know which are wanted.
    """

    def __init__(self, choice: RowSelection, labels: Labels) -> None:
        """Asks the choice about every topic of the log."""
        self._choice = choice
        self._labels = labels
        topics = labels.topics
        wanted = [choice.topic is None or choice.topic(topic) for topic in topics]
        wanted[0] = True  # a loss of no one topic; there is no such message
        if choice.passes is not None:
            wanted = [asked and choice.passes(topic) for asked, topic in zip(wanted, topics, strict=True)]
        self._topics = None if all(wanted) else np.array(wanted)
        self.wants_none = not any(wanted if choice.events else wanted[1:])
        self._begins = np.array([choice.begins.get(topic, 0) for topic in topics]) if choice.begins else None
        no_end = np.iinfo(np.int64).max
        self._ends = np.array([choice.ends.get(topic, no_end) for topic in topics]) if choice.ends else None
        self.selective = self._topics is not None or bool(choice.tests)
        # Of what is no message a block's record counts the losses.
        kinds = np.logical_and.reduce(
            [np.ones(256, np.bool_), *(test(np.arange(256)) for column, test in choice.tests if column == "type")]
        )
        self._only_losses = bool(choice.events and not np.delete(kinds, LOSS_TYPES).any())

    def wants(self, block: Block) -> bool:
        """Returns whether any row of a block can be wanted, by what its record says."""
        if self._only_losses and not block.losses:
            return False
        ranges = self._choice.ranges
        for column, scale in (("receiveTimeNs", 1), ("timestamp", 1000)):
            low, high = ranges.get(column, _ANY)
            if block.last_receive_ns // scale < low or high < block.first_receive_ns // scale:
                return False
        low, high = ranges.get("offset", _ANY)
        return low < block.end and block.first_offset <= high

    def indices(self, rows: NDArray[np.void], offset: int) -> NDArray[np.intp] | None:
        """Where the wanted rows stand among these, the first of which has this offset; None when all are wanted.

        Raises:
            ArchiveDamaged: a number in the rows has no name.
        """
        self._labels.check(rows, offset)
        masks = []
        if not self._choice.events:
            masks.append(rows["type"] == MessageType.DATA)
        if self._topics is not None:
            masks.append(self._topics[rows["topic"]])
        if self._begins is not None or self._ends is not None or self._choice.tests:
            masks += self._masks_of_numbers(rows, offset)
        mask = np.logical_and.reduce(masks) if masks else None
        return None if mask is None or mask.all() else np.flatnonzero(mask)

    def _masks_of_numbers(self, rows: NDArray[np.void], offset: int) -> list[NDArray[np.bool_]]:
        offsets = np.arange(offset, offset + len(rows))
        masks = []
        if self._begins is not None:
            masks.append(offsets >= self._begins[rows["topic"]])
        if self._ends is not None:
            masks.append(offsets < self._ends[rows["topic"]])
        for column, test in self._choice.tests:
            masks.append(test(numbers(column, rows, offsets, self._labels)))
        return masks


def numbers(column: str, rows: NDArray[np.void], offsets: NDArray[np.int64], labels: Labels) -> NDArray[np.int64]:
    """Returns a column of numbers, for rows with these offsets; of `timestamp` the us since the epoch.

    Of `batchWaitNs` `batch_waits.UNKNOWN` stands for null.

    Raises:
        KeyError: the column has no numbers.
    """
    if column == "offset":
        return offsets
    if column == "session":
        found = labels.sessions[rows["session"]]
    elif column == "timestamp":
        found = rows["receive_ns"] // 1000
    elif column in ("partition", "timestampType"):
        found = np.full(len(rows), labels.partition if column == "partition" else 0)
    elif column == "numbers":
        found = batch_waits.numbers(rows)
    elif column == "batchWaitNs":
        found = batch_waits.batch_waits(rows)
    else:
        found = rows[_FIELDS[column]]
    return np.ascontiguousarray(found, np.int64)


_FIELDS: Final = {
    "seq": "sequence",
    "publishTimeNs": "send_ns",
    "receiveTimeNs": "receive_ns",
    "flags": "flags",
    "type": "type",
}
"""Column -> field of a row that it is copied from."""
