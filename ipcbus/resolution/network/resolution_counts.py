"""The counters of topic resolution over the network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ResolutionCounts:
    """Counters with the names of Ultra Messaging (`tr_`), and additions.

    Attributes:
        tr_dgrams_sent: datagrams sent.
        tr_bytes_sent: bytes of these datagrams.
        tr_dgrams_rcved: datagrams received from other contexts.
        tr_bytes_rcved: bytes of these datagrams.
        tr_dgrams_dropped_ver: datagrams of another version.
        tr_dgrams_dropped_type: datagrams of an unknown type.
        tr_dgrams_dropped_malformed: malformed datagrams.
        tr_src_topics: topics of other contexts, now.
        tr_rcv_topics: topics that the context looks for, now.
        tr_rcv_unresolved_topics: topics of these without a source, now.
        dgrams_dropped_address: adverts of sessions on another host than the sender's.
        dgrams_dropped_old: datagrams that arrived after a later one, or twice.
        dgrams_other_domain: datagrams of contexts of other domains.
        adverts_refused: topics for which the cache had no room.
    """

    tr_dgrams_sent: int = 0
    tr_bytes_sent: int = 0
    tr_dgrams_rcved: int = 0
    tr_bytes_rcved: int = 0
    tr_dgrams_dropped_ver: int = 0
    tr_dgrams_dropped_type: int = 0
    tr_dgrams_dropped_malformed: int = 0
    tr_src_topics: int = 0
    tr_rcv_topics: int = 0
    tr_rcv_unresolved_topics: int = 0
    dgrams_dropped_address: int = 0
    dgrams_dropped_old: int = 0
    dgrams_other_domain: int = 0
    adverts_refused: int = 0
