"""The lines of the tables: sessions that run, that have just ended, and that cannot be read.

A session whose process died is shown as dead for two intervals, a session that vanished as gone, also when another
context has removed its objects before the next snapshot. Then the line disappears.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipcbus_tools.name_lookup import NOT_READABLE, state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ipcbus.stats import ContextStats, DomainSnapshot, RecorderStats, SessionStats, SlotStats

    Lingers = Callable[["Key"], bool]

LINGER = 2
"""Intervals for which an ended session is still shown."""

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table of sessions.

    Attributes:
        key: identifies the line in every snapshot.
        state: `sends`, `idle`, `blocked`, `refused`, `stopped`, `closed`, `dead`, `gone`, or `NOT_READABLE`.
        session: the session; None for a context that cannot be read.
        context_id: the context that sends.
        reason: why numbers are missing; empty when they are not.
        counters: the counters of the context that sends.
    """

    key: Key
    state: str
    session: SessionStats | None
    context_id: int
    reason: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecorderRow:
    """A line of the table of recorders.

    Attributes:
        state: `RecorderStats.doing`, or `gone`.
        recorder: the recorder.
        pid: the process of the recorder.
        user: the user of the process.
        command: the command line of the process.
    """

    state: str
    recorder: RecorderStats
    pid: int
    user: str
    command: str


class RowList:
    """The lines, with the ended sessions and the times when their end was first seen."""

    def __init__(self) -> None:
        """Begins without lines."""
        self._ended: dict[Key, int] = {}
        self._shown: dict[Key, Row] = {}
        self._recorders: dict[Key, RecorderRow] = {}
        self.hidden_dead = 0
        """Number of dead contexts that are no longer shown, but whose objects are still in shared memory."""
        self._lost: dict[Key, int] = {}
        self._lost_by_gone = 0
        self.lost = 0
        """Messages lost for good by all receivers of all snapshots, also by receivers that are gone."""

    def rows(self, found: DomainSnapshot, interval_ns: int) -> tuple[Row, ...]:
        """Returns the lines of a snapshot.

        Args:
            found: the snapshot, later than those before.
            interval_ns: time between two of them.
        """
        # Half an interval less, so that a snapshot that comes early does not show a line once more.
        limit = found.read_ns - LINGER * interval_ns + interval_ns // 2
        ended: dict[Key, int] = {}

        def lingers(key: Key) -> bool:
            ended[key] = self._ended.get(key, found.read_ns)
            return ended[key] > limit

        rows, recorders = {}, {}
        self.hidden_dead = 0
        for context in found.contexts:
            key: Key = ("context", context.context_id, context.start_ns)
            shown = context.alive or lingers(key)
            self.hidden_dead += not shown
            for row in _rows(context):
                if not context.alive:
                    ended[row.key] = ended[key]  # so that the line does not become gone when the objects are removed
                if shown:
                    rows[row.key] = _without_old_readers(_named(row, self._shown.get(row.key)), lingers)
            for each, line in _recorders(context):
                if not context.alive:
                    ended[each] = ended[key]
                if shown:
                    before = self._recorders.get(each, line)
                    recorders[each] = dataclasses.replace(line, command=line.command or before.command)
        for key, row in self._shown.items():
            if key not in rows and key not in ended and lingers(key):
                rows[key] = dataclasses.replace(row, state="dead" if row.state == "dead" else "gone")
        for key, line in self._recorders.items():
            if key not in recorders and key not in ended and lingers(key):
                recorders[key] = dataclasses.replace(line, state="dead" if line.state == "dead" else "gone")
        self._ended, self._shown, self._recorders = ended, rows, recorders
        self._count_lost(found)
        return tuple(rows.values())

    @property
    def recorders(self) -> tuple[RecorderRow, ...]:
        """The recorders of the last snapshot, those in trouble first."""
        return tuple(sorted(self._recorders.values(), key=lambda row: (row.state == "records", row.recorder.log)))

    def _count_lost(self, found: DomainSnapshot) -> None:
        """Adds up losses; those of a receiver that is gone stay counted."""
        lost: dict[Key, int] = {
            (context.context_id, context.start_ns, receiver.topic, receiver.since_ns): receiver.counters["lost"]
            for context in found.contexts
            for receiver in context.receivers
        }
        self._lost_by_gone += sum(count for key, count in self._lost.items() if key not in lost)
        self._lost = lost
        self.lost = self._lost_by_gone + sum(lost.values())


def _recorders(context: ContextStats) -> Iterator[tuple[Key, RecorderRow]]:
    for recorder in context.recorders:
        key = ("recorder", context.context_id, recorder.log, recorder.since_ns)
        yield key, RecorderRow(recorder.doing, recorder, context.pid, context.user, context.command)


def _named(row: Row, before: Row | None) -> Row:
    """Returns a row with the command line that its process had before it died."""
    session, earlier = row.session, before.session if before else None
    if session is None or session.command or earlier is None:
        return row
    return dataclasses.replace(row, session=dataclasses.replace(session, command=earlier.command))


def _rows(context: ContextStats) -> Iterator[Row]:
    for session in context.sessions:
        key = ("session", session.source, context.context_id)
        yield Row(key, _state(session), session, context.context_id, session.reason, context.counters)
    if not context.sessions and context.reason and not context.pid:
        yield Row(("context", context.context_id), NOT_READABLE, None, context.context_id, context.reason)


def _state(session: SessionStats) -> str:
    return state(session) or ("sends" if session.per_second.get("msgs_sent") else "idle")


def _without_old_readers(row: Row, lingers: Lingers) -> Row:
    """Returns a row without receivers that died long ago; their source is stopped, or has not noticed yet."""
    session = row.session
    if session is None or all(slot.alive for slot in session.receivers):
        return row

    def kept(slot: SlotStats) -> bool:
        return slot.alive or lingers((*row.key, *slot.key))

    readers = tuple(slot for slot in session.receivers if kept(slot))
    return dataclasses.replace(row, session=dataclasses.replace(session, receivers=readers))
