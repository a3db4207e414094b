"""The contents of a registry as Python values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ipcbus.resolution.source_string import Endpoint as Endpoint
from ipcbus.resolution.source_string import over_udp as over_udp
from ipcbus.resolution.source_string import source_string
from ipcbus.wire import wire_layout
from ipcbus.wire.transport_names import OVER_UDP, TRANSPORT_LBTRM, TRANSPORT_LBTRU, TRANSPORT_LBTTCP
from ipcbus.wire.transport_names import TRANSPORT_NAMES as TRANSPORT_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np


@dataclass(frozen=True, slots=True)
class SessionAdvert:
    """A transport session that a context sends."""

    context_id: int
    local: int
    transport: int
    session_id: int
    transport_id: int
    window: int
    source_paced: bool
    topics_max: int
    endpoint: Endpoint | None = None
    """The endpoint of a session over UDP, or of the UDP twin of a session over a ring."""

    def __hash__(self) -> int:
        """Returns a hash of what tells almost all sessions apart; one of all fields takes long."""
        return hash((self.session_id, self.context_id))

    @property
    def over_udp(self) -> bool:
        """Whether the session has no ring."""
        return self.transport in OVER_UDP

    @property
    def over_network(self) -> int:
        """The number of the transport at its endpoint, which is that of the UDP twin where the session has a ring."""
        if self.over_udp or self.endpoint is None:
            return self.transport
        if self.endpoint.tcp:
            return TRANSPORT_LBTTCP
        return TRANSPORT_LBTRM if self.endpoint.group else TRANSPORT_LBTRU

    @property
    def source_string(self) -> str:
        """The source string of the session."""
        return source_string(self.transport, self.session_id, self.transport_id, self.endpoint)


@dataclass(frozen=True, slots=True)
class SourceAdvert:
    """A topic that a context publishes on one of its sessions."""

    session: SessionAdvert
    topic: str
    topic_number: int
    retains: bool = field(default=False, compare=False)
    """Whether the source keeps what it sent, so that receivers may ask for it."""


@dataclass(frozen=True, slots=True)
class ReceiverAdvert:
    """A topic or pattern that a context receives, with the counters of the receiver when they were read."""

    topic: str
    wildcard: bool
    since_ns: int
    lbm_msgs_rcved: int
    bytes_rcved: int
    lost: int
    events: int
    callback_errors: int
    fragments_rcved: int
    gmd_identity: int = 0
    """A hash of its `gmd_name`; 0 without one."""


_CONTEXT_COUNTERS = (
    *wire_layout.RESOLUTION_COUNTERS,
    *wire_layout.REQUEST_COUNTERS,
    *wire_layout.RECOVERY_COUNTERS,
    *wire_layout.GMD_COUNTERS,
)
_RECEIVER_COUNTERS = ("lbm_msgs_rcved", "bytes_rcved", "lost", "events", "callback_errors", "fragments_rcved")


@dataclass(frozen=True, slots=True)
class ReceptionAdvert:
    """A session that a context receives over UDP.

    Attributes:
        context_id: id of the context that sends it.
        session_id: id of the session.
        transport: number of its transport; for a session over a ring, the transport of the ring.
        source_string: source string of the session.
        local: number of the receiving context's ring that gets its datagrams.
        since_ns: when the context joined it over UDP, ns since the epoch.
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
        log: path of the log that it writes; the end of a long path.
        since_ns: when it was started, ns since the epoch.
        shown_ns: when it showed its numbers, ns of the monotonic clock.
        behind_ns: age of its oldest message at that time.
        values: its numbers by their names in the layout.
    """

    log: str
    since_ns: int
    shown_ns: int
    behind_ns: int
    values: dict[str, int]


@dataclass(frozen=True, slots=True)
class ContextAdvert:
    """The contents of a context's registry."""

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
    """Counters of the context, by their names in the layout."""


def text(field: object) -> str:
    """Returns a zero-padded field as text; bytes that are not UTF-8 are replaced."""
    return bytes(field).split(b"\0")[0].decode(errors="replace")  # type: ignore[call-overload, no-any-return]


def decode(
    header: np.void,
    entries: np.ndarray[tuple[int], np.dtype[np.void]],
    context_id: int,
    *,
    receivers: bool = True,
) -> ContextAdvert:
    """Returns the values of a copied registry, without invalid entries.

    Args:
        header: its header.
        entries: its entries.
        context_id: id in the name of the registry, which is unique; a false id in the header could offer topics in the
            name of another context.
        receivers: whether to decode receivers, receptions and recorders, too.
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
        SourceAdvert(sessions[local], text(name), topic, bool(retains))
        for local, name, topic, retains in _columns(
            by_state[wire_layout.ENTRY_SOURCE], "local", "name", "topic", "retains"
        )
        if local in sessions
    )
    recorders = entries.view(
        wire_layout.RECORDER_ENTRY
    )  # before the selection, because a copy of some entries does not contain the bytes between fields
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
        decode_receivers(entries) if receivers else (),
        tuple(map(_reception, entries[entries["state"] == wire_layout.ENTRY_RECEPTION])) if receivers else (),
        tuple(map(_recorder, recorders[recorders["state"] == wire_layout.ENTRY_RECORDER])) if receivers else (),
        {name: int(header[name]) for name in _CONTEXT_COUNTERS} if receivers else {},
    )


def decode_receivers(
    entries: np.ndarray[tuple[int], np.dtype[np.void]], topic: str | None = None
) -> tuple[ReceiverAdvert, ...]:
    """Returns the receivers of a copied registry.

    Args:
        entries: its entries.
        topic: where it is given, only its receivers and all wildcard receivers are decoded; there may be thousands.
    """
    exact = entries["state"] == wire_layout.ENTRY_RECEIVER
    if topic is not None:
        exact &= entries["name"] == topic.encode()
    rows = entries[exact | (entries["state"] == wire_layout.ENTRY_WILDCARD)]
    return tuple(
        ReceiverAdvert(
            text(name),
            state == wire_layout.ENTRY_WILDCARD,
            since_ns,
            **dict(zip(_RECEIVER_COUNTERS, counters, strict=True)),
            gmd_identity=identity,
        )
        for name, state, since_ns, identity, *counters in _columns(
            rows, "name", "state", "since_ns", "gmd_identity", *_RECEIVER_COUNTERS
        )
    )


def _columns(rows: np.ndarray[tuple[int], np.dtype[np.void]], *fields: str) -> Iterator[tuple[Any, ...]]:
    """Yields some fields of each row as Python's values: row by row, numpy takes twenty times as long."""
    return zip(*(rows[field].tolist() for field in fields), strict=True)


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
