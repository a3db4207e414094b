"""Sessions over UDP in a snapshot: joins the data of their sources with the data of their receivers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.adverts import TRANSPORT_NAMES, over_udp, text
from ipcbus.stats import counters
from ipcbus.stats.histogram import Histogram
from ipcbus.stats.processes import user_name
from ipcbus.stats.shared_copies import read_reception
from ipcbus.stats.snapshot_model import (
    NO_COUNTERS,
    ContextStats,
    ReceptionStats,
    SessionStats,
    SlotStats,
    UplinkStats,
)
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipcbus.resolution.local.adverts import ContextAdvert, ReceptionAdvert, SessionAdvert, SourceAdvert
    from ipcbus.stats.processes import Processes
    from ipcbus.stats.shared_copies import Fields, ReceptionCopy, UplinkCopy

FIRST = 64
"""Number of the first receiver over UDP; lower numbers are slots."""
_FIRST_UNKNOWN = 128
"""Number of the first receiver that its source does not show."""
_SESSIONS_MAX = 1024
"""Most sessions over UDP that are read for one context."""
_JOINING = (b"", b"connecting", b"proving")
REMOTE = (
    "no context of this host sends it: its source is on another host or in another container, or has just ended; "
    "only its receivers on this host are shown"
)


@dataclass(frozen=True, slots=True)
class Reception:
    """A session that a context of this host receives over UDP."""

    context: ContextAdvert
    advert: ReceptionAdvert
    copy: ReceptionCopy | None


class UdpReceptions:
    """The receptions of a domain, by session."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Reception]] = {}

    def read(self, prefix: str, context: ContextAdvert) -> None:
        """Reads the receptions of a context.

        Args:
            prefix: prefix of the names of its objects.
            context: the context.
        """
        for advert in context.receptions[:_SESSIONS_MAX]:
            ring, control = (
                prefix + name("", context.context_id, advert.local).rpartition(".")[2]
                for name in (object_names.ring, object_names.control)
            )
            try:
                copy = read_reception(ring, control, advert.session_id)
            except (RingError, OSError, ValueError):
                copy = None  # of another user, or just leaving
            key = (advert.context_id, advert.session_id)
            self._known.setdefault(key, []).append(Reception(context, advert, copy))

    def take(self, context_id: int, session_id: int) -> list[Reception]:
        """Takes the receptions of a session out, and returns them."""
        return self._known.pop((context_id, session_id), []) if self._known else []

    def remote_sessions(self, contexts: Iterable[ContextStats], processes: Processes) -> dict[int, list[SessionStats]]:
        """Returns the remaining sessions, whose sources are on other hosts, by the contexts that send them.

        Args:
            contexts: the contexts of this host; a session that they no longer have has just ended.
            processes: a cache of command lines.
        """
        seen = {context.context_id for context in contexts if context.pid}
        found: dict[int, list[SessionStats]] = {}
        for (context_id, _), receptions in self._known.items():
            if context_id not in seen:
                found.setdefault(context_id, []).append(_remote_session(receptions, processes))
        return found


def is_source_paced(advert: SessionAdvert, copy: UplinkCopy | None) -> bool:
    """Returns whether the source of a session of this host may overtake its receivers.

    Args:
        advert: the session.
        copy: a copy of its shared data for UDP and TCP.
    """
    if advert.transport == advert.over_network and copy is not None:
        return bool(copy.board.get("source_paced", 0))
    return advert.source_paced


def uplink_stats(advert: SessionAdvert, copy: UplinkCopy | None, lag: int, read_ns: int) -> UplinkStats | None:
    """Returns the sending side of a session over UDP; None if it has none.

    Args:
        advert: the session.
        copy: a copy of its shared data; None before a context has received over UDP.
        lag: bytes that it has not read from the ring.
        read_ns: when the data were read.
    """
    endpoint = advert.endpoint
    if endpoint is None:
        return None
    transport = advert.over_network
    board: Mapping[str, int] = copy.board if copy else {}
    since = board.get("limited_since", 0)
    return UplinkStats(
        source=over_udp(transport, advert.session_id, endpoint),
        layer=TRANSPORT_NAMES[transport],
        active=bool(board.get("active", 0)),
        clients_max=board.get("clients_max", 0),
        data_rate=board.get("data_rate", 0),
        retransmit_rate=board.get("retransmit_rate", 0),
        limited_for_ns=max(0, read_ns - since) if since else 0,
        lag=lag,
        counters=MappingProxyType(counters.values(counters.UPLINK, board)) if board else NO_COUNTERS,
        slowest=board.get("slowest", 0),
    )


def readers(
    sources: tuple[SourceAdvert, ...],
    uplink: UplinkCopy | None,
    receptions: list[Reception],
    layer: str,
    processes: Processes,
) -> tuple[SlotStats, ...]:
    """Returns the receivers of a session over UDP: the clients that its source shows, joined with their own data.

    Args:
        sources: the session's topics.
        uplink: the data of its source.
        receptions: the contexts of this host that receive it.
        layer: name of the transport.
        processes: a cache of command lines.
    """
    of_context = {reception.context.context_id: reception for reception in receptions}
    found = []
    for line, client in uplink.clients.items() if uplink else ():
        topics = tuple(source.topic for source in sources if joined(uplink, source.topic_number) >> line & 1)
        reception = of_context.pop(client["context_id"], None)
        if reception is not None:
            found.append(_local_receiver(FIRST + line, reception, client, topics, processes, uplink))
        else:
            found.append(_remote_receiver(FIRST + line, client, topics, layer, uplink))
    for place, reception in enumerate(of_context.values()):
        found.append(_local_receiver(_FIRST_UNKNOWN + place, reception, None, (), processes, uplink))
    return tuple(found)


