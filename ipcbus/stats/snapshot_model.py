"""The data model of a snapshot: frozen values, ready for tables and JSON.

`take_snapshot` fills the values of one moment. `rates` fills those that need two snapshots (`per_second`, `recent`,
`blocked`, `seconds`); until then they are empty or None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping  # noqa: TC003
from dataclasses import dataclass, field
from typing import Any

from ipcbus.stats import serialization
from ipcbus.stats.compat import complete
from ipcbus.stats.histogram import Histogram  # noqa: TC001 - from_dict looks the types up
from ipcbus.stats.recorder_model import RecorderStats  # noqa: TC001 - from_dict looks it up
from ipcbus.stats.udp_model import NO_COUNTERS, NO_RATES, RING, Counters, Rates, ReceptionStats, UplinkStats

__all__ = [
    "NO_COUNTERS",
    "NO_RATES",
    "RING",
    "ContextStats",
    "Counters",
    "DomainSnapshot",
    "Rates",
    "ReceiverStats",
    "ReceptionStats",
    "SessionStats",
    "SlotStats",
    "SourceStats",
    "UplinkStats",
]


@dataclass(frozen=True, slots=True)
class SourceStats:
    """A topic on a session.

    Attributes:
        topic: name of the topic.
        number: the session's number of the topic.
        receivers: number of contexts that receive the topic from the session.
        counters: counters of kind `source`; empty if they could not be read.
        per_second: growth of the counters a second.
    """

    topic: str
    number: int
    receivers: int
    counters: Counters
    per_second: Rates = field(default_factory=lambda: NO_RATES)


@dataclass(frozen=True, slots=True)
class SlotStats:
    """A receiving context on a session.

    Attributes:
        slot: number of the slot; from 64 on numbers of contexts that receive over UDP, without a slot.
        generation: how often the slot got a new receiver; it tells receivers of one slot apart.
        state: `joining`, `active`, or `evicted` (the receiver has not noticed its eviction yet).
        alive: whether its process lives; the slot of a dead process is reclaimed within a second.
        stopped: whether its process is stopped, for example by SIGSTOP or a debugger.
        parked: whether it sleeps until a message is published, or is about to sleep.
        pid: its process.
        uid: its user.
        user: the user's name, or the number as a text.
        context_id: id of the context.
        context_name: the context's name, often empty.
        command: command line of the process; empty if it cannot be read.
        joined_ns: when it joined, ns since the epoch.
        position: bytes that it has read since the session began, or, over UDP, since it joined.
        lag: bytes that it has not read yet; more than the window if a source-paced source has lapped it. Over UDP the
            bytes that have arrived and were not read, and those that are missing; for a context on another host, the
            bytes that were missing there at its last sign of life. While the source waits for the receiver, also the
            bytes that the receiver has not got since then.
        lag_messages: the lag in messages: its bytes divided by the mean size of recent messages; None if the size is
            unknown.
        topics: the topics that it receives from the session.
        counters: counters of kind `slot`; empty for a context that cannot be read, for example on another host.
        latency: time from the sending of a message to the reading of its datagram, since it joined.
        per_second: growth of the counters a second.
        recent: latency between the two snapshots; None without an earlier snapshot.
        layer: `ring`, or the transport over which it receives, for example `LBT-RU`.
        reason: why it does not read the ring; empty if it does, or if the session has no ring.
        address: its address over UDP, as its source shows it; empty if its source shows none.
        reception: its side of the session over UDP; None if it has none, or if it cannot be read.
    """

    slot: int
    generation: int
    state: str
    alive: bool
    parked: bool
    pid: int
    uid: int
    user: str
    context_id: int
    context_name: str
    command: str
    joined_ns: int
    position: int
    lag: int
    lag_messages: int | None
    topics: tuple[str, ...]
    counters: Counters
    latency: Histogram
    per_second: Rates = field(default_factory=lambda: NO_RATES)
    recent: Histogram | None = None
    stopped: bool = False
    layer: str = RING
    reason: str = ""
    address: str = ""
    reception: ReceptionStats | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """A key that no other and no later receiver of the session has."""
        if self.layer == RING:
            return self.slot, self.generation, self.context_id
        return self.layer, self.joined_ns, self.context_id

    @property
    def doing(self) -> str:
        """The state of the receiver in one word: `reads`, `parked`, `joining`, `evicted`, `stopped` or `dead`."""
        if not self.alive:
            return "dead"
        if self.stopped:
            return "stopped"
        if self.state != "active":
            return self.state
        return "parked" if self.parked else "reads"


@dataclass(frozen=True, slots=True)
class SessionStats:
    """A transport session.

    Attributes:
        source: its source string, for example `LBT-IPC:6481f8d4:20001`.
        transport: its transport, for example `LBT-IPC`.
        context_id: id of the context that sends.
        context_name: the context's name, often empty.
        pid: its process.
        uid: its user.
        user: the user's name, or the number as a text.
        command: command line of the process; empty if it cannot be read.
        alive: whether its process lives.
        stopped: whether its process is stopped, for example by SIGSTOP or a debugger.
        start_ns: when the session began, ns since the epoch; 0 if unknown.
        pacing: `receiver_paced` or `source_paced`; empty where the source is on another host.
        capacity: bytes of its window.
        datagram_max: the longest datagram in bytes.
        slots_max: most contexts that may join.
        topics_max: most topics of the session.
        tail: bytes published since the session began.
        closed: whether its source has ended it.
        wait: `blocked` while a send waits for room, `refused` while a refused send waits for its WAKEUP event, else
            empty.
        blocked_for_ns: how long the blocked send has waited until now; 0 if no send is blocked.
        counters: counters of kind `session`; empty if they could not be read.
        sources: its topics.
        receivers: the contexts that receive it.
        reason: why numbers are missing; empty if they are complete.
        read_ns: when the numbers were read, ns of the monotonic clock.
        per_second: growth of the counters a second.
        blocked: share of the time, 0 to 1, in which sends waited; None without an earlier snapshot.
        held_up_for_ns: for how long `held_up_by`, or the data rate, has kept the source waiting without a pause, since
            the first snapshot.
        uplink: its sending side over UDP, in use or not; None if it has a ring only.
    """

    source: str
    transport: str
    context_id: int
    context_name: str
    pid: int
    uid: int
    user: str
    command: str
    alive: bool
    start_ns: int
    pacing: str
    capacity: int
    datagram_max: int
    slots_max: int
    topics_max: int
    tail: int
    closed: bool
    wait: str
    blocked_for_ns: int
    counters: Counters
    sources: tuple[SourceStats, ...]
    receivers: tuple[SlotStats, ...]
    reason: str
    read_ns: int = field(compare=False)
    per_second: Rates = field(default_factory=lambda: NO_RATES)
    blocked: float | None = None
    held_up_for_ns: int = 0
    stopped: bool = False
    uplink: UplinkStats | None = None

    @property
    def _lags(self) -> list[int]:
        """The lags of all readers that the source waits for, in bytes."""
        lags = [slot.lag for slot in self.receivers if slot.state == "active" and slot.layer == RING]
        return lags + ([self.uplink.lag] if self.counters and self.uplink and self.uplink.active else [])

    @property
    def fill(self) -> float | None:
        """Share of the window, 0 to 1, that the slowest reader has not read; None without a reader."""
        lags = self._lags
        return min(1.0, max(lags) / self.capacity) if lags and self.capacity else None

    @property
    def messages_per_datagram(self) -> float | None:
        """Mean number of messages in a datagram between the two snapshots, or, without an earlier one, of all."""
        counts: Mapping[str, float] = self.per_second or self.counters
        datagrams, messages = counts.get("msgs_sent"), counts.get("lbm_msgs_sent")
        return messages / datagrams if datagrams and messages is not None else None

    @property
    def batch_wait_ns(self) -> float | None:
        """Mean time that a message waited for others in its datagram, between the two snapshots; a part of the latency.

        Without an earlier snapshot, the mean of all messages. None if no message was sent.
        """
        counts: Mapping[str, float] = self.per_second or self.counters
        waited, messages = counts.get("batch_wait_ns"), counts.get("lbm_msgs_sent")
        return waited / messages if messages and waited is not None else None

    @property
    def held_up_by(self) -> SlotStats | None:
        """The reader that keeps a receiver-paced source waiting, now or since the earlier snapshot; may be None."""
        if self.pacing != "receiver_paced" or not (self.wait or self.blocked) or self.held_up_by_rate:
            return None
        active = [slot for slot in self.receivers if slot.state == "active"]
        slowest = max((slot for slot in active if slot.layer == RING), key=lambda slot: slot.lag, default=None)
        uplink = self.uplink
        if uplink is None or not uplink.active or (slowest is not None and slowest.lag >= uplink.lag):
            return slowest
        # What sends the session over UDP or TCP waits itself, for its slowest client. That one may have shown nothing
        # for a while, neither that it has joined nor its lag: what it has not read lies in its socket.
        clients = [slot for slot in active if slot.layer != RING]
        named = [slot for slot in self.receivers if slot.layer != RING and slot.context_id == uplink.slowest]
        return max(named or clients, key=lambda slot: (slot.lag, slot.stopped), default=slowest)

    @property
    def held_up_by_rate(self) -> bool:
        """Whether the limit of the data rate over UDP keeps the source waiting, now or since the earlier snapshot."""
        uplink = self.uplink
        if uplink is None or not uplink.active or not (self.wait or self.blocked):
            return False
        return bool(uplink.limited_for_ns or uplink.limited) and uplink.lag >= max(self._lags)

    def derived(self) -> dict[str, float | int | None]:
        """Returns the values that `to_dict` adds to the fields; `held_up_by` is a number of a slot there."""
        holder = self.held_up_by
        return {
            "fill": self.fill,
            "messages_per_datagram": self.messages_per_datagram,
            "batch_wait_ns": self.batch_wait_ns,
            "held_up_by": None if holder is None else holder.slot,
            "held_up_by_rate": self.held_up_by_rate,
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns the session as in the snapshot's `to_dict`."""
        return {**serialization.to_plain(self), **self.derived()}


