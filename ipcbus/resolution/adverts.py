"""What a registry says, as values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ipcbus.wire import layout

TRANSPORT_NAMES = {layout.TRANSPORT_LBTIPC: "LBT-IPC", layout.TRANSPORT_LBTSMX: "LBT-SMX"}


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

    @property
    def source_string(self) -> str:
        """Ultra Messaging's form, for example `LBT-IPC:6481f8d4:20001`."""
        return f"{TRANSPORT_NAMES.get(self.transport, '?')}:{self.session_id:08x}:{self.transport_id}"


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


def text(field: object) -> str:
    """A zero-padded field as text; bytes that are no UTF-8 are replaced."""
    return bytes(field).split(b"\0")[0].decode(errors="replace")  # type: ignore[call-overload, no-any-return]


def decode(
    header: np.void,
    entries: np.ndarray[tuple[int], np.dtype[np.void]],
    context_id: int,
    *,
    receivers: bool = True,
) -> ContextAdvert:
    """The values of a copied registry. What contradicts itself is left out.

    Args:
        header: its header.
        entries: its entries.
        context_id: id in the registry's name, which only one can have: what the header says may be another's, in whose
            name this registry would then offer topics.
        receivers: decode the receivers too.
    """
    by_state = {state: entries[entries["state"] == state] for state in (layout.ENTRY_SESSION, layout.ENTRY_SOURCE)}
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
        )
        for row in by_state[layout.ENTRY_SESSION]
    }
    sources = tuple(
        SourceAdvert(sessions[int(row["local"])], text(row["name"]), int(row["topic"]))
        for row in by_state[layout.ENTRY_SOURCE]
        if int(row["local"]) in sessions
    )
    kinds = (layout.ENTRY_RECEIVER, layout.ENTRY_WILDCARD) if receivers else ()
    receiving = tuple(
        ReceiverAdvert(
            text(row["name"]),
            bool(row["state"] == layout.ENTRY_WILDCARD),
            int(row["since_ns"]),
            *(int(row[counter]) for counter in ("lbm_msgs_rcved", "bytes_rcved", "lost", "events", "callback_errors")),
        )
        for row in entries[np.isin(entries["state"], kinds)]
    )
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
    )