def joined(uplink: UplinkCopy | None, number: int) -> int:
    """Returns the mask of the clients in the stats block that receive a topic."""
    return int(uplink.joined[number % len(uplink.joined)]) if uplink and len(uplink.joined) else 0


def _local_receiver(
    slot: int,
    reception: Reception,
    client: Fields | None,
    topics: tuple[str, ...],
    processes: Processes,
    uplink: UplinkCopy | None,
) -> SlotStats:
    """Returns a receiver on this host, from its own data; while the source waits for it, also from the source's."""
    context, copy = reception.context, reception.copy
    board: Fields = copy.board if copy else {}
    read: Fields = copy.slot if copy else {}
    header: Fields = copy.header if copy else {}
    lag = max(0, header["tail"] - read["position"]) if copy else 0
    if copy and board["missing"]:
        lag += board["missing"] * board["bytes_rcved"] // max(1, board["msgs_rcved"])
    if client and uplink and uplink.board.get("slowest") == client["context_id"]:
        lag += _bytes_behind(client, uplink)
    transport = board.get("transport") or reception.advert.transport
    return SlotStats(
        slot=slot,
        generation=0,
        state="joining" if board.get("state", b"") in _JOINING and copy else "active",
        alive=True,
        stopped=processes.stopped(context.pid, context.start_ns),
        parked=copy.parked if copy else False,
        pid=context.pid,
        uid=context.uid,
        user=user_name(context.uid),
        context_id=context.context_id,
        context_name=context.name,
        command=processes.command(context.pid, context.start_ns),
        joined_ns=reception.advert.since_ns,
        position=read.get("position", 0),
        lag=lag,
        lag_messages=lag_messages(lag, _messages(read), read.get("bytes_rcved", 0)),
        topics=topics,
        counters=MappingProxyType(counters.values(counters.SLOT, read)) if copy else NO_COUNTERS,
        latency=Histogram(read["latency"], read["latency_max"]) if copy else Histogram.empty(),
        layer=TRANSPORT_NAMES.get(transport, "?"),
        reason=text(board.get("reason", b"")),
        address=text(client["address"]) if client else "",
        reception=_reception(board),
    )


def _messages(read: Fields) -> int:
    """Returns how many messages a context has read, those of topics that it does not receive included."""
    return int(read.get("lbm_msgs_rcved", 0) + read.get("lbm_msgs_no_topic_rcved", 0))


def _reception(board: Fields) -> ReceptionStats | None:
    if not board.get("version"):
        return None
    counted = MappingProxyType(counters.values(counters.RECEPTION, board))
    return ReceptionStats(text(board["state"]), text(board["address"]), counted)


def _bytes_behind(client: Fields, uplink: UplinkCopy | None) -> int:
    """Returns how many bytes a client has not got, as far as its source knows."""
    board = uplink.board if uplink else {}
    return int(client["behind"] * board.get("bytes_sent", 0) // max(1, board.get("msgs_sent", 0)))


def _remote_receiver(
    slot: int, client: Fields, topics: tuple[str, ...], layer: str, uplink: UplinkCopy | None
) -> SlotStats:
    """Returns a receiver on another host, from the data of its source."""
    lag = _bytes_behind(client, uplink)
    return SlotStats(
        slot=slot,
        generation=0,
        state="active",
        alive=True,
        parked=False,
        pid=client["pid"],
        uid=0,
        user="",
        context_id=client["context_id"],
        context_name=text(client["context_name"]),
        command="",
        joined_ns=client["since_ns"],
        position=0,
        lag=lag,
        lag_messages=None if lag else 0,
        topics=topics,
        counters=NO_COUNTERS,
        latency=Histogram.empty(),
        layer=layer,
        address=text(client["address"]),
    )


def _remote_session(receptions: list[Reception], processes: Processes) -> SessionStats:
    """Returns a session of another host, with its receivers on this host."""
    advert = receptions[0].advert
    slots = readers((), None, receptions, "", processes)
    return SessionStats(
        source=advert.source_string,
        transport=TRANSPORT_NAMES.get(advert.transport, "?"),
        context_id=advert.context_id,
        context_name="",
        pid=0,
        uid=0,
        user="",
        command="",
        alive=True,
        start_ns=0,
        pacing="",
        capacity=0,
        datagram_max=0,
        slots_max=0,
        topics_max=0,
        tail=0,
        closed=False,
        wait="",
        blocked_for_ns=0,
        counters=NO_COUNTERS,
        sources=(),
        receivers=slots,
        reason=REMOTE,
        read_ns=time.monotonic_ns(),
    )


def remote_context(context_id: int, sessions: list[SessionStats], read_ns: int) -> ContextStats:
    """Returns a context of another host, with its sessions that are received on this host."""
    return ContextStats(context_id, "", 0, 0, "", "", 0, "", True, tuple(sessions), (), REMOTE, read_ns)


def lag_messages(lag: int, messages: float, sent_bytes: float) -> int | None:
    """Returns the lag in messages, by the mean size of the messages that were sent; None before any was sent."""
    return round(lag * messages / sent_bytes) if lag and sent_bytes else 0 if not lag else None
