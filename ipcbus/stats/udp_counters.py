"""The counters of sessions over UDP: a row is name, unit, meaning, and whether Ultra Messaging has it by that name."""

from __future__ import annotations

from typing import Final

Row = tuple[str, str, str, str]

_SOURCE: Final = "source transport: "
_RECEIVER: Final = "receiver transport: "
_CONTEXT: Final = "context: "


def _own(name: str, unit: str, meaning: str) -> Row:
    return name, unit, meaning, ""


def _source(name: str, unit: str, meaning: str) -> Row:
    return name, unit, meaning, _SOURCE + name


def _receiver(name: str, unit: str, meaning: str) -> Row:
    return name, unit, meaning, _RECEIVER + name


RESOLUTION_ROWS: Final[tuple[Row, ...]] = (
    ("tr_dgrams_sent", "datagrams", "Datagrams of topic resolution that were made.", _CONTEXT + "tr_dgrams_sent"),
    ("tr_bytes_sent", "bytes", "Their bytes.", _CONTEXT + "tr_bytes_sent"),
    ("tr_dgrams_rcved", "datagrams", "Datagrams that came, the own ones left out.", _CONTEXT + "tr_dgrams_rcved"),
    ("tr_bytes_rcved", "bytes", "Their bytes.", _CONTEXT + "tr_bytes_rcved"),
    ("tr_dgrams_dropped_ver", "datagrams", "Of another version; dropped.", _CONTEXT + "tr_dgrams_dropped_ver"),
    ("tr_dgrams_dropped_type", "datagrams", "Of an unknown type; dropped.", _CONTEXT + "tr_dgrams_dropped_type"),
    (
        "tr_dgrams_dropped_malformed",
        "datagrams",
        "Datagrams that contradict themselves; dropped.",
        _CONTEXT + "tr_dgrams_dropped_malformed",
    ),
    (
        "tr_dgrams_send_failed",
        "datagrams",
        "Datagrams that the system did not take, as its sockets tell.",
        _CONTEXT + "tr_dgrams_send_failed",
    ),
    ("tr_src_topics", "topics, now", "Topics that others publish, as it was told.", _CONTEXT + "tr_src_topics"),
    ("tr_rcv_topics", "topics, now", "Topics that its receivers want.", _CONTEXT + "tr_rcv_topics"),
    (
        "tr_rcv_unresolved_topics",
        "topics, now",
        "Those of them for which nobody has told of a source.",
        _CONTEXT + "tr_rcv_unresolved_topics",
    ),
    _own("dgrams_dropped_address", "datagrams", "Adverts of sessions on another host than the sender's; dropped."),
    _own("dgrams_dropped_old", "datagrams", "Datagrams that came after later ones, or twice; dropped."),
    _own("dgrams_other_domain", "datagrams", "Datagrams of contexts of other domains; passed over."),
    _own("adverts_refused", "topics", "Topics for which there was no room in the cache."),
)
"""Of a context, in topic resolution over the network; all 0 where it has none."""

_SOCKET: Final = (
    _own("socket_dgrams_sent", "packets", "Packets of any kind that the kernel took."),
    _own("socket_bytes_sent", "bytes", "Their bytes."),
    _own("socket_dgrams_rcved", "packets", "Packets of any kind that came, those of socket_dgrams_lost included."),
    _own("socket_bytes_rcved", "bytes", "Their bytes."),
    _own("socket_send_blocked", "packets", "Packets for which the kernel had no room; they are lost, and repaired."),
    _own("socket_send_refused", "packets", "Packets that the kernel refused: no route, or nobody there."),
    _own("socket_send_too_large", "packets", "Packets longer than UDP carries; they are lost."),
    _own("socket_dgrams_truncated", "packets", "Packets that came and were too long."),
    _own("socket_dgrams_lost", "packets", "Packets thrown away on purpose, as a *_LOSS_RATE asks for."),
    _own("socket_dgrams_overrun", "packets", "Packets that the kernel threw away: the receive buffer was full."),
)