@dataclass(frozen=True, slots=True)
class ReceiverStats:
    """A receiver of a context, over all its sessions.

    Attributes:
        topic: its topic; for a wildcard receiver its pattern, which is cut if it is long.
        wildcard: whether it receives all topics that match.
        since_ns: when it was made, ns since the epoch.
        counters: counters of kind `receiver`.
        per_second: growth of the counters a second.
    """

    topic: str
    wildcard: bool
    since_ns: int
    counters: Counters
    per_second: Rates = field(default_factory=lambda: NO_RATES)


@dataclass(frozen=True, slots=True)
class ContextStats:
    """A context with its sessions, receivers and recorders.

    Attributes:
        context_id: its id, a random number.
        name: its name, often empty.
        pid: its process; 0 if its registry cannot be read.
        uid: its user.
        user: the user's name, or the number as a text.
        command: command line of the process; empty if it cannot be read.
        start_ns: when it was opened, ns since the epoch.
        release: its version of ipcbus.
        alive: whether its process lives; other contexts remove the objects of a dead context within a second.
        stopped: whether its process is stopped, for example by SIGSTOP or a debugger.
        sessions: the sessions that it sends.
        receivers: its receivers.
        recorders: its recorders, which write messages into archives.
        reason: why the other values are missing; empty if it could be read.
        read_ns: when its receivers' counters were read, ns of the monotonic clock.
        counters: counters of kind `context`; empty if they could not be read.
        per_second: growth of the counters a second.
    """

    context_id: int
    name: str
    pid: int
    uid: int
    user: str
    command: str
    start_ns: int
    release: str
    alive: bool
    sessions: tuple[SessionStats, ...]
    receivers: tuple[ReceiverStats, ...]
    reason: str
    read_ns: int = field(compare=False)
    stopped: bool = False
    recorders: tuple[RecorderStats, ...] = ()
    counters: Counters = field(default_factory=lambda: NO_COUNTERS)
    per_second: Rates = field(default_factory=lambda: NO_RATES)


