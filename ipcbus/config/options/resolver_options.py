"""The options of topic resolution over the network, which is off until an interface or a daemon is configured."""

from __future__ import annotations

from typing import Final

from ipcbus.config.addresses import DAEMONS, GROUP, INTERFACE, INTERFACE_OR_NONE
from ipcbus.config.option_values import Option
from ipcbus.config.options import udp_options
from ipcbus.config.options.option_limits import MAX_MS, MAX_SECONDS

_MBIT: Final = 1_000_000
_UNASKED: Final = "that nobody has asked for"


def _seconds(default: int, meaning: str) -> Option[int]:
    return Option(default=default, unit="s", minimum=0, maximum=MAX_SECONDS, meaning=meaning)


class ResolverContext:
    """Of a context."""

    resolver_multicast_interface = Option(
        default="",
        form=INTERFACE_OR_NONE,
        meaning="Interface of everything that is multicast: resolution and LBT-RM; empty is off, and an LBT-RM source "
        "is refused. Ultra Messaging: 0.0.0.0, which the system chooses for and which is on.",
    )
    resolver_multicast_address = Option(
        default="224.9.10.11",
        form=GROUP,
        meaning="Group of multicast resolution.",
    )
    resolver_multicast_port = udp_options.port(12965, "Port of multicast resolution.")
    resolver_multicast_ttl = Option(
        default=16,
        minimum=0,
        maximum=255,
        meaning="How many routers let a multicast datagram through, of LBT-RM too; 0 stays on this host, 1 in its net.",
    )
    resolver_multicast_receiver_socket_buffer = udp_options.receiver_socket_buffer("multicast resolution")
    resolver_unicast_daemon = Option(
        default="",
        form=DAEMONS,
        several=True,
        meaning="Resolvers (ipcbus resolver) that carry resolution where multicast does not; empty is off. All that "
        "live are used.",
    )
    resolver_unicast_interface = Option(
        default="127.0.0.1",
        form=INTERFACE,
        meaning="Interface that the socket to the resolvers is bound to. Ultra Messaging: 0.0.0.0; here nothing leaves "
        "the host until it is told to.",
    )
    resolver_unicast_port_low = udp_options.port(14402, "First port that a context may take for its resolvers.")
    resolver_unicast_port_high = udp_options.port(
        14406, "Last port for the resolvers; where all are taken the system chooses one, unlike in Ultra Messaging."
    )
    resolver_unicast_receiver_socket_buffer = udp_options.receiver_socket_buffer("from resolvers")
    resolver_unicast_keepalive_interval = udp_options.interval(
        500, "How often a context tells a resolver that it lives."
    )
    resolver_unicast_activity_timeout = udp_options.interval(
        1000, "A resolver that has not answered for this long does not count as alive."
    )
    resolver_datagram_max_size = Option(
        default=8192,
        unit="bytes",
        minimum=500,
        maximum=65535,
        meaning="Largest datagram of resolution; UDP carries 65507 bytes, so that more counts as that.",
    )
    resolver_initial_advertisements_per_second = udp_options.limit(
        1000, "adverts/s", f"Adverts {_UNASKED}, in the first phase."
    )
    resolver_initial_advertisement_bps = udp_options.limit(_MBIT, "bit/s", f"Adverts {_UNASKED}, in the first phase.")
    resolver_sustain_advertisements_per_second = udp_options.limit(0, "adverts/s", "All other adverts.")
    resolver_sustain_advertisement_bps = udp_options.limit(_MBIT, "bit/s", "All other adverts.")
    resolver_initial_queries_per_second = udp_options.limit(1000, "queries/s", "Queries in the first phase.")
    resolver_initial_query_bps = udp_options.limit(_MBIT, "bit/s", "Queries in the first phase.")
    resolver_sustain_queries_per_second = udp_options.limit(0, "queries/s", "Queries after the first phase.")
    resolver_sustain_query_bps = udp_options.limit(_MBIT, "bit/s", "Queries after the first phase.")
    resolver_wildcard_queries_per_second = udp_options.limit(0, "queries/s", "Queries of wildcard receivers.")
    resolver_wildcard_query_bps = udp_options.limit(_MBIT, "bit/s", "Queries of wildcard receivers.")


class ResolverSource:
    """Of a source."""

    resolver_advertisement_minimum_initial_interval = udp_options.interval(
        10, "Time between the first two adverts of a new source; it doubles up to the maximum."
    )
    resolver_advertisement_maximum_initial_interval = udp_options.interval(
        500, "Longest time between two adverts of a source in the first phase."
    )
    resolver_advertisement_minimum_initial_duration = Option(
        default=5000,
        unit="ms",
        minimum=0,
        maximum=MAX_MS,
        meaning="How long the first phase of adverts lasts.",
    )
    resolver_advertisement_sustain_interval = udp_options.interval(
        1000, "Time between two adverts of a source in the second phase."
    )
    resolver_advertisement_minimum_sustain_duration = _seconds(
        60, "How long the second phase of adverts lasts; a query begins it again."
    )
    resolver_advertisement_quiescent_interval = udp_options.interval(
        10_000,
        "Time between two adverts of a source after the second phase, so that who was cut off finds it; 0 is silence, "
        f"as in Ultra Messaging.{udp_options.ADDITION}",
        minimum=0,
        special_zero=True,
    )
    resolver_advertisement_send_immediate_response = Option(
        default=True,
        meaning="Whether a query for the topic of a source is answered at once.",
    )
    resolver_send_final_advertisements = Option(
        default=True,
        meaning="Whether a source that is closed says so, so that receivers need not wait for its silence. Ultra "
        "Messaging: 0.",
    )


class ResolverReceiver:
    """Of a receiver."""

    resolver_query_minimum_initial_interval = udp_options.interval(
        20, "Time between the first two queries of a new receiver; it doubles up to the maximum."
    )
    resolver_query_maximum_initial_interval = udp_options.interval(
        200, "Longest time between two queries of a receiver in the first phase."
    )
    resolver_query_minimum_initial_duration = Option(
        default=5000,
        unit="ms",
        minimum=0,
        maximum=MAX_MS,
        meaning="How long the first phase of queries lasts.",
    )
    resolver_query_sustain_interval = udp_options.interval(
        1000, "Time between two queries of a receiver in the second phase."
    )
    resolver_query_minimum_sustain_duration = _seconds(60, "How long the second phase of queries lasts.")
    resolver_query_quiescent_interval = udp_options.interval(
        10_000,
        "Time between two queries of a receiver that still has no source after the second phase; 0 is silence, as in "
        f"Ultra Messaging.{udp_options.ADDITION}",
        minimum=0,
        special_zero=True,
    )


class ResolverWildcardReceiver:
    """Of a wildcard receiver."""

    resolver_query_minimum_interval = udp_options.interval(
        50, "Time between the first two queries for a pattern; it doubles up to the maximum."
    )
    resolver_query_maximum_interval = udp_options.interval(1000, "Longest time between two queries for a pattern.")
    resolver_query_minimum_duration = _seconds(60, "How long a pattern is asked for.")