UPLINK_ROWS: Final[tuple[Row, ...]] = (
    _source("num_clients", "contexts, now", "Receiving contexts that are registered."),
    _source("msgs_sent", "datagrams", "Datagrams sent, retransmissions left out."),
    _source("bytes_sent", "bytes", "Their bytes."),
    _source("nak_pckts_rcved", "packets", "Packets in which receivers asked for datagrams (NAKs)."),
    _source("naks_rcved", "NAKs", "Datagrams that they asked for."),
    _source("naks_ignored", "NAKs", "Refused: the datagram was sent again just before."),
    _source("naks_shed", "NAKs", "Refused: too many retransmissions wait already."),
    _source("naks_rx_delay_ignored", "NAKs", "Put off: the datagram waits for the retransmission rate."),
    _own("naks_too_old", "NAKs", "Passed over: the datagram is not held any more, or was never sent."),
    _source("rxs_sent", "datagrams", "Retransmissions."),
    _source("rx_bytes_sent", "bytes", "Their bytes."),
    _own("ncfs_sent", "NCFs", "Datagrams whose refusal was told to the receivers."),
    _own("sms_sent", "packets", "Session messages."),
    _source("txw_msgs", "datagrams, now", "Datagrams that are held to be sent again (transmission window)."),
    _source("txw_bytes", "bytes, now", "Their bytes."),
    _source("rctlr_data_msgs", "datagrams, now", "Datagrams that wait for the data rate."),
    _source("rctlr_rx_msgs", "datagrams, now", "Retransmissions that wait for their rate."),
    _own("rate_limited_ns", "ns", "Time in which datagrams waited for the data rate."),
    _own("lead", "number, now", "The number that the next datagram has."),
    _own("trail", "number, now", "The number of the oldest datagram that is held."),
    _own("clients_refused", "contexts", "Registrations for which there was no room."),
    _own("clients_silent", "contexts", "Clients dropped because nothing came from them."),
    _own("dgrams_dropped_malformed", "packets", "Packets that are none, or none that a source gets; dropped."),
    _own("dgrams_dropped_sid", "packets", "Packets of another session; dropped."),
    _own("dgrams_dropped_unproven", "packets", "Packets without the cookie of their address; dropped."),
    *_SOCKET,
    _own("unknown_msgs_rcved", "packets", "Packets that came to the session's socket and were for no session."),
)
"""Of a session's way over UDP, at its source."""

RECEPTION_ROWS: Final[tuple[Row, ...]] = (
    _receiver("msgs_rcved", "datagrams", "Datagrams that came for the first time."),
    _receiver("bytes_rcved", "bytes", "Their bytes."),
    _receiver("nak_pckts_sent", "packets", "Packets in which datagrams were asked for (NAKs)."),
    _receiver("naks_sent", "NAKs", "Datagrams that were asked for, each time counted."),
    _receiver("lost", "datagrams", "Datagrams found missing, also those that were only overtaken."),
    _own("missing", "datagrams, now", "Datagrams that are missing and waited for."),
    _receiver("ncfs_ignored", "NCFs", "Refusals: the source had sent the datagram again just before."),
    _receiver("ncfs_shed", "NCFs", "Refusals: the source has no room for more retransmissions."),
    _receiver("ncfs_rx_delay", "NCFs", "Refusals: the source sends the datagram later."),
    _receiver("ncfs_unknown", "NCFs", "Refusals for any other reason."),
    _receiver("nak_stm_min", "ns, now", "Shortest time from missing to there, of what was asked for."),
    _receiver("nak_stm_mean", "ns, now", "A moving mean of it."),
    _receiver("nak_stm_max", "ns, now", "The longest."),
    _receiver("nak_tx_min", "NAKs, now", "Fewest times that one datagram was asked for before it came."),
    _receiver("nak_tx_mean", "NAKs, now", "A moving mean of it, as a whole number."),
    _receiver("nak_tx_max", "NAKs, now", "Most times that one datagram was asked for before it came."),
    _receiver("duplicate_data", "datagrams", "Datagrams that had come before; dropped."),
    _receiver("unrecovered_txw", "datagrams", "Given up because the source does not hold them any more."),
    _receiver("unrecovered_tmo", "datagrams", "Given up because they stayed away for the generation interval."),
    _own("unrecovered_full", "datagrams", "Given up because too many are missing."),
    _own("late", "datagrams", "Datagrams that came although they had been given up."),
    _receiver("out_of_order", "datagrams", "Datagrams that came after a later one without having been asked for."),
    _own("dgrams_shed", "datagrams", "Dropped for want of room, and asked for again: the application is slow."),
    _receiver("dgrams_dropped_size", "packets", "Packets too short for one; dropped."),
    _receiver("dgrams_dropped_type", "packets", "Packets of an unknown type; dropped."),
    _receiver("dgrams_dropped_version", "packets", "Packets of another version; dropped."),
    _receiver("dgrams_dropped_hdr", "packets", "Packets that contradict themselves; dropped."),
    _receiver("dgrams_dropped_sid", "packets", "Packets of another session; dropped."),
    _receiver("dgrams_dropped_other", "packets", "From elsewhere, unproven, out of range, or too early; dropped."),
    _own("lead", "number, now", "The number after the highest that it knows of."),
    _own("connects_sent", "packets", "How often it asked to be registered, or where the source is."),
    _own("acks_sent", "packets", "Signs of life to the source."),
    _own("resets_rcved", "packets", "How often the source did not know it."),
    *_SOCKET,
    ("unknown_msgs_rcved", "packets", "Packets that were for no session.", _CONTEXT + "lbtru_unknown_msgs_rcved"),
)
"""Of a session at a context that receives it over UDP; sessions may share a socket, and then have its counters each."""
