"""The messages of an archive as the history of receivers (option history_archive)."""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive import batch_waits
from ipcbus.archive.archive import Archive
from ipcbus.archive.archive_layout import ROW
from ipcbus.embedding import NUMBER_MAX, OlderMessage, OlderPiece
from ipcbus.errors import IpcBusError
from ipcbus.message import MessageType

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ipcbus.archive.log import Log
    from ipcbus.archive.segments import Chunk

_log = logging.getLogger("ipcbus")

_ROWS: Final = 8192
"""Most rows that one call looks at."""
_BYTES: Final = 1 << 20
"""About the most bytes of messages that one call reads."""
_MESSAGES: Final = 1024
"""Most messages that one call returns."""
_AGAIN_NS: Final = 10_000_000
"""A lower number was sent by another source of the topic if it was sent this much later than a higher one."""
_PATIENCE_S: Final = 0.25
"""How long the first message is waited for, if a recorder writes into the archive."""
_LOOK_S: Final = 0.01
"""Shortest time between two looks whether a log has grown."""


class RecordedHistory:
    """An archive from which receivers take what their sources do not keep any more."""

    def __init__(self, path: str) -> None:
        """Opens an archive.

        Raises:
            ArchiveMissing: the directory has no archive.
            ArchiveDamaged: `archive.json` is damaged, or of another format.
            StorageError: the system refuses.
        """
        self._archive = Archive(path)
        self._reported: set[str] = set()

    @property
    def path(self) -> str:
        """The directory of the archive."""
        return str(self._archive.path)

    def of(self, topic: str, source: str) -> RecordedTopic:
        """Returns the recorded messages of a topic of the session with this source string."""
        found = RecordedTopic(self._archive, topic, source, self._report)
        if not found.logs:
            _log.info("archive %s has no message of topic %r on %s", self._archive.path, topic, source)
        return found

    def _report(self, where: str, what: str) -> None:
        if where not in self._reported:
            self._reported.add(where)
            _log.warning(
                "receivers cannot take all messages from the archive %s: %s: %s; 'ipcbus archive verify' lists damage. "
                "Messages that their sources do not keep either are reported lost",
                self._archive.path,
                where,
                what,
            )


class RecordedTopic:
    """The recorded messages of one topic of one session, of all logs that have some (recovery's `OlderMessages`)."""

    def __init__(self, archive: Archive, topic: str, source: str, report: Callable[[str, str], None]) -> None:
        """Looks up which logs have the topic and the session."""
        self._archive, self._topic, self._source, self._report = archive, topic, source, report
        self.faults = 0
        """How often rows could not be read: damage, a missing segment, or an answer of the system."""
        self._patience_at = time.monotonic() + _PATIENCE_S
        self.logs: list[_TopicLog] = []
        self._look_up()

    def _look_up(self) -> None:
        archive, fault = self._archive, self._fault
        self._look_at = time.monotonic() + _LOOK_S
        self._is_written = False
        try:
            found = archive.logs()
        except (IpcBusError, OSError) as error:
            fault("its logs", str(error))
            return
        for log in found:
            try:
                self._is_written |= archive.writing(log.stream) is not None
                names = log.names()
                topics = [number for number, name in names.topics.items() if name == self._topic]
                sessions = [number for number, name in names.sessions.items() if name == self._source]
                if topics and sessions:
                    self.logs.append(_TopicLog(archive, log, topics[0], sessions[0], fault))
            except (IpcBusError, OSError) as error:
                fault(f"log {log.key}", str(error))

    def _fault(self, where: str, what: str) -> None:
        self.faults += 1
        self._report(where, what)

    def begin(self, next_sequence: int, wanted: int) -> int | None:
        """Returns the first number that the archive has, or NUMBER_MAX; None while the logs are searched."""
        if any([log.search() for log in self.logs]):
            return None
        if self._is_written and all(log.last < 0 for log in self.logs) and time.monotonic() < self._patience_at:
            if time.monotonic() >= self._look_at:  # a recorder that has just begun shows its first messages soon
                self.logs.clear()
                self._look_up()
            return None
        self.logs = [log for log in self.logs if log.last < next_sequence]  # others are of an earlier source
        for log in self.logs:
            log.seek(wanted)
        return min((log.first for log in self.logs), default=NUMBER_MAX)

    def read(self, first: int) -> OlderPiece | None:
        """Returns the next messages from a number on; None while they are searched."""
        found = [(log, log.read(first)) for log in self.logs]
        if any(messages is None for _, messages in found):
            return None
        pieces = [messages for _, messages in found if messages]
        best = min(pieces, key=lambda messages: (messages[0].first, -messages[-1].last), default=[])
        return OlderPiece(best, any(log.grows for log in self.logs))


