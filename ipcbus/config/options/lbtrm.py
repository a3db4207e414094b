"""The options of LBT-RM: reliable multicast. Its interface and TTL are those of multicast resolution."""

from __future__ import annotations

from typing import Final

from ipcbus.config.addresses import ANY_GROUP, GROUP
from ipcbus.config.options import udp
from ipcbus.config.values import Option

_NAME: Final = "LBT-RM"


class LbtrmContext:
    """Of a context."""

    transport_lbtrm_multicast_address_low = Option(
        default="224.10.10.10",
        form=GROUP,
        meaning="First group of the pool of LBT-RM sessions that sources without a group of their own share.",
    )
    transport_lbtrm_multicast_address_high = Option(
        default="224.10.10.14",
        form=GROUP,
        meaning="Last group of the pool of LBT-RM sessions.",
    )
    transport_lbtrm_source_port_low = udp.port(
        14390, "First port that LBT-RM sources send from and get requests (NAK) at."
    )
    transport_lbtrm_source_port_high = udp.port(14399, "Last port that LBT-RM sources send from.")
    transport_lbtrm_datagram_max_size = udp.datagram_max_size(_NAME)
    transport_lbtrm_data_rate_limit = udp.data_rate_limit(
        _NAME, " Ultra Messaging: retransmissions are part of it; here they have only the limit of their own."
    )
    transport_lbtrm_retransmit_rate_limit = udp.retransmit_rate_limit(_NAME)
    transport_lbtrm_rate_interval = udp.rate_interval(10, _NAME)
    transport_lbtrm_receiver_socket_buffer = udp.receiver_socket_buffer("from LBT-RM groups")
    transport_lbtrm_source_socket_buffer = udp.source_socket_buffer(_NAME)


class LbtrmSource:
    """Of a source."""

    transport_lbtrm_multicast_address = Option(
        default="0.0.0.0",
        form=ANY_GROUP,
        meaning="Group of the LBT-RM session to use; 0.0.0.0 takes the next of the pool.",
    )
    transport_lbtrm_destination_port = udp.port(14400, "Port of the group that an LBT-RM session sends to.")
    transport_lbtrm_transmission_window_size = udp.transmission_window_size(_NAME)
    transport_lbtrm_transmission_window_limit = udp.transmission_window_limit(_NAME)
    transport_lbtrm_maximum_clients_per_transport = udp.maximum_clients(_NAME)
    transport_lbtrm_maximum_topics_per_transport = udp.maximum_topics(_NAME)
    transport_lbtrm_client_activity_timeout = udp.client_activity_timeout(_NAME, udp.ADDITION)
    transport_lbtrm_sm_minimum_interval = udp.sm_minimum_interval(_NAME)
    transport_lbtrm_sm_maximum_interval = udp.sm_maximum_interval(_NAME)
    transport_lbtrm_ignore_interval = udp.ignore_interval(_NAME)


class LbtrmReceiver:
    """Of a receiver."""

    transport_lbtrm_activity_timeout = udp.activity_timeout(_NAME)
    transport_lbtrm_connect_interval = udp.connect_interval(_NAME, udp.ADDITION)
    transport_lbtrm_maximum_connect_attempts = udp.maximum_connect_attempts(_NAME, udp.ADDITION)
    transport_lbtrm_acknowledgement_interval = udp.acknowledgement_interval(2000, _NAME, udp.ADDITION)
    transport_lbtrm_send_naks = udp.send_naks(_NAME)
    transport_lbtrm_nak_initial_backoff_interval = udp.nak_initial_backoff_interval(50, _NAME)
    transport_lbtrm_nak_backoff_interval = udp.nak_backoff_interval(_NAME)
    transport_lbtrm_nak_suppress_interval = udp.nak_suppress_interval(_NAME)
    transport_lbtrm_nak_generation_interval = udp.nak_generation_interval(_NAME)
