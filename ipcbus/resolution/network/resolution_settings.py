"""The settings of topic resolution over the network."""

from __future__ import annotations

from dataclasses import dataclass

_MS = 1_000_000
_S = 1000 * _MS


@dataclass(frozen=True, slots=True)
class ResolutionSettings:
    """Settings with the names of the options, without `resolver_`; times in ns, 0 for no limit of a rate.

    Attributes:
        advertisement_minimum_initial_interval: time between the first two adverts; it doubles with each.
        advertisement_maximum_initial_interval: longest time between two adverts of the initial phase.
        advertisement_minimum_initial_duration: length of the initial phase.
        advertisement_sustain_interval: time between two adverts of the sustain phase.
        advertisement_minimum_sustain_duration: length of the sustain phase; a query begins it again.
        advertisement_quiescent_interval: time between two adverts, and two queries, after these phases. Ultra Messaging
            sends none then, so that a context that was cut off for a minute may never find a source.
        advertisement_send_immediate_response: whether queries are answered at once.
        send_final_advertisements: whether the end of a source is announced.
        query_minimum_initial_interval: as for adverts.
        query_maximum_initial_interval: as for adverts.
        query_minimum_initial_duration: as for adverts.
        query_sustain_interval: as for adverts.
        query_minimum_sustain_duration: as for adverts.
        wildcard_query_minimum_interval: time between the first two queries for a pattern; it doubles with each.
        wildcard_query_maximum_interval: longest time between two queries for a pattern.
        wildcard_query_minimum_duration: how long queries for a pattern are sent.
        initial_advertisements_per_second: limit of adverts in the initial phase.
        initial_advertisement_bps: limit of these adverts in bits a second.
        sustain_advertisements_per_second: limit of later adverts, final adverts included.
        sustain_advertisement_bps: limit of these adverts in bits a second.
        initial_queries_per_second: limit of queries in the initial phase.
        initial_query_bps: limit of these queries in bits a second.
        sustain_queries_per_second: limit of later queries.
        sustain_query_bps: limit of these queries in bits a second.
        wildcard_queries_per_second: limit of queries for patterns.
        wildcard_query_bps: limit of these queries in bits a second.
        datagram_max_size: longest datagram in bytes.
        check_address: whether an advert must come from the host of its sessions; behind resolver daemons this cannot be
            checked.
        cache_bytes_max: memory for adverts of other contexts, in bytes.
        cache_host_share: one host may use this memory divided by `cache_host_share`.
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
