"""The counters of sessions over UDP: a row is name, unit, meaning, and the name in Ultra Messaging."""

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


def _context(name: str, unit: str, meaning: str) -> Row:
    return name, unit, meaning, _CONTEXT + name


RESOLUTION_ROWS: Final[tuple[Row, ...]] = (
    _context("tr_dgrams_sent", "datagrams", "Datagrams of topic resolution sent."),
    _context("tr_bytes_sent", "bytes", "Bytes of these datagrams."),
    _context("tr_dgrams_rcved", "datagrams", "Datagrams of topic resolution received from other contexts."),
    _context("tr_bytes_rcved", "bytes", "Bytes of these datagrams."),
    _context("tr_dgrams_dropped_ver", "datagrams", "Datagrams of another version; dropped."),
    _context("tr_dgrams_dropped_type", "datagrams", "Datagrams of an unknown type; dropped."),
    _context("tr_dgrams_dropped_malformed", "datagrams", "Malformed datagrams; dropped."),
    _context("tr_dgrams_send_failed", "datagrams", "Datagrams that the system refused to send."),
    _context("tr_src_topics", "topics, now", "Topics of other contexts, as their adverts say."),
    _context("tr_rcv_topics", "topics, now", "Topics that the context's receivers look for."),
    _context("tr_rcv_unresolved_topics", "topics, now", "Topics of these for which there was no advert."),
    _own("dgrams_dropped_address", "datagrams", "Adverts of sessions on another host than the sender's; dropped."),
    _own("dgrams_dropped_old", "datagrams", "Datagrams that arrived after a later one, or twice; dropped."),
    _own("dgrams_other_domain", "datagrams", "Datagrams of contexts of other domains; ignored."),
    _own("adverts_refused", "topics", "Topics for which there was no room in the cache."),
    _own(
        "dgrams_dropped_seal",
        "datagrams",
        "Datagrams of any kind that the keys of network_key_file did not open, or that came again; dropped.",
    ),
)
"""Counters of topic resolution over the network of a context, and of its seals; all 0 while they are off."""

_SOCKET: Final = (
    _own("socket_dgrams_sent", "packets", "Packets of any kind that the kernel accepted."),
    _own("socket_bytes_sent", "bytes", "Bytes of these packets."),
    _own("socket_dgrams_rcved", "packets", "Packets of any kind received; socket_dgrams_lost is included."),
    _own("socket_bytes_rcved", "bytes", "Bytes of these packets."),
    _own(
        "socket_send_blocked",
        "packets",
        "Times that the kernel had no room for a packet, which then waits.",
    ),
    _own(
        "socket_send_refused",
        "packets",
        "Packets that the kernel refused: no route, or a closed port; over TCP, connections that were refused.",
    ),
    _own("socket_send_too_large", "packets", "Packets that are too long for UDP; lost."),
    _own("socket_dgrams_truncated", "packets", "Received packets that were too long for the receive buffer."),
    _own(
        "socket_dgrams_lost",
        "packets",
        "Packets dropped for a test, because a variable such as LBTRU_LOSS_RATE is set.",
    ),
    _own("socket_dgrams_overrun", "packets", "Packets that the kernel dropped because the receive buffer was full."),
    _own(
        "socket_tls_failed",
        "connections",
        "Connections over TCP that ended because of TLS: a certificate that is not valid, a peer without TLS, or a "
        "handshake that was not finished.",
    ),
)

_FRAMES: Final[tuple[Row, ...]] = (
    _own("frames_sent", "frames", "Frames of control channels sent, without retransmissions."),
    _own("frames_retransmitted", "frames", "Frames of control channels sent again."),
    _own("frames_rcved", "frames", "Frames of control channels received, without duplicates."),
)

UPLINK_ROWS: Final[tuple[Row, ...]] = (
    _source("num_clients", "contexts, now", "Receiving contexts that are registered."),
    _source("msgs_sent", "datagrams", "Datagrams sent, without retransmissions."),
    _source("bytes_sent", "bytes", "Bytes of these datagrams."),
    _source("nak_pckts_rcved", "packets", "Packets with NAKs from receivers."),
    _source("naks_rcved", "NAKs", "Datagrams that these NAKs asked for."),
    _source("naks_ignored", "NAKs", "NAKs refused because the datagram was retransmitted just before."),
    _source("naks_shed", "NAKs", "NAKs refused because too many retransmissions wait already."),
    _source("naks_rx_delay_ignored", "NAKs", "NAKs delayed because the datagram waits for the retransmission rate."),
    _own("naks_too_old", "NAKs", "NAKs ignored because the retransmit window does not have the datagram."),
    _source("rxs_sent", "datagrams", "Retransmissions."),
    _source("rx_bytes_sent", "bytes", "Bytes of the retransmissions."),
    _own("ncfs_sent", "NCFs", "Datagrams whose retransmission was refused by an NCF."),
    _own("sms_sent", "packets", "Session messages."),
    _own(
        "dgrams_filtered",
        "datagrams",
        "Datagrams not sent to a client that receives none of their topics; counted for each client.",
    ),
    _source("bytes_buffered", "bytes, now", "Bytes that wait for receivers over TCP and are not in a kernel yet."),
    _source("txw_msgs", "datagrams, now", "Datagrams in the retransmit window."),
    _source("txw_bytes", "bytes, now", "Bytes of these datagrams."),
    _source("rctlr_data_msgs", "datagrams, now", "Datagrams that wait for the data rate."),
    _source("rctlr_rx_msgs", "datagrams, now", "Retransmissions that wait for the retransmission rate."),
    _own("rate_limited_ns", "ns", "Time in which datagrams waited for the data rate."),
    _own("lead", "number, now", "Number of the next datagram."),
    _own("trail", "number, now", "Number of the oldest datagram in the retransmit window."),
    _own("clients_refused", "contexts", "Registrations refused because there was no room."),
    _own(
        "clients_silent",
        "contexts",
        "Clients dropped because they sent nothing, or over TCP nothing that proves that they read.",
    ),
    _own("clients_evicted", "contexts", "Clients overtaken because they kept the source waiting for too long."),
    _own("dgrams_dropped_malformed", "packets", "Malformed packets, and packets of the wrong type; dropped."),
    _own("dgrams_dropped_sid", "packets", "Packets of another session; dropped."),
    _own("dgrams_dropped_unproven", "packets", "Packets without the cookie of their address; dropped."),
    *_FRAMES,
    _own("links_refused", "packets", "Packets of control channels that were refused: too many, or at the end."),
    *_SOCKET,
    _own("unknown_msgs_rcved", "packets", "Packets at the session's socket for an unknown session."),
)
"""Counters of a session's sending side over UDP."""

