"""The options of LBT-RM: reliable multicast. LBT-RM shares interface and TTL with multicast resolution."""

from __future__ import annotations

from typing import Final

from ipcbus.config.addresses import ANY_GROUP, GROUP
from ipcbus.config.option_values import Option
from ipcbus.config.options import udp_options
from ipcbus.config.options.option_limits import MAX_NAME

_NAME: Final = "LBT-RM"


class LbtrmContext:
    """The options of LBT-RM for a context."""

    transport_lbtrm_multicast_address_low = Option(
        default="224.10.10.10",
        form=GROUP,
        meaning="First group of the pool of LBT-RM sessions, which the sources that set no group share; a new "
        "session takes any group of the pool that no other session of its context has.",
    )
    transport_lbtrm_multicast_address_high = Option(
        default="224.10.10.14",
        form=GROUP,
        meaning="Last group of the pool of LBT-RM sessions.",
    )
    transport_lbtrm_source_port_low = udp_options.port(
        14390, "First port from which LBT-RM sources send and at which they receive NAKs."
    )
    transport_lbtrm_source_port_high = udp_options.port(14399, "Last port from which LBT-RM sources send.")
    transport_lbtrm_datagram_max_size = udp_options.datagram_max_size(_NAME)
    transport_lbtrm_data_rate_limit = udp_options.data_rate_limit(
        _NAME, " In Ultra Messaging retransmissions count, too; in ipcbus they have only their own limit."
    )
    transport_lbtrm_retransmit_rate_limit = udp_options.retransmit_rate_limit(_NAME)
    transport_lbtrm_rate_interval = udp_options.rate_interval(10, _NAME)
    transport_lbtrm_receiver_socket_buffer = udp_options.receiver_socket_buffer("from LBT-RM groups")
    transport_lbtrm_source_socket_buffer = udp_options.source_socket_buffer(_NAME)


class LbtrmSource:
    """The options of LBT-RM for a source."""

    transport_lbtrm_multicast_address = Option(
        default="0.0.0.0",
        form=ANY_GROUP,
        meaning="Group of the source's LBT-RM session; 0.0.0.0: the next one of the pool.",
    )
    transport_lbtrm_destination_port = udp_options.port(14400, "Port of the multicast group of an LBT-RM session.")
    transport_lbtrm_behavior = udp_options.behavior(_NAME)
    transport_lbtrm_follows = Option(
        default="slowest",
        choices=("slowest", "tagged", "fastest"),
        meaning="Which receivers an LBT-RM source waits for, in flow control and congestion control. slowest: all that "
        "live. tagged: the slowest of the contexts whose name begins with transport_lbtrm_follows_tag. fastest: the "
        "fastest alone. The source overtakes all others: they lose what leaves the window before they receive it, and "
        f"report the loss.{udp_options.ADDITION}",
    )
    transport_lbtrm_follows_tag = Option(
        default="",
        maximum=MAX_NAME,
        meaning="A source with transport_lbtrm_follows = tagged waits for the receivers whose context_name begins with "
        f"this text. Without such receivers it does not wait.{udp_options.ADDITION}",
    )
    transport_lbtrm_congestion_control = udp_options.congestion_control(_NAME)
    transport_lbtrm_transmission_window_size = udp_options.transmission_window_size(_NAME)
    transport_lbtrm_transmission_window_limit = udp_options.transmission_window_limit(_NAME)
    transport_lbtrm_maximum_clients_per_transport = udp_options.maximum_clients(_NAME)
    transport_lbtrm_maximum_topics_per_transport = udp_options.maximum_topics(_NAME)
    transport_lbtrm_client_activity_timeout = udp_options.client_activity_timeout(_NAME, udp_options.ADDITION)
    transport_lbtrm_sm_minimum_interval = udp_options.sm_minimum_interval(_NAME)
    transport_lbtrm_sm_maximum_interval = udp_options.sm_maximum_interval(_NAME)
    transport_lbtrm_ignore_interval = udp_options.ignore_interval(_NAME)


class LbtrmReceiver:
    """The options of LBT-RM for a receiver."""

    transport_lbtrm_activity_timeout = udp_options.activity_timeout(_NAME)
    transport_lbtrm_connect_interval = udp_options.connect_interval(_NAME, udp_options.ADDITION)
    transport_lbtrm_maximum_connect_attempts = udp_options.maximum_connect_attempts(
        _NAME,
        " One that gets datagrams of the group goes on instead, with one request in each activity timeout. It takes "
        "them without being registered from then on, from 10 s after its first request on, or when the source has no "
        "room for it; it cannot ask for repairs." + udp_options.ADDITION,
    )
    transport_lbtrm_acknowledgement_interval = udp_options.acknowledgement_interval(2000, _NAME, udp_options.ADDITION)
    transport_lbtrm_send_naks = udp_options.send_naks(_NAME)
    transport_lbtrm_nak_initial_backoff_interval = udp_options.nak_initial_backoff_interval(50, _NAME)
    transport_lbtrm_nak_backoff_interval = udp_options.nak_backoff_interval(_NAME, spreads=True)
    transport_lbtrm_nak_suppress_interval = udp_options.nak_suppress_interval(_NAME)
    transport_lbtrm_nak_generation_interval = udp_options.nak_generation_interval(_NAME)
