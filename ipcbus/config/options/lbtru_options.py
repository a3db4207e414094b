"""The options of LBT-RU: reliable UDP from a source to each of its clients."""

from __future__ import annotations

from typing import Final

from ipcbus.config.addresses import INTERFACE
from ipcbus.config.option_values import Option
from ipcbus.config.options import udp_options
from ipcbus.config.options.option_limits import MAX_ID

_NAME: Final = "LBT-RU"
_LOOPBACK: Final = " Ultra Messaging: 0.0.0.0; ipcbus sends nothing to other hosts by default."


class LbtruContext:
    """The options of LBT-RU for a context."""

    transport_lbtru_port_low = udp_options.port(14380, "First port of LBT-RU sessions of sources that set no port.")
    transport_lbtru_port_high = udp_options.port(14389, "Last port of LBT-RU sessions of sources that set no port.")
    transport_lbtru_maximum_ports = Option(
        default=5,
        minimum=1,
        maximum=MAX_ID,
        meaning="Most LBT-RU sessions of a context for its sources that do not set transport_lbtru_port.",
    )
    transport_lbtru_datagram_max_size = udp_options.datagram_max_size(_NAME)
    transport_lbtru_data_rate_limit = udp_options.data_rate_limit(_NAME)
    transport_lbtru_retransmit_rate_limit = udp_options.retransmit_rate_limit(_NAME)
    transport_lbtru_rate_interval = udp_options.rate_interval(100, _NAME)
    transport_lbtru_receiver_socket_buffer = udp_options.receiver_socket_buffer("from LBT-RU sources")
    transport_lbtru_source_socket_buffer = udp_options.source_socket_buffer(_NAME)


class LbtruSource:
    """The options of LBT-RU for a source."""

    transport_lbtru_interface = Option(
        default="127.0.0.1",
        form=INTERFACE,
        meaning=f"Network interface of the socket of an LBT-RU session.{_LOOPBACK}",
    )
    transport_lbtru_port = udp_options.port(0, "Port of the source's LBT-RU session; 0: the next one of the pool.")
    transport_lbtru_allow_ephemeral = Option(
        default=True,
        meaning="Whether the system chooses a port when all ports of the range are in use. Ultra Messaging: 0.",
    )
    transport_lbtru_behavior = udp_options.behavior(_NAME)
    transport_lbtru_congestion_control = udp_options.congestion_control(_NAME)
    transport_lbtru_transmission_window_size = udp_options.transmission_window_size(_NAME)
    transport_lbtru_transmission_window_limit = udp_options.transmission_window_limit(_NAME)
    transport_lbtru_maximum_clients_per_transport = udp_options.maximum_clients(_NAME)
    transport_lbtru_maximum_topics_per_transport = udp_options.maximum_topics(_NAME)
    transport_lbtru_client_activity_timeout = udp_options.client_activity_timeout(_NAME)
    transport_lbtru_sm_minimum_interval = udp_options.sm_minimum_interval(_NAME)
    transport_lbtru_sm_maximum_interval = udp_options.sm_maximum_interval(_NAME)
    transport_lbtru_ignore_interval = udp_options.ignore_interval(_NAME)


class LbtruReceiver:
    """The options of LBT-RU for a receiver."""

    transport_lbtru_interface = Option(
        default="127.0.0.1",
        form=INTERFACE,
        meaning=f"Network interface of the socket that receives LBT-RU.{_LOOPBACK}",
    )
    transport_lbtru_port_low = udp_options.port(14360, "First port that a receiver of LBT-RU may use.")
    transport_lbtru_port_high = udp_options.port(14379, "Last port that a receiver of LBT-RU may use.")
    transport_lbtru_allow_ephemeral = Option(
        default=True,
        meaning=f"Whether the system chooses a port when all ports of the range are in use.{udp_options.ADDITION}",
    )
    transport_lbtru_activity_timeout = udp_options.activity_timeout(_NAME)
    transport_lbtru_connect_interval = udp_options.connect_interval(_NAME)
    transport_lbtru_maximum_connect_attempts = udp_options.maximum_connect_attempts(_NAME)
    transport_lbtru_acknowledgement_interval = udp_options.acknowledgement_interval(500, _NAME)
    transport_lbtru_send_naks = udp_options.send_naks(_NAME)
    transport_lbtru_nak_initial_backoff_interval = udp_options.nak_initial_backoff_interval(-1, _NAME)
    transport_lbtru_nak_backoff_interval = udp_options.nak_backoff_interval(_NAME)
    transport_lbtru_nak_suppress_interval = udp_options.nak_suppress_interval(_NAME)
    transport_lbtru_nak_generation_interval = udp_options.nak_generation_interval(_NAME)
