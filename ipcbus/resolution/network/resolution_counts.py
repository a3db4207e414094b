"""What a context counts in topic resolution over the network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ResolutionCounts:
    """What is counted; Ultra Messaging's names, and below them what it does not have.

    Attributes:
        tr_dgrams_sent: datagrams that were made.
        tr_bytes_sent: their bytes.
        tr_dgrams_rcved: datagrams that came, the own ones left out.
        tr_bytes_rcved: their bytes.
        tr_dgrams_dropped_ver: of another version.
        tr_dgrams_dropped_type: of an unknown type.
        tr_dgrams_dropped_malformed: that contradict themselves.
        tr_src_topics: topics that others publish, now.
        tr_rcv_topics: topics that are wanted, now.
        tr_rcv_unresolved_topics: those of them without a source, now.
        dgrams_dropped_address: adverts for sessions on another host than that they came from.
        dgrams_dropped_old: that came after later ones, or twice.
        dgrams_other_domain: of contexts of other domains.
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
