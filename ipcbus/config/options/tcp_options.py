"""The options of LBT-TCP: a connection from a source to each of its receivers."""

from __future__ import annotations

from typing import Final

from ipcbus.config.addresses import INTERFACE
from ipcbus.config.option_values import Option
from ipcbus.config.options import udp_options
from ipcbus.config.options.option_limits import KIB, MAX_COUNT, MAX_ID, MAX_WINDOW, MIB, interval

_NAME: Final = "LBT-TCP"


class TcpContext:
    """The options of LBT-TCP for a context."""

    transport_tcp_port_low = udp_options.port(14371, "First port of LBT-TCP sessions of sources that set no port.")
    transport_tcp_port_high = udp_options.port(
        14390,
        "Last port of LBT-TCP sessions of sources that set no port; when all are in use the system chooses one.",
    )
    transport_tcp_maximum_ports = Option(
        default=10,
        minimum=1,
        maximum=MAX_ID,
        meaning="Most LBT-TCP sessions of a context for its sources that do not set transport_tcp_port.",
    )
    transport_tcp_datagram_max_size = Option(
        default=65535,
        unit="bytes",
        minimum=500,
        maximum=65535,
        meaning="Largest LBT-TCP datagram with its headers; values above 65400 count as 65400.",
    )
    transport_tcp_receiver_socket_buffer = udp_options.buffer(
        0, "SO_RCVBUF of the connections that receive from LBT-TCP sources."
    )


class TcpSource:
    """The options of LBT-TCP for a source."""

    transport_tcp_interface = Option(
        default="127.0.0.1",
        form=INTERFACE,
        meaning="Network interface on which an LBT-TCP session waits for connections. Ultra Messaging: 0.0.0.0; "
        "ipcbus offers nothing to other hosts by default.",
    )
    transport_tcp_port = udp_options.port(0, "Port of the source's LBT-TCP session; 0: the next one of the pool.")
    transport_tcp_nodelay = Option(
        default=True, meaning="Whether the connections of an LBT-TCP session send small packets at once (TCP_NODELAY)."
    )
    transport_tcp_sender_socket_buffer = udp_options.buffer(0, "SO_SNDBUF of the connections of LBT-TCP sources.")
    transport_tcp_listen_backlog = Option(
        default=1024,
        minimum=1,
        maximum=MAX_COUNT,
        meaning="How many receivers may wait at a time to be connected to an LBT-TCP session; the system may allow "
        "fewer. Ultra Messaging: 5, with which several hundred receivers of one host take a minute to connect.",
    )
    transport_tcp_reuseaddr = Option(
        default=True,
        meaning="Whether an LBT-TCP session takes a port on which connections of an earlier session are still being "
        "closed (SO_REUSEADDR). Ultra Messaging: 0, with which a port cannot be used again for a minute.",
    )
    transport_tcp_multiple_receiver_behavior = Option(
        default="normal",
        choices=("normal", "bounded_latency", "source_paced"),
        meaning="What an LBT-TCP session does when transport_session_maximum_buffer bytes wait for a receiver. "
        "normal: the source waits for the slowest receiver, see slow_receiver_behavior; source_paced: the source "
        "drops what it sends for this receiver until the receiver has taken what waits; bounded_latency: the "
        "receiver does not get the oldest of what waits. Such losses are counted and reported at once.",
    )
    transport_session_maximum_buffer = Option(
        default=64 * KIB,
        unit="bytes",
        minimum=1,
        maximum=MAX_WINDOW,
        meaning="Most bytes of datagrams that wait for a receiver of an LBT-TCP session, beside those in the buffers "
        "of its connection. Ultra Messaging: with the behavior normal, of all receivers together.",
    )
    transport_tcp_transmission_window_size = Option(
        default=24 * MIB,
        unit="bytes",
        minimum=64 * KIB,
        maximum=MAX_WINDOW,
        meaning="Bytes of datagrams that an LBT-TCP session keeps for receivers whose connection breaks: they get what "
        f"they have missed when they connect again.{udp_options.ADDITION}",
    )
    transport_tcp_maximum_clients_per_transport = udp_options.maximum_clients(_NAME)
    transport_tcp_maximum_topics_per_transport = udp_options.maximum_topics(_NAME)
    transport_tcp_client_activity_timeout = udp_options.client_activity_timeout(_NAME, udp_options.ADDITION)


class TcpReceiver:
    """The options of LBT-TCP for a receiver."""

    transport_tcp_interface = Option(
        default="0.0.0.0",
        form=INTERFACE,
        meaning="Network interface over which a receiver connects to LBT-TCP sessions.",
    )
    transport_tcp_activity_timeout = interval(
        60_000,
        "The receiver treats an LBT-TCP session as ended after this time without a packet; an idle source sends one "
        "every 10 s. Ultra Messaging: 0, never.",
        minimum=30_000,
    )
