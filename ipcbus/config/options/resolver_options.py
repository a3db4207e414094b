"""The options of topic resolution over the network, which is off until an interface or a daemon is configured."""

from __future__ import annotations

from typing import Final

from ipcbus.config.addresses import DAEMONS, GROUP, INTERFACE, INTERFACE_OR_NONE
from ipcbus.config.option_values import Option
from ipcbus.config.options import udp_options
from ipcbus.config.options.option_limits import MAX_SECONDS, interval

_MBIT: Final = 1_000_000
_FIRST_ADVERTS: Final = "Limit of adverts in their first phase, except for answers to queries."
_OTHER_ADVERTS: Final = "Limit of all other adverts."
_FIRST_QUERIES: Final = "Limit of queries in their first phase."
_LATER_QUERIES: Final = "Limit of queries after their first phase."
_WILDCARD_QUERIES: Final = "Limit of queries of wildcard receivers."


def _seconds(default: int, meaning: str) -> Option[int]:
    return Option(default=default, unit="s", minimum=0, maximum=MAX_SECONDS, meaning=meaning)


class ResolverContext:
    """The options of topic resolution for a context."""

    resolver_multicast_interface = Option(
        default="",
        form=INTERFACE_OR_NONE,
        meaning="Network interface for multicast: topic resolution and LBT-RM. Empty: multicast is off, and ipcbus "
        "refuses LBT-RM sources. Ultra Messaging: 0.0.0.0, where multicast is on and the system chooses the interface.",
    )
    resolver_multicast_address = Option(
        default="224.9.10.11",
        form=GROUP,
        meaning="Multicast group of topic resolution.",
    )
    resolver_multicast_port = udp_options.port(12965, "Port of the multicast group of topic resolution.")
    resolver_multicast_ttl = Option(
        default=16,
        minimum=0,
        maximum=255,
        meaning="TTL of multicast datagrams, those of LBT-RM included: 0 reaches this host only, 1 its network.",
    )
    resolver_multicast_receiver_socket_buffer = udp_options.receiver_socket_buffer("multicast resolution")
    resolver_unicast_daemon = Option(
        default="",
        form=DAEMONS,
        several=True,
        meaning="Resolver daemons (ipcbus resolver), for topic resolution where multicast does not reach; empty: off. "
        "The context uses all daemons that answer.",
    )
    resolver_unicast_interface = Option(
        default="127.0.0.1",
        form=INTERFACE,
        meaning="Network interface of the socket to the resolver daemons. Ultra Messaging: 0.0.0.0; ipcbus sends "
        "nothing to other hosts by default.",
    )
    resolver_unicast_port_low = udp_options.port(14402, "First port that a context may use for resolvers.")
    resolver_unicast_port_high = udp_options.port(
        14406,
        "Last port for resolvers; when all ports are in use the system chooses one, unlike in Ultra Messaging.",
    )
    resolver_unicast_receiver_socket_buffer = udp_options.receiver_socket_buffer("from resolvers")
    resolver_unicast_keepalive_interval = interval(500, "How often a context sends a sign of life to a resolver.")
    resolver_unicast_activity_timeout = interval(1000, "A resolver that has not answered for this time counts as dead.")
    resolver_datagram_max_size = Option(
        default=8192,
        unit="bytes",
        minimum=500,
        maximum=65535,
        meaning="Largest datagram of topic resolution; values above 65507, the limit of UDP, count as 65507.",
    )
    resolver_initial_advertisements_per_second = udp_options.limit(1000, "adverts/s", _FIRST_ADVERTS)
    resolver_initial_advertisement_bps = udp_options.limit(_MBIT, "bit/s", _FIRST_ADVERTS)
    resolver_sustain_advertisements_per_second = udp_options.limit(0, "adverts/s", _OTHER_ADVERTS)
    resolver_sustain_advertisement_bps = udp_options.limit(_MBIT, "bit/s", _OTHER_ADVERTS)
    resolver_initial_queries_per_second = udp_options.limit(1000, "queries/s", _FIRST_QUERIES)
    resolver_initial_query_bps = udp_options.limit(_MBIT, "bit/s", _FIRST_QUERIES)
    resolver_sustain_queries_per_second = udp_options.limit(0, "queries/s", _LATER_QUERIES)
    resolver_sustain_query_bps = udp_options.limit(_MBIT, "bit/s", _LATER_QUERIES)
    resolver_wildcard_queries_per_second = udp_options.limit(0, "queries/s", _WILDCARD_QUERIES)
    resolver_wildcard_query_bps = udp_options.limit(_MBIT, "bit/s", _WILDCARD_QUERIES)


class ResolverSource:
    """The options of topic resolution for a source."""

    resolver_advertisement_minimum_initial_interval = interval(
        10, "Time between the first two adverts of a new source; it doubles up to the maximum."
    )
    resolver_advertisement_maximum_initial_interval = interval(
        500, "Longest time between two adverts of a source in the first phase."
    )
    resolver_advertisement_minimum_initial_duration = interval(
        5000,
        "How long the first phase of adverts lasts.",
        minimum=0,
    )
    resolver_advertisement_sustain_interval = interval(
        1000, "Time between two adverts of a source in the second phase."
    )
    resolver_advertisement_minimum_sustain_duration = _seconds(
        60, "How long the second phase of adverts lasts; a query begins it again."
    )
    resolver_advertisement_quiescent_interval = interval(
        10_000,
        "Time between two adverts of a source after the second phase, for contexts that the network had cut off; 0: no "
        f"adverts, as in Ultra Messaging.{udp_options.ADDITION}",
        minimum=0,
        special_zero=True,
    )
    resolver_advertisement_send_immediate_response = Option(
        default=True,
        meaning="Whether the context answers a query for the topic of a source at once.",
    )
    resolver_send_final_advertisements = Option(
        default=True,
        meaning="Whether the context announces that a source was closed, so that receivers need not wait for the "
        "activity timeout. Ultra Messaging: 0.",
    )


class ResolverReceiver:
    """The options of topic resolution for a receiver."""

    resolver_query_minimum_initial_interval = interval(
        20, "Time between the first two queries of a new receiver; it doubles up to the maximum."
    )
    resolver_query_maximum_initial_interval = interval(
        200, "Longest time between two queries of a receiver in the first phase."
    )
    resolver_query_minimum_initial_duration = interval(
        5000,
        "How long the first phase of queries lasts.",
        minimum=0,
    )
    resolver_query_sustain_interval = interval(1000, "Time between two queries of a receiver in the second phase.")
    resolver_query_minimum_sustain_duration = _seconds(60, "How long the second phase of queries lasts.")
    resolver_query_quiescent_interval = interval(
        10_000,
        "Time between two queries of a receiver that has no source after the second phase; 0: no queries, as in Ultra "
        f"Messaging.{udp_options.ADDITION}",
        minimum=0,
        special_zero=True,
    )


class ResolverWildcardReceiver:
    """The options of topic resolution for a wildcard receiver."""

    resolver_query_minimum_interval = interval(
        50, "Time between the first two queries for a pattern; it doubles up to the maximum."
    )
    resolver_query_maximum_interval = interval(1000, "Longest time between two queries for a pattern.")
    resolver_query_minimum_duration = _seconds(60, "How long a wildcard receiver sends queries for its pattern.")
