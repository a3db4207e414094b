"""The messages of an archive as the history of receivers (option history_archive)."""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from ipcbus.archive import recorded_topics
from ipcbus.archive.archive import Archive
from ipcbus.archive.block_steps import BlockSteps
from ipcbus.archive.row_entries import RowEntries, RowSearch
from ipcbus.embedding import NUMBER_MAX, OlderPiece
from ipcbus.errors import IpcBusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.archive.log import Log

_log = logging.getLogger("ipcbus")

_MESSAGES: Final = 256
"""Most messages that one call returns."""
_BYTES: Final = 256 << 10
"""About the most bytes of messages that one call returns."""
_PATIENCE_S: Final = 0.25
"""How long the first message is waited for, if a recorder writes into the archive."""
_BEHIND_S: Final = 10.0
"""How long the beginning of the topic is waited for, if a recorder has an earlier topic of this name and session."""
_SILENT_S: Final = 1.0
"""How long after the beginning or end of the topic in a log the recorder is waited for, beside its own delay."""
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

    def of(self, topic: str, source: str, number: int) -> RecordedTopic:
        """Returns the recorded messages of a topic, which has a number in the session with this source string."""
        found = RecordedTopic(self._archive, topic, source, number, self._report)
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


class _Place(NamedTuple):
    """Where the messages of a topic are, and where they go."""

    topic: int
    """Its number in the log."""
    session: int
    """The number of its session in the log."""
    number: int
    """The number of the topic in its session."""


class RecordedTopic:
    """The recorded messages of one topic of one session, of all logs that have some (recovery's `OlderMessages`)."""

    def __init__(
        self, archive: Archive, topic: str, source: str, number: int, report: Callable[[str, str], None]
    ) -> None:
        """Looks up which logs have the topic and the session."""
        self._archive, self._topic, self._source, self._number = archive, topic, source, number
        self._report = report
        self.faults = 0
        """How often rows could not be read: damage, a missing segment, or an answer of the system."""
        self._patience_at = time.monotonic() + _PATIENCE_S
        self._behind_until = time.monotonic() + _BEHIND_S
        self.logs: list[_TopicLog] = []
        self._look_up()

    def _look_up(self) -> None:
        archive, fault = self._archive, self._fault
        self._look_at = time.monotonic() + _LOOK_S
        self._is_written = False
        known = {log.key: log for log in self.logs}
        try:
            found = archive.logs()
        except (IpcBusError, OSError) as error:
            fault("its logs", str(error))
            return
        for log in found:
            try:
                is_written = recorded_topics.delay_s(archive, log.stream, self._topic) is not None
                self._is_written |= is_written
                if log.key in known:
                    known[log.key].search_on(is_written=is_written)
                    continue
                names = log.names()
                topics = [number for number, name in names.topics.items() if name == self._topic]
                sessions = [number for number, name in names.sessions.items() if name == self._source]
                if topics and sessions:
                    place = _Place(topics[0], sessions[0], self._number)
                    self.logs.append(_TopicLog(archive, log, self._topic, place, fault))
                    self.logs[-1].is_written = is_written
            except (IpcBusError, OSError) as error:
                fault(f"log {log.key}", str(error))

    def _fault(self, where: str, what: str) -> None:
        self.faults += 1
        self._report(where, what)

    def begin(self, next_sequence: int, wanted: int) -> int | None:
        """Returns the first number that the archive has, or NUMBER_MAX; None while the logs are searched."""
        if any([log.search() for log in self.logs]) or self._waits_for_first():
            return None
        # Rows that no BOS tells apart, with numbers that the source has not reached, are of an earlier source.
        self.logs = [log for log in self.logs if log.found.is_certain or log.found.last < next_sequence]
        for log in self.logs:
            log.seek(wanted)
        return min((log.found.first for log in self.logs), default=NUMBER_MAX)

    def _waits_for_first(self) -> bool:
        """Returns whether a recorder may show the first message soon; looks again now and then."""
        now = time.monotonic()
        is_behind = any(log.is_written and log.found.is_behind for log in self.logs)
        until = self._behind_until if is_behind else self._patience_at
        if not self._is_written or any(log.found.last >= 0 for log in self.logs) or now >= until:
            return False
        if is_behind:
            self._patience_at = now + _PATIENCE_S  # from the beginning on
        if now >= self._look_at:
            self._look_up()
        return True

    def read(self, first: int, last: int) -> OlderPiece | None:
        """Returns the next messages from a number on; None while they are searched."""
        if any([log.search() for log in self.logs]):
            # Without `begin`: the search says which topic number the next rows have. The source is asked meanwhile.
            return OlderPiece(NUMBER_MAX, -1, 0, b"", True)
        begins = [log.begin(first) for log in self.logs]
        begin, best, grows = NUMBER_MAX, None, any(log.grows for log in self.logs)
        for log, found in zip(self.logs, begins, strict=True):
            if found is None:
                return None
            if found < begin:
                begin, best = found, log
        if begin == NUMBER_MAX and grows:
            # A recorder that has recorded a loss does not bring what was lost.
            lost_below = min(log.lost_below for log in self.logs if log.grows)
            begin = lost_below if lost_below > first else NUMBER_MAX
        if best is None or begin != first:
            return OlderPiece(begin, -1, 0, b"", grows)
        return OlderPiece(begin, *best.take(last), grows)