@dataclass(frozen=True, slots=True)
class DomainSnapshot:
    """A domain at one moment; the numbers of different contexts are read microseconds apart.

    Attributes:
        domain: its name, or, if no context shows the name, its tag in the names of shared objects.
        taken_ns: when the snapshot was taken, ns since the epoch.
        read_ns: this moment in ns of the monotonic clock, for rates.
        contexts: its contexts, the oldest first; then contexts on other hosts whose sessions are received here.
        seconds: time between the earlier snapshot and this one, in s; 0 without an earlier one. `History` computes
            rates of very few messages over up to 20 s.
    """

    domain: str
    taken_ns: int
    read_ns: int
    contexts: tuple[ContextStats, ...]
    seconds: float = 0.0

    @property
    def sessions(self) -> Iterator[SessionStats]:
        """The sessions of all contexts."""
        return (session for context in self.contexts for session in context.sessions)

    def session(self, source: str) -> SessionStats | None:
        """Returns the session with this source string."""
        return next((session for session in self.sessions if session.source == source), None)

    def to_dict(self) -> dict[str, Any]:
        """Returns dictionaries, lists, numbers and texts, for `json.dumps`; docs/reference/json.md describes them."""
        found: dict[str, Any] = serialization.to_plain(self)
        for context, taken in zip(found["contexts"], self.contexts, strict=True):
            for session, stats in zip(context["sessions"], taken.sessions, strict=True):
                session.update(stats.derived())
            for recorder, shown in zip(context["recorders"], taken.recorders, strict=True):
                recorder.update(shown.derived())
        return found

    @classmethod
    def from_dict(cls, value: object) -> DomainSnapshot:
        """Returns a snapshot from the result of `to_dict`; unknown entries are ignored.

        Raises:
            ValueError: an entry is missing, or has the wrong type; the text names the entry.
        """
        found = serialization.from_plain(cls, value, "snapshot")
        return dataclasses.replace(found, contexts=tuple(map(complete, found.contexts)))
