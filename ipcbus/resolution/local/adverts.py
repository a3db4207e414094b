"""What a registry says, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ipcbus.resolution.source_string import Endpoint as Endpoint
from ipcbus.resolution.source_string import over_udp as over_udp
from ipcbus.resolution.source_string import source_string
from ipcbus.wire import wire_layout
from ipcbus.wire.transport_names import OVER_UDP
from ipcbus.wire.transport_names import TRANSPORT_NAMES as TRANSPORT_NAMES


@dataclass(frozen=True, slots=True)
class SessionAdvert:
    """A transport session that a context offers."""

    context_id: int
    local: int
    transport: int
    session_id: int
    transport_id: int
    window: int
    source_paced: bool
    topics_max: int
    endpoint: Endpoint | None = None
    """Of a session over UDP; of one over a ring, that of its twin over UDP, where it has one."""

    @property
    def over_udp(self) -> bool:
        """Whether it goes over UDP alone."""
        return self.transport in OVER_UDP

    @property
    def source_string(self) -> str:
        """Its name."""
        return source_string(self.transport, self.session_id, self.transport_id, self.endpoint)


@dataclass(frozen=True, slots=True)
class SourceAdvert:
    """A topic that a context publishes on one of its sessions."""

    session: SessionAdvert
    topic: str
    topic_number: int


@dataclass(frozen=True, slots=True)
class ReceiverAdvert:
    """A topic or pattern that a context receives, with the receiver's counters at the moment of reading."""

    topic: str
    wildcard: bool
    since_ns: int
    lbm_msgs_rcved: int
    bytes_rcved: int
    lost: int
    events: int
    callback_errors: int
    fragments_rcved: int


_RECEIVER_COUNTERS = ("lbm_msgs_rcved", "bytes_rcved", "lost", "events", "callback_errors", "fragments_rcved")


@dataclass(frozen=True, slots=True)
class ReceptionAdvert:
    """A session that a context receives over UDP.

    Attributes:
        context_id: the context that sends it.
        session_id: the session's.
        transport: number of its transport: of one that has a ring too, of that.
        source_string: the session's.
        local: number of the own ring into which it is put.
        since_ns: when it was joined so, ns since the epoch.
    """

    context_id: int
    session_id: int
    transport: int
    source_string: str
    local: int
    since_ns: int


@dataclass(frozen=True, slots=True)
class RecorderAdvert:
    """A recorder of a context.

    Attributes:
        log: path of the log that it writes; of a long one the end.
        since_ns: when it was started, ns since the epoch.
        shown_ns: when it has shown its numbers, ns of the monotonic clock.
        behind_ns: how old its oldest message was then.
        values: its numbers by their names in the layout.
    """

    log: str
    since_ns: int
    shown_ns: int
    behind_ns: int
    values: dict[str, int]


@dataclass(frozen=True, slots=True)
class ContextAdvert:
    """Everything a context's registry says."""

    context_id: int
    pid: int
    uid: int
    start_ns: int
    name: str
    domain: str
    release: str
    sessions: tuple[SessionAdvert, ...]
    sources: tuple[SourceAdvert, ...]
    receivers: tuple[ReceiverAdvert, ...]
    receptions: tuple[ReceptionAdvert, ...] = ()
    recorders: tuple[RecorderAdvert, ...] = ()
    counters: dict[str, int] = field(default_factory=dict, compare=False)
    """What it counts itself, by names in the layout."""


def text(field: object) -> str:
    """Returns a zero-padded field as text; bytes that are no UTF-8 are replaced."""
    return bytes(field).split(b"\0")[0].decode(errors="replace")  # type: ignore[call-overload, no-any-return]


def decode(
    header: np.void,
    entries: np.ndarray[tuple[int], np.dtype[np.void]],
    context_id: int,
    *,
    receivers: bool = True,
) -> ContextAdvert:
    """Returns the values of a copied registry. What contradicts itself is left out.

    Args:
        header: its header.
        entries: its entries.
        context_id: id in the registry's name, which only one can have: what the header says may be another's, in whose
            name this registry would then offer topics.
        receivers: decode the receivers, receptions and recorders too.
    """
    by_state = {
        state: entries[entries["state"] == state] for state in (wire_layout.ENTRY_SESSION, wire_layout.ENTRY_SOURCE)
    }
    sessions = {
        int(row["local"]): SessionAdvert(
            context_id,
            int(row["local"]),
            int(row["transport"]),
            int(row["session_id"]),
            int(row["transport_id"]),
            int(row["window"]),
            bool(row["pacing"]),
            int(row["topics_max"]),
            Endpoint.of(text(row["name"])),
        )
        for row in by_state[wire_layout.ENTRY_SESSION]
    }
    sources = tuple(
        SourceAdvert(sessions[int(row["local"])], text(row["name"]), int(row["topic"]))
        for row in by_state[wire_layout.ENTRY_SOURCE]
        if int(row["local"]) in sessions
    )
    kinds = (wire_layout.ENTRY_RECEIVER, wire_layout.ENTRY_WILDCARD) if receivers else ()
    receiving = tuple(
        ReceiverAdvert(
            text(row["name"]),
            bool(row["state"] == wire_layout.ENTRY_WILDCARD),
            int(row["since_ns"]),
            **{name: int(row[name]) for name in _RECEIVER_COUNTERS},
        )
        for row in entries[np.isin(entries["state"], kinds)]
    )
    recorders = entries.view(
        wire_layout.RECORDER_ENTRY
    )  # first of all: a copy of some would be without what lies between
    return ContextAdvert(
        context_id,
        int(header["pid"]),
        int(header["uid"]),
        int(header["start_ns"]),
        text(header["context_name"]),
        text(header["domain"]),
        text(header["release"]),
        tuple(sessions.values()),
        sources,
        receiving,
        tuple(map(_reception, entries[entries["state"] == wire_layout.ENTRY_RECEPTION])) if receivers else (),
        tuple(map(_recorder, recorders[recorders["state"] == wire_layout.ENTRY_RECORDER])) if receivers else (),
        {name: int(header[name]) for name in wire_layout.RESOLUTION_COUNTERS} if receivers else {},
    )


def _recorder(row: np.void) -> RecorderAdvert:
    values = dict(zip(row.dtype.names or (), row.item(), strict=True))
    return RecorderAdvert(text(values.pop("name")), values["since_ns"], values["shown_ns"], values["behind_ns"], values)


def _reception(row: np.void) -> ReceptionAdvert:
    return ReceptionAdvert(
        int(row["context_id"]),
        int(row["session_id"]),
        int(row["transport"]),
        text(row["name"]),
        int(row["local"]),
        int(row["since_ns"]),
    )
