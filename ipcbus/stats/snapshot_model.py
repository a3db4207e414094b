"""What a snapshot says: frozen values, ready for tables and JSON.

`take_snapshot` fills what can be known at one moment. What needs two (`per_second`, `recent`, `blocked`, `seconds`) is
filled by `rates`, and empty or None until then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping  # noqa: TC003
from dataclasses import dataclass, field
from typing import Any

from ipcbus.stats import serialization
from ipcbus.stats.compat import complete
from ipcbus.stats.histogram import Histogram  # noqa: TC001 - from_dict looks the types up
from ipcbus.stats.recorder_model import RecorderStats  # noqa: TC001 - the same
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
        topic: its name.
        number: the session's number of the topic.
        receivers: how many receiving contexts are joined to it.
        counters: those of kind `source`; empty when they could not be read.
        per_second: how they grew.
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
        slot: number of the slot; those from 64 on receive over UDP, which needs none.
        generation: how often the slot has changed hands; with it, a slot that another reader took is told apart.
        state: `joining`, `active`, or `evicted`: cut off by its source, and it has not noticed yet.
        alive: whether its process lives; a dead one's slot is taken back within a second.
        stopped: whether its process is stopped, as by SIGSTOP or a debugger.
        parked: whether it sleeps until something is published, or is about to.
        pid: its process.
        uid: its user.
        user: the user's name, or the number again.
        context_id: its context.
        context_name: the context's name, often empty.
        command: command line of the process; empty when it cannot be read.
        joined_ns: when it joined, ns since the epoch.
        position: what it has read, in bytes since the session began, or since it joined over UDP.
        lag: bytes that it has not read yet; more than the window where a source-paced source has lapped it. Over UDP
            what has come and was not read, and what is missing; of a context on another host what it had not got when
            it said so last.
        lag_messages: about as many messages: the bytes over the mean size of the messages sent of late; None when
            nothing tells the size.
        topics: what it receives of the session.
        counters: those of kind `slot`; empty of a context that cannot be looked at, as on another host.
        latency: from the sending of a message to the reading of its datagram, since it joined.
        per_second: how the counters grew.
        recent: the latency of what it read between the two snapshots; None without the earlier one.
        layer: `ring`, or the transport over which it receives, for example `LBT-RU`.
        reason: why it does not read the ring; empty where it does, or where there is none.
        address: where it receives over UDP, as its source says; empty when it says nothing.
        reception: its end of the session over UDP; None without one that can be looked at.
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
        """What tells it from every other and later one on the session."""
        if self.layer == RING:
            return self.slot, self.generation, self.context_id
        return self.layer, self.joined_ns, self.context_id

    @property
    def doing(self) -> str:
        """In a word: `reads`, `parked`, `joining`, `evicted`, `stopped` or `dead`."""
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
        transport: for example `LBT-IPC`.
        context_id: the context that sends.
        context_name: the context's name, often empty.
        pid: its process.
        uid: its user.
        user: the user's name, or the number again.
        command: its command line; empty when it cannot be read.
        alive: whether its process lives.
        stopped: whether its process is stopped, as by SIGSTOP or a debugger.
        start_ns: when the session began, ns since the epoch; 0 when unknown.
        pacing: `receiver_paced` or `source_paced`.
        capacity: bytes of its window.
        datagram_max: the longest datagram in bytes.
        slots_max: how many contexts may join.
        topics_max: how many topics it may carry.
        tail: what was published, in bytes since the session began.
        closed: whether its source has ended it.
        wait: `blocked` while a send waits for room, `refused` while one that found none waits for its WAKEUP event,
            else empty.
        blocked_for_ns: how long the send that is blocked has waited until now; 0 when none is.
        counters: those of kind `session`; empty when they could not be read.
        sources: its topics.
        receivers: who reads it.
        reason: why numbers are missing; empty when none is.
        read_ns: when the numbers were read, ns of the monotonic clock.
        per_second: how the counters grew.
        blocked: the share of the time, 0 to 1, in which its source was kept waiting; None without an earlier snapshot.
        held_up_for_ns: for how long `held_up_by`, or the data rate, has held it up without a rest, as far as was
            watched.
        uplink: how it goes over UDP, or could; None where it has a ring only.
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
        """How far each is behind who is waited for."""
        lags = [slot.lag for slot in self.receivers if slot.state == "active" and slot.layer == RING]
        return lags + ([self.uplink.lag] if self.counters and self.uplink and self.uplink.active else [])

    @property
    def fill(self) -> float | None:
        """The share of the window, 0 to 1, that the reader furthest behind has not read; None without a reader."""
        lags = self._lags
        return min(1.0, max(lags) / self.capacity) if lags and self.capacity else None

    @property
    def messages_per_datagram(self) -> float | None:
        """How full datagrams were between the two snapshots, or since the beginning without the earlier one."""
        counts: Mapping[str, float] = self.per_second or self.counters
        datagrams, messages = counts.get("msgs_sent"), counts.get("lbm_msgs_sent")
        return messages / datagrams if datagrams and messages is not None else None

    @property
    def batch_wait_ns(self) -> float | None:
        """How long a message waited for others in its datagram: the mean between the two snapshots.

        Without the earlier one, since the beginning. It is a part of the latency. None where no message was sent.
        """
        counts: Mapping[str, float] = self.per_second or self.counters
        waited, messages = counts.get("batch_wait_ns"), counts.get("lbm_msgs_sent")
        return waited / messages if messages and waited is not None else None

    @property
    def held_up_by(self) -> SlotStats | None:
        """The reader that keeps a receiver-paced source waiting, now or since the earlier snapshot; often None."""
        if self.pacing != "receiver_paced" or not (self.wait or self.blocked) or self.held_up_by_rate:
            return None
        readers = [slot for slot in self.receivers if slot.state == "active" and slot.layer == RING]
        return max(readers, key=lambda slot: slot.lag, default=None)

    @property
    def held_up_by_rate(self) -> bool:
        """Whether the limit of the data rate over UDP keeps the source waiting, now or since the earlier snapshot."""
        uplink = self.uplink
        if uplink is None or not uplink.active or not (self.wait or self.blocked):
            return False
        return bool(uplink.limited_for_ns or uplink.limited) and uplink.lag >= max(self._lags)

    def derived(self) -> dict[str, float | int | None]:
        """What `to_dict` adds to the fields; of the reader that holds the source up, the number of its slot."""
        holder = self.held_up_by
        return {
            "fill": self.fill,
            "messages_per_datagram": self.messages_per_datagram,
            "batch_wait_ns": self.batch_wait_ns,
            "held_up_by": None if holder is None else holder.slot,
            "held_up_by_rate": self.held_up_by_rate,
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns the session as it stands in the snapshot's `to_dict`."""
        return {**serialization.to_plain(self), **self.derived()}