class _TopicLog:
    """The rows of one topic of one session in one log."""

    def __init__(self, archive: Archive, log: Log, topic: int, session: int, fault: Callable[[str, str], None]) -> None:
        self._archive, self._log, self._topic, self._session, self._report = archive, log, topic, session, fault
        self.first, self.last = NUMBER_MAX, -1
        """The first and the last number that are recorded, of those that were searched."""
        self._sent_ns = -1  # of the last one
        self._places: list[tuple[int, int]] = []  # numbers, ascending, and where to begin to read for them
        self._searched, self._search_end = log.bounds()
        self._offset = self._end = self._search_end  # without a search, what is recorded from now on is read
        self._look_at = 0.0
        self._chunks: deque[tuple[Chunk, NDArray[np.void]]] = deque()  # were read, with the rows that are wanted
        self._ready: deque[OlderMessage] = deque()
        self.grows = False

    # ------------------------------------------------------------------ searching

    def search(self) -> bool:
        """Looks at some more rows; returns whether there are more, as of when the object was made."""
        start, stop = self._searched, min(self._searched + _ROWS, self._search_end)
        if start < stop:
            self._searched = stop
            offsets, rows = self._rows(start, stop)
            if len(rows):
                self._note(rows, int(offsets[0]))
        return stop < self._search_end

    def _note(self, rows: NDArray[np.void], offset: int) -> None:
        """Notes which numbers rows have; a topic that began again in the same session replaces the one before."""
        last, sent_ns = rows["sequence"], rows["send_ns"]
        highest = np.maximum.accumulate(np.concatenate(([self.last], last[:-1])))
        newest = np.maximum.accumulate(np.concatenate(([self._sent_ns], sent_ns[:-1])))
        again = np.flatnonzero((last <= highest) & (sent_ns > newest + _AGAIN_NS))
        if len(again):
            self.first, self.last, self._sent_ns, self._places = NUMBER_MAX, -1, -1, []
            self._note(rows[again[-1] :], offset)
            return
        first = int(last[0] - batch_waits.numbers(rows[:1])[0] + 1)
        if first > self.last:
            self._places.append((first, offset))
        self.first = min(self.first, first)
        self.last, self._sent_ns = max(self.last, int(last.max())), max(self._sent_ns, int(sent_ns.max()))

    def seek(self, wanted: int) -> None:
        """Begins to read at a number, or at the first one that is recorded."""
        at = bisect_right(self._places, wanted, key=lambda place: place[0]) - 1
        if self._places:
            self._offset = self._places[max(0, at)][1]

    # ------------------------------------------------------------------ reading

    def read(self, first: int) -> list[OlderMessage] | None:
        """Returns some messages from a number on; an empty list at the end, None while they are searched."""
        self._drop_below(first)
        if not self._ready and not self._chunks:
            if not self._has_more():
                return []
            self._fill(first)
        if not self._ready and self._chunks:
            self._decode()
            self._drop_below(first)
        return list(self._ready) or None

    def _drop_below(self, first: int) -> None:
        while self._ready and self._ready[0].first < first:
            self._ready.popleft()

    def _decode(self) -> None:
        """Takes the next messages out of the rows that were read."""
        chunk, rows = self._chunks.popleft()
        if len(rows) > _MESSAGES:
            self._chunks.appendleft((chunk, rows[_MESSAGES:]))
            rows = rows[:_MESSAGES]
        data = chunk.data.data
        for row, count in zip(rows.tolist(), batch_waits.numbers(rows).tolist(), strict=True):
            position, length, _, _, _, headers, flags, _, last, send_ns, _ = row
            begin = position - chunk.data_start
            value = bytes(data[begin : begin + headers + length])
            self._ready.append(OlderMessage(last - count + 1, last, flags, headers > 0, value, send_ns))

    def _has_more(self) -> bool:
        """Returns whether there are rows that were not read."""
        if self._offset >= self._end and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_S
            try:
                self.grows = self._archive.writing(self._log.stream) is not None  # before the end is read
                self._end = self._log.bounds()[1]
            except (IpcBusError, OSError) as error:
                self._fault(str(error))
                self.grows = False
        return self._offset < self._end

    def _fill(self, first: int) -> None:
        """Reads the next rows, and the messages among them that are not below a number."""
        stop = min(self._offset + _ROWS, self._end)
        offsets, rows = self._rows(self._offset, stop)
        offsets = offsets[rows["sequence"] >= first]
        self._offset = stop
        if not len(offsets):
            return
        # A block is read as a whole, for its checksum, so its rows are read in one go.
        start, end = int(offsets[0]), int(offsets[-1]) + 1
        try:
            end = max(start + 1, self._log.reach(start, end, _BYTES))
            self._offset = stop if end > offsets[-1] else end
            for chunk in self._log.read(start, end, on_damage=self._damaged, on_hole=self._hole):
                self._chunks.append((chunk, chunk.rows[self._wanted(chunk.rows)]))
        except (IpcBusError, OSError) as error:
            self._fault(str(error))

    def _rows(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.void]]:
        """Returns offsets and rows of the topic's messages, without the bytes."""
        offsets, rows = [np.empty(0, np.int64)], [np.empty(0, ROW)]
        try:
            begin = max(start, self._log.bounds()[0])  # retention may have removed some
            for chunk in self._log.read(
                begin, max(begin, stop), verify=False, messages=False, on_damage=self._damaged, on_hole=self._hole
            ):
                found = np.flatnonzero(self._wanted(chunk.rows))
                offsets.append(chunk.offset + found)
                rows.append(chunk.rows[found])
        except (IpcBusError, OSError) as error:
            self._fault(str(error))
        return np.concatenate(offsets), np.concatenate(rows)

    def _wanted(self, rows: NDArray[np.void]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (
            (rows["topic"] == self._topic) & (rows["session"] == self._session) & (rows["type"] == MessageType.DATA)
        )
        return found

    def _damaged(self, first: int, end: int, reason: str) -> None:
        self._fault(f"rows {first} to {end - 1}: {reason}")

    def _hole(self, first: int, end: int) -> None:
        """Ignores rows that a power loss or retention took: their numbers are missing."""

    def _fault(self, what: str) -> None:
        self._report(f"log {self._log.key}", what)
