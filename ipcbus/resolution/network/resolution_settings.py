"""How a context takes part in topic resolution over the network."""

from __future__ import annotations

from dataclasses import dataclass

_MS = 1_000_000
_S = 1000 * _MS


@dataclass(frozen=True, slots=True)
class ResolutionSettings:
    """Named as the options, without `resolver_`; times in ns, a rate of 0 is no limit.

    Attributes:
        advertisement_minimum_initial_interval: time to the second advert; it doubles with each.
        advertisement_maximum_initial_interval: longest time between two adverts of the initial phase.
        advertisement_minimum_initial_duration: how long that phase lasts.
        advertisement_sustain_interval: time between two adverts of the phase after it.
        advertisement_minimum_sustain_duration: how long that one lasts; a query begins it anew.
        advertisement_quiescent_interval: time between two adverts, and two queries, ever after. Ultra Messaging is
            silent then, so that who was away for a minute may never hear of a source.
        advertisement_send_immediate_response: queries are answered at once.
        send_final_advertisements: what is not published any more is told.
        query_minimum_initial_interval: as of adverts.
        query_maximum_initial_interval: as of adverts.
        query_minimum_initial_duration: as of adverts.
        query_sustain_interval: as of adverts.
        query_minimum_sustain_duration: as of adverts.
        wildcard_query_minimum_interval: time to the second query of a pattern; it doubles with each.
        wildcard_query_maximum_interval: longest time between two.
        wildcard_query_minimum_duration: how long a pattern is asked for.
        initial_advertisements_per_second: limit of adverts in the initial phase.
        initial_advertisement_bps: the same in bits.
        sustain_advertisements_per_second: limit of adverts after it, and of final ones.
        sustain_advertisement_bps: the same in bits.
        initial_queries_per_second: limit of queries in the initial phase.
        initial_query_bps: the same in bits.
        sustain_queries_per_second: limit of queries after it.
        sustain_query_bps: the same in bits.
        wildcard_queries_per_second: limit of queries of patterns.
        wildcard_query_bps: the same in bits.
        datagram_max_size: longest datagram.
        check_address: an advert has to come from the host that its sessions are reached at. Where datagrams come
            through resolver daemons that cannot be checked.
        cache_bytes_max: memory for what others publish.
        cache_host_share: part of it that may be used for one host: one in so many.
    """

    advertisement_minimum_initial_interval: int = 10 * _MS
    advertisement_maximum_initial_interval: int = 500 * _MS
    advertisement_minimum_initial_duration: int = 5 * _S
    advertisement_sustain_interval: int = _S
    advertisement_minimum_sustain_duration: int = 60 * _S
    advertisement_quiescent_interval: int = 10 * _S
    advertisement_send_immediate_response: bool = True
    send_final_advertisements: bool = True
    query_minimum_initial_interval: int = 20 * _MS
    query_maximum_initial_interval: int = 200 * _MS
    query_minimum_initial_duration: int = 5 * _S
    query_sustain_interval: int = _S
    query_minimum_sustain_duration: int = 60 * _S
    wildcard_query_minimum_interval: int = 50 * _MS
    wildcard_query_maximum_interval: int = _S
    wildcard_query_minimum_duration: int = 60 * _S
    initial_advertisements_per_second: int = 1000
    initial_advertisement_bps: int = 1_000_000
    sustain_advertisements_per_second: int = 0
    sustain_advertisement_bps: int = 1_000_000
    initial_queries_per_second: int = 1000
    initial_query_bps: int = 1_000_000
    sustain_queries_per_second: int = 0
    sustain_query_bps: int = 1_000_000
    wildcard_queries_per_second: int = 0
    wildcard_query_bps: int = 1_000_000
    datagram_max_size: int = 8192
    check_address: bool = True
    cache_bytes_max: int = 64 << 20
    cache_host_share: int = 4