@dataclass(frozen=True, slots=True)
class ReceiverStats:
    """A receiver of a context, over all its sessions.

    Attributes:
        topic: what it receives; of a wildcard receiver the pattern, of which long ones are cut.
        wildcard: whether it receives every topic that matches.
        since_ns: when it was made, ns since the epoch.
        counters: those of kind `receiver`.
        per_second: how they grew.
    """

    topic: str
    wildcard: bool
    since_ns: int
    counters: Counters
    per_second: Rates = field(default_factory=lambda: NO_RATES)


@dataclass(frozen=True, slots=True)
class ContextStats:
    """A context.

    Attributes:
        context_id: its number, random.
        name: its name, often empty.
        pid: its process; 0 when its registry cannot be read.
        uid: its user.
        user: the user's name, or the number again.
        command: command line of the process; empty when it cannot be read.
        start_ns: when it was opened, ns since the epoch.
        release: its version of ipcbus.
        alive: whether its process lives; what a dead one left is removed within a second while others live.
        stopped: whether its process is stopped, as by SIGSTOP or a debugger.
        sessions: what it sends on.
        receivers: what it receives.
        recorders: what writes what it receives into archives.
        reason: why nothing more is known of it; empty when it could be read.
        read_ns: when its receivers' counters were read, ns of the monotonic clock.
        counters: those of kind `context`; empty when they could not be read.
        per_second: how they grew.
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
        domain: its name, or its tag in the names of shared objects where no context tells the name.
        taken_ns: when, ns since the epoch.
        read_ns: the same moment in ns of the monotonic clock, by which rates are reckoned.
        contexts: all of them, the oldest first; behind them those elsewhere from which contexts here receive over UDP.
        seconds: how much earlier the snapshot was that the rates are from; 0 without one. `History` reckons the rates
            of what sends very few messages over up to 20 s.
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
        """Everything as dictionaries, lists, numbers and texts, for `json.dumps`; docs/reference/json.md."""
        found: dict[str, Any] = serialization.to_plain(self)
        for context, taken in zip(found["contexts"], self.contexts, strict=True):
            for session, stats in zip(context["sessions"], taken.sessions, strict=True):
                session.update(stats.derived())
            for recorder, shown in zip(context["recorders"], taken.recorders, strict=True):
                recorder.update(shown.derived())
        return found

    @classmethod
    def from_dict(cls, value: object) -> DomainSnapshot:
        """Returns a snapshot from what `to_dict` gave; what else stands there is passed over.

        Raises:
            ValueError: something is missing, or of another type; the text names where.
        """
        found = serialization.from_plain(cls, value, "snapshot")
        return dataclasses.replace(found, contexts=tuple(map(complete, found.contexts)))