class _TopicLog:
    """The rows of one topic of one session in one log."""

    def __init__(
        self, archive: Archive, log: Log, topic: str, place: _Place, fault: Callable[[str, str], None]
    ) -> None:
        self._archive, self._log, self._topic, self._place, self._report = archive, log, topic, place, fault
        self.found = RowSearch(place.topic, place.session, place.number)
        start, self._end = log.bounds()
        self._search = BlockSteps(log, start, None, None)  # what it cannot read is reported when it is read
        # Without a search, what is recorded from now on is read.
        self._reader = BlockSteps(log, self._end, self._wants, self._fault)
        self._search_end = self._end
        self._wanted_from = 0
        self._look_at = 0.0
        self._entries: RowEntries | None = None
        self._delay_s: float | None = None
        self._silent_since: float | None = None
        self.is_written = False
        """Whether a recorder of the topic writes the log, as of the last look."""
        self.lost_below = 0
        """The number after the last loss that was read."""

    @property
    def key(self) -> str:
        """The key of the log."""
        return self._log.key

    @property
    def grows(self) -> bool:
        """Whether a recorder may add messages of the topic that were sent already."""
        if self._delay_s is None or self._silent_since is None:
            return self._delay_s is not None
        # One that has just joined the topic, or joins it again, may have some that are not written.
        return time.monotonic() < self._silent_since + _SILENT_S + 2 * self._delay_s

    def search_on(self, *, is_written: bool) -> None:
        """Lets `search` go on to the present end of the log."""
        self.is_written = is_written
        self._search_end = self._end = self._log.bounds()[1]

    def search(self) -> bool:
        """Looks at some more rows; returns whether there are more, as of when the object was made, or `search_on`."""
        if self._search.offset < self._search_end:
            rows = self._search.step(self._search_end)
            if rows is not None:
                self.found.note(rows.rows, rows.offset)
        return self._search.offset < self._search_end

    def seek(self, wanted: int) -> None:
        """Begins to read at a number, or at the first one that is recorded."""
        places = self.found.places
        at = bisect_right(places, wanted, key=lambda place: place[0]) - 1
        self._reader.offset = places[max(0, at)][1] if places else self._search_end

    # ------------------------------------------------------------------ reading

    def begin(self, first: int) -> int | None:
        """Returns the first number of the next message that does not begin below a number.

        Returns:
            NUMBER_MAX at the end, None while it is searched.
        """
        self._wanted_from = first
        if self._entries is not None:
            begin = self._entries.begin(first)
            if begin is not None:
                return begin
            if self._entries.contradicts:
                self._fault("rows contradict each other")
            self._entries = None
        if not self._has_more():
            return NUMBER_MAX
        rows = self._reader.step(self._end)
        if rows is not None:
            place = self._place
            self._entries = RowEntries(rows.rows, rows.data, rows.position, place.topic, place.session, place.number)
        return None

    def take(self, last: int) -> tuple[int, int, bytes]:
        """Returns the messages that `begin` has found, and that do not end behind a number (`RowEntries.take`)."""
        return self._entries.take(last, _MESSAGES, _BYTES) if self._entries is not None else (-1, 0, b"")

    def _has_more(self) -> bool:
        """Returns whether there are rows that were not read."""
        if self._reader.offset >= self._end and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_S
            try:
                # Before the end is read.
                self._delay_s = recorded_topics.delay_s(self._archive, self._log.stream, self._topic)
                self._end = self._log.bounds()[1]
            except (IpcBusError, OSError) as error:
                self._fault(str(error))
                self._delay_s = None
        return self._reader.offset < self._end

    def _wants(self, rows: bytearray, offset: int) -> bool:
        place = self._place
        self.found.leave_out_others(rows, offset)
        entries = RowEntries(rows, b"", 0, place.topic, place.session, place.number)
        self.lost_below = entries.lost_below(self.lost_below)
        ends = entries.ends_without_message()
        if ends is not None:
            self._silent_since = time.monotonic() if ends else None
        return entries.has(self._wanted_from)

    def _fault(self, what: str) -> None:
        self._report(f"log {self._log.key}", what)