RECEPTION_ROWS: Final[tuple[Row, ...]] = (
    _receiver("msgs_rcved", "datagrams", "Datagrams received, without duplicates."),
    _receiver("bytes_rcved", "bytes", "Bytes of these datagrams."),
    _receiver("nak_pckts_sent", "packets", "Packets with NAKs sent."),
    _receiver("naks_sent", "NAKs", "Datagrams that these NAKs asked for; each request counts."),
    _receiver("lost", "datagrams", "Datagrams found missing; those that arrived out of order are included."),
    _own("missing", "datagrams, now", "Missing datagrams that the receiver waits for."),
    _receiver("ncfs_ignored", "NCFs", "NCFs because the source retransmitted the datagram just before."),
    _receiver("ncfs_shed", "NCFs", "NCFs because the source has no room for more retransmissions."),
    _receiver("ncfs_rx_delay", "NCFs", "NCFs because the source retransmits the datagram later."),
    _receiver("ncfs_unknown", "NCFs", "NCFs for another reason."),
    _receiver("nak_stm_min", "ns, now", "Shortest time from the detection of a missing datagram to its arrival."),
    _receiver("nak_stm_mean", "ns, now", "Moving mean of this time."),
    _receiver("nak_stm_max", "ns, now", "Longest time of this kind."),
    _receiver("nak_tx_min", "NAKs, now", "Fewest NAKs for one datagram before it arrived."),
    _receiver("nak_tx_mean", "NAKs, now", "Moving mean of the NAKs for one datagram, as a whole number."),
    _receiver("nak_tx_max", "NAKs, now", "Most NAKs for one datagram before it arrived."),
    _receiver("duplicate_data", "datagrams", "Datagrams that arrived again; dropped."),
    _receiver("unrecovered_txw", "datagrams", "Datagrams given up because the source no longer has them."),
    _receiver(
        "unrecovered_tmo", "datagrams", "Datagrams given up because they were missing for the generation interval."
    ),
    _own("unrecovered_full", "datagrams", "Datagrams given up because too many are missing."),
    _own("late", "datagrams", "Datagrams that arrived after they were given up."),
    _receiver("out_of_order", "datagrams", "Datagrams that arrived after a later one without a NAK."),
    _own("dgrams_shed", "datagrams", "Datagrams dropped because the ring was full, and asked for again later."),
    _receiver("dgrams_dropped_size", "packets", "Packets that are too short; dropped."),
    _receiver("dgrams_dropped_type", "packets", "Packets of an unknown type; dropped."),
    _receiver("dgrams_dropped_version", "packets", "Packets of another version; dropped."),
    _receiver("dgrams_dropped_hdr", "packets", "Packets with an invalid header; dropped."),
    _receiver("dgrams_dropped_sid", "packets", "Packets of another session; dropped."),
    _receiver(
        "dgrams_dropped_other",
        "packets",
        "Packets from another address, without a cookie, out of range, or too early; dropped.",
    ),
    _own("lead", "number, now", "Number after the highest datagram that the receiver knows of."),
    _own("connects_sent", "packets", "Requests for registration, or for the state of the source."),
    _own("acks_sent", "packets", "Signs of life to the source."),
    _own("resets_rcved", "packets", "How often the source did not know the receiver."),
    _own("evictions_rcved", "times", "How often the source said that it goes on without waiting for this context."),
    _own("dgrams_filtered", "datagrams", "Datagrams that the source did not send, as they have other topics only."),
    *_FRAMES,
    *_SOCKET,
    ("unknown_msgs_rcved", "packets", "Packets for an unknown session.", _CONTEXT + "lbtru_unknown_msgs_rcved"),
)
"""Counters of a session in a context that receives it over UDP; sessions that share a socket show its counters each."""
