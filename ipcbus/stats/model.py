"""What a snapshot says: frozen values, ready for tables and JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ipcbus.stats.histogram import Histogram

Counters = Mapping[str, int]
"""Values of counters by their names in `counters.COUNTERS`."""


@dataclass(frozen=True, slots=True)
class SourceStats:
    """A topic on a session.

    Attributes:
        topic: its name.
        number: the session's number of the topic.
        receivers: how many receiving contexts are joined to it.
        counters: those of kind `source`; empty when they could not be read.
    """

    topic: str
    number: int
    receivers: int
    counters: Counters


@dataclass(frozen=True, slots=True)
class SlotStats:
    """A receiving context on a session.

    Attributes:
        slot: number of the slot.
        state: `joining`, `active`, or `evicted`: cut off by its source, and it has not noticed yet.
        alive: whether its process lives; a dead one's slot is taken back within a second.
        pid: its process.
        uid: its user.
        context_id: its context.
        context_name: the context's name, often empty.
        command: command line of the process; empty when it cannot be read.
        joined_ns: when it joined, ns since the epoch.
        position: what it has read, in bytes since the session began.
        lag: bytes that it has not read yet.
        topics: what it receives of the session.
        counters: those of kind `slot`.
        latency: from the begin of a datagram to its reading.
    """

    slot: int
    state: str
    alive: bool
    pid: int
    uid: int
    context_id: int
    context_name: str
    command: str
    joined_ns: int
    position: int
    lag: int
    topics: tuple[str, ...]
    counters: Counters
    latency: Histogram


@dataclass(frozen=True, slots=True)
class SessionStats:
    """A transport session.

    Attributes:
        source: its source string, for example `LBT-IPC:6481f8d4:20001`.
        transport: for example `LBT-IPC`.
        pid: the process that sends.
        command: its command line; empty when it cannot be read.
        pacing: `receiver_paced` or `source_paced`.
        capacity: bytes of its window.
        datagram_max: the longest datagram in bytes.
        slots_max: how many contexts may join.
        topics_max: how many topics it may carry.
        tail: what was published, in bytes since the session began.
        closed: whether its source has ended it.
        counters: those of kind `session`; empty when they could not be read.
        sources: its topics.
        receivers: who reads it.
        reason: why numbers are missing; empty when none is.
    """

    source: str
    transport: str
    pid: int
    command: str
    pacing: str
    capacity: int
    datagram_max: int
    slots_max: int
    topics_max: int
    tail: int
    closed: bool
    counters: Counters
    sources: tuple[SourceStats, ...]
    receivers: tuple[SlotStats, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ReceiverStats:
    """A receiver of a context, over all its sessions.

    Attributes:
        topic: what it receives; of a wildcard receiver the pattern, of which long ones are cut.
        wildcard: whether it receives every topic that matches.
        since_ns: when it was made, ns since the epoch.
        counters: those of kind `receiver`.
    """

    topic: str
    wildcard: bool
    since_ns: int
    counters: Counters


@dataclass(frozen=True, slots=True)
class ContextStats:
    """A context.

    Attributes:
        context_id: its number, random.
        name: its name, often empty.
        pid: its process; 0 when its registry cannot be read.
        uid: its user.
        command: command line of the process; empty when it cannot be read.
        start_ns: when it was opened, ns since the epoch.
        release: its version of ipcbus.
        alive: whether its process lives; what a dead one left is removed within a second while others live.
        sessions: what it sends on.
        receivers: what it receives.
        reason: why nothing more is known of it; empty when it could be read.
    """

    context_id: int
    name: str
    pid: int
    uid: int
    command: str
    start_ns: int
    release: str
    alive: bool
    sessions: tuple[SessionStats, ...]
    receivers: tuple[ReceiverStats, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class DomainSnapshot:
    """A domain at one moment; the numbers of different contexts are read microseconds apart.

    Attributes:
        domain: its name, or its tag in the names of shared objects where no context tells the name.
        taken_ns: when, ns since the epoch.
        contexts: all of them, the oldest first.
    """

    domain: str
    taken_ns: int
    contexts: tuple[ContextStats, ...]

    @property
    def sessions(self) -> Iterator[SessionStats]:
        """The sessions of all contexts."""
        return (session for context in self.contexts for session in context.sessions)

    def session(self, source: str) -> SessionStats | None:
        """The session with this source string."""
        return next((session for session in self.sessions if session.source == source), None)

    def to_dict(self) -> dict[str, Any]:
        """Everything as dictionaries, lists, numbers and texts, for `json.dumps`."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever stands in the dataclasses above
    if isinstance(value, Histogram):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
