"""Up to where an earlier recorder of a log recorded each topic of each session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ipcbus.archive.archive_layout import AGAIN_NS, CLOCK_SKEW_MAX_NS, LOSS_TYPES, TYPE_LOSS_DAMAGE
from ipcbus.archive.log import leave_out
from ipcbus.message import MessageType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ipcbus.archive.log import Log

ROWS: Final = 1 << 23
"""Number of rows at the end of a log that are read."""
_STEP: Final = 1 << 20
_ENDED: Final = -1
_ALWAYS_NS: Final = (1 << 63) - 1
_UNKNOWN: Final = -1
_ONE_CLOCK: Final = ("LBT-IPC:", "LBT-SMX:")


class ResumePosition(NamedTuple):
    """Up to where a topic of a session is recorded.

    Attributes:
        following: the number after the last one that was recorded or reported lost.
        until_ns: messages that were sent later, in ns since the epoch, are of a topic that began again.
        topic_numbers: the numbers that the topic had in its session, as far as they are recorded; -1 stands for an
            unknown number.
    """

    following: int
    until_ns: int
    topic_numbers: frozenset[int]

    def of(self, topic_number: int) -> tuple[int, int]:
        """Returns where a topic with this number goes on, and when its recorded messages were sent at the latest.

        A topic that began again has a number of its own, and begins at 0. Where the topic had several numbers, only
        the time tells.
        """
        if self.topic_numbers == {topic_number} != {_UNKNOWN}:
            return self.following, _ALWAYS_NS
        if topic_number == _UNKNOWN or not self.topic_numbers or self.topic_numbers & {topic_number, _UNKNOWN}:
            return self.following, self.until_ns
        return 0, 0


class _LastRow(NamedTuple):
    sequence: int
    """_ENDED after the end of the session."""
    is_loss: bool
    send_ns: int
    receive_ns: int

    def position(self, source: str, topic_numbers: frozenset[int]) -> ResumePosition:
        until_ns = self.send_ns + AGAIN_NS
        if self.is_loss or not self.send_ns:  # the send times of lost messages are not known
            until_ns = self.receive_ns + (0 if source.startswith(_ONE_CLOCK) else CLOCK_SKEW_MAX_NS)
        return ResumePosition(self.sequence + 1, until_ns, topic_numbers)


def read_resume_positions(log: Log, rows: int = ROWS) -> dict[tuple[str, str], ResumePosition]:
    """Returns up to where each topic of each session is recorded.

    Returns:
        The position for each topic and source string that had not ended.

    Args:
        log: the log of the stream that is to be recorded; no process writes it.
        rows: how many of the last rows to read. Topics without a message among them are not found.

    Raises:
        ArchiveError, StorageError: the log cannot be read.
    """
    first, end = log.bounds()
    first = max(first, end - rows)
    found: dict[int, _LastRow] = {}
    numbers: dict[int, set[int]] = {}
    while end > first:
        start = max(first, end - _STEP)
        step: dict[int, _LastRow] = {}
        for chunk in log.read(start, end, verify=False, messages=False, on_damage=leave_out, on_hole=leave_out):
            step.update(_last(chunk.rows))
            _note_topic_numbers(chunk.rows, numbers)
        found = step | found
        end = start
    topics, sources = log.topics(), log.sessions()
    named = ((topics.get(key >> 32), sources.get(key & 0xFFFFFFFF), key, last) for key, last in found.items())
    return {
        (topic, source): last.position(source, frozenset(numbers.get(key, ())))
        for topic, source, key, last in named
        # A row that another program wrote need not name a topic or session.
        if topic is not None and source is not None and last.sequence != _ENDED
    }


def _keys(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    return rows["topic"].astype(np.uint64) << 32 | rows["session"]  # type: ignore[no-any-return]


def _last(rows: NDArray[np.void]) -> dict[int, _LastRow]:
    """Returns the last row of each topic and session that has numbers or is its end."""
    kinds = rows["type"]
    rows = rows[((rows["numbers"] > 0) | (kinds == MessageType.EOS)) & (kinds != TYPE_LOSS_DAMAGE)][::-1]
    keys, places = np.unique(_keys(rows), return_index=True)
    last = rows[places]
    losses = np.isin(last["type"], LOSS_TYPES)
    fields = (last["sequence"].tolist(), losses.tolist(), last["send_ns"].tolist(), last["receive_ns"].tolist())
    return dict(zip(keys.tolist(), map(_LastRow, *fields), strict=True))


def _note_topic_numbers(rows: NDArray[np.void], numbers: dict[int, set[int]]) -> None:
    """Adds the numbers of topics that rows of type BOS name, by topic and session."""
    rows = rows[rows["type"] == MessageType.BOS]
    for key, sequence in zip(_keys(rows).tolist(), rows["sequence"].tolist(), strict=True):
        numbers.setdefault(key, set()).add(-2 - sequence)
