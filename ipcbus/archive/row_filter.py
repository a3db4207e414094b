"""Row filters: which rows of a log a reader selects, decided for a whole block at a time."""

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
_SUGGESTED: Final = 3  # most names in a suggestion


def suggestion(topic: str, there: Collection[str]) -> str:
    """Returns the end of an error text: the names most similar to a topic, or how many topics there are."""
    found = difflib.get_close_matches(topic, sorted(there), _SUGGESTED)
    if found:
        return f", but {', '.join(map(repr, found))}"
    return (
        f"; there are {len(there)} topics, which 'ipcbus archive info' lists"
        if there
        else "; the archive has no topics"
    )


def session_id(source: str) -> int:
    """Returns the 32-bit id in a source string, such as 0x6481f8d4 of `LBT-IPC:6481f8d4:20001`; 0 without an id."""
    found = _SESSION.search(source)
    return int(found[1], 16) if found else 0


class Labels:
    """The names behind the numbers in the rows of a log.

    Attributes:
        key: `<stream>/<partition>`, for error texts.
        partition: number of the log.
        topics: topic of each number; number 0 is the empty topic.
        sources: source string of each number.
        sessions: session id of each number.
    """

    def __init__(self, log: Log) -> None:
        """Reads the names; rows that were published before find theirs.

        Raises:
            ArchiveDamaged: the log's list of names is damaged.
        """
        self.key = log.key
        self.partition = log.partition
        self.topics = _listed(log.topics())
        self.sources = _listed(log.sessions())
        self.sessions = np.array([session_id(source) for source in self.sources], np.int64)

    def check(self, rows: NDArray[np.void], offset: int) -> None:
        """Checks that every number in some rows has a name.

        Raises:
            ArchiveDamaged: a number has no name.
        """
        for name, known in (("topic", self.topics), ("session", self.sources)):
            numbers = rows[name]
            if len(numbers) and int(numbers.max()) >= len(known):
                at = int(numbers.argmax())
                raise ArchiveDamaged(
                    f"log {self.key}: the row at offset {offset + at} has {name} number {int(numbers[at])}, but the "
                    f"log has names up to {len(known) - 1}; see ipcbus archive verify"
                )


def _listed(names: Mapping[int, str]) -> list[str]:
    """Returns names by number; topics and sessions share the numbers, so numbers of the other kind are empty here."""
    return [names.get(number, "") for number in range(max(names, default=0) + 1)]


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which rows to read.

    Attributes:
        topic: returns whether the reader asked for a topic; None: for all.
        events: whether events are selected too: losses, beginnings and ends of sessions. Losses of unknown topic are
            then selected for every choice of topics.
        passes: returns whether the rows of a topic pass a filter, also for the empty topic of losses of unknown topic;
            None: all pass.
        begins: topic -> offset before which it is left out.
        ends: topic -> offset from which on it is left out.
        tests: name of a column -> function that returns which of its numbers pass; a row has to pass all.
        ranges: name of a column -> the least and the greatest of its numbers that can pass `tests`; compared with what
            the records of blocks say.
    """

    topic: Callable[[str], bool] | None = None
    events: bool = False
    passes: Callable[[str], bool] | None = None
    begins: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    tests: tuple[tuple[str, Callable[[NDArray[np.int64]], NDArray[np.bool_]]], ...] = ()
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class RowFilter:
    """A selection, prepared for the rows of one log.

    Attributes:
        wants_none: whether no row of the log can be selected, because none of its topics is.
        selective: whether the rows of a block have to be read to know which are selected.
    """

    def __init__(self, selection: RowSelection, labels: Labels) -> None:
        """Evaluates the selection for every topic of the log."""
        self._selection = selection
        self._labels = labels
        topics = labels.topics
        selected = [selection.topic is None or selection.topic(topic) for topic in topics]
        selected[0] = True  # losses of unknown topic; messages always have one
        if selection.passes is not None:
            selected = [asked and selection.passes(topic) for asked, topic in zip(selected, topics, strict=True)]
        self._topics = None if all(selected) else np.array(selected)
        self.wants_none = not any(selected if selection.events else selected[1:])
        self._begins = np.array([selection.begins.get(topic, 0) for topic in topics]) if selection.begins else None
        no_end = np.iinfo(np.int64).max
        self._ends = np.array([selection.ends.get(topic, no_end) for topic in topics]) if selection.ends else None
        self.selective = self._topics is not None or bool(selection.tests)
        # The record of a block counts losses, but not other events.
        kinds = np.logical_and.reduce(
            [np.ones(256, np.bool_), *(test(np.arange(256)) for column, test in selection.tests if column == "type")]
        )
        self._only_losses = bool(selection.events and not np.delete(kinds, LOSS_TYPES).any())

    def wants(self, block: Block) -> bool:
        """Returns whether any row of a block can be selected, by the record of the block."""
        if self._only_losses and not block.losses:
            return False
        ranges = self._selection.ranges
        for column, scale in (("receiveTimeNs", 1), ("timestamp", 1000)):
            low, high = ranges.get(column, _ANY)
            if block.last_receive_ns // scale < low or high < block.first_receive_ns // scale:
                return False
        low, high = ranges.get("offset", _ANY)
        return low < block.end and block.first_offset <= high

    def indices(self, rows: NDArray[np.void], offset: int) -> NDArray[np.intp] | None:
        """Returns the indices of the selected rows among rows from an offset on; None when all are selected.

        Raises:
            ArchiveDamaged: a number in the rows has no name.
        """
        self._labels.check(rows, offset)
        masks = []
        if not self._selection.events:
            masks.append(rows["type"] == MessageType.DATA)
        if self._topics is not None:
            masks.append(self._topics[rows["topic"]])
        if self._begins is not None or self._ends is not None or self._selection.tests:
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
        for column, test in self._selection.tests:
            masks.append(test(numbers(column, rows, offsets, self._labels)))
        return masks


def numbers(column: str, rows: NDArray[np.void], offsets: NDArray[np.int64], labels: Labels) -> NDArray[np.int64]:
    """Returns a column of numbers for rows with these offsets; `timestamp` is in us since the epoch.

    In `batchWaitNs`, `batch_waits.UNKNOWN` stands for null.

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
"""Column -> field of a row with its value."""
