"""The plan of a session over TCP, from the options of its context and its first source, and that of its receivers."""

from __future__ import annotations

import dataclasses
import logging
import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from ipcbus.reliability.clients import ClientSettings
from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.stream_sender import StreamSender, StreamSettings
from ipcbus.resolution.local.adverts import TRANSPORT_NAMES, Endpoint
from ipcbus.transport.tcp import stream_socket
from ipcbus.transport.tcp.stream_port import StreamPort
from ipcbus.transport.tcp.stream_socket import StreamOptions, StreamSocket
from ipcbus.transport.tcp.tcp_sender import TcpSender
from ipcbus.transport.transport_kinds import evict_after_ms
from ipcbus.transport.udp import network_interface
from ipcbus.transport.udp.ports import Ports
from ipcbus.transport.udp.stats_blocks import SenderStatsBlock
from ipcbus.transport.udp.udp_link import frame_settings
from ipcbus.wire.datagram_topics import topics_of
from ipcbus.wire.seal_format import SEAL_BYTES
from ipcbus.wire.udp_packets import DATA_HEADER, LONG_CONTROL_BYTES
from ipcbus.wire.wire_layout import TRANSPORT_LBTTCP

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.config import ContextOptions, ReceiverOptions, SourceOptions
    from ipcbus.transport.tcp.tls import Tls
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.sealing import Seal
    from ipcbus.transport.udp.session_socket import SessionSocket
    from ipcbus.transport.udp.udp_sender import UdpSenderListener
    from ringbuf.channel import OwnedChannel

log = logging.getLogger("ipcbus")

MS = 1_000_000
_PACKET_MAX = 65_535 + DATA_HEADER
"""The longest packet of a source; the ring of a receiver takes no longer ones."""
_SPARE_CONNECTIONS = 64
"""Connections beside those of clients: of receivers that connect, and of strangers."""
_SM_NS = (200 * MS, 10_000 * MS)
_RECOVERY_NS = MS
"""A message whose datagram was passed over does not come any more."""


@dataclass(frozen=True, slots=True)
class TcpPlan:
    """The part of a session plan for TCP, in the place of a `UdpPlan`.

    Attributes:
        interface: the interface to listen on, as in the option.
        ports: the ports that the socket may take.
        options: the options of the connections.
        settings: limits and times of the protocol.
        filters: whether a client gets only datagrams with messages of its topics.
        twin: whether it is for the UDP twin of a ring session.
    """

    interface: str
    ports: Ports
    options: StreamOptions
    settings: StreamSettings
    filters: bool
    twin: bool = False

    kind = "lbttcp"

    @property
    def drops(self) -> bool:
        """Whether a slow receiver loses messages."""
        return self.settings.behavior != "normal"

    def open(self, seal: Seal | None, tls: Tls | None, on_unused: Callable[[SessionSocket], object]) -> SessionSocket:
        """Makes the socket; the arguments are those of `UdpPlan.open`.

        Raises:
            ConfigError: this host has no such interface, or TLS has no certificate.
            ipcbus.TransportError: no port is free, or the system refuses it.
        """
        if tls is not None:
            tls.source_side()  # there is no certificate: an error now, not for each receiver
        interface = network_interface.find(self.interface, "transport_tcp_interface")
        socket = stream_socket.listening(interface, self.ports, self.options, tls.accepted if tls is not None else None)
        return cast("SessionSocket", StreamPort(socket, seal, cast("Callable[[StreamPort], object]", on_unused)))

    def endpoint(self, address: Address) -> Endpoint:
        """Returns the endpoint at which receivers find the session, from the address of its socket."""
        return Endpoint(str(address[0]).partition("%")[0], address[1], tcp=self.twin)

    def sender(
        self,
        channel: OwnedChannel,
        session_socket: SessionSocket,
        session_id: int,
        topics_max: int,
        *,
        topic_numbers: Callable[[int], tuple[int, int] | None],
        listener: UdpSenderListener,
        twin: bool,
    ) -> TcpSender:
        """Returns what sends the datagrams of a session's ring; the arguments are those of `UdpPlan.sender`."""
        stream_sender = StreamSender(
            session_id,
            self.settings,
            secrets.token_bytes(32),
            time.monotonic_ns(),
            cast("StreamSocket", session_socket.socket).unsent,  # type: ignore[arg-type]
            topic_numbers,
            partial(topics_of, start=DATA_HEADER) if self.filters else None,
        )
        return TcpSender(
            channel,
            session_socket,
            stream_sender,
            SenderStatsBlock(channel.ring, topics_max, TRANSPORT_LBTTCP, stream_sender),
            listener,
            name=TRANSPORT_NAMES[TRANSPORT_LBTTCP],
            group=None,
            twin=twin,
            return_timeout_ns=self.settings.clients.activity_timeout,
            frames=frame_settings(TRANSPORT_LBTTCP, str(session_socket.socket.address[0])),
        )


def plan_tcp(context: ContextOptions, source: SourceOptions) -> TcpPlan:
    """Returns the plan that the options of a context and a source ask for."""
    clients_max = source.transport_tcp_maximum_clients_per_transport
    behavior = source.transport_tcp_multiple_receiver_behavior
    return TcpPlan(
        source.transport_tcp_interface,
        _ports(context, source),
        StreamOptions(
            frame_max=LONG_CONTROL_BYTES + SEAL_BYTES,
            connections_max=clients_max + _SPARE_CONNECTIONS,
            send_buffer=source.transport_tcp_sender_socket_buffer,
            nodelay=source.transport_tcp_nodelay,
            backlog=source.transport_tcp_listen_backlog,
            reuse=source.transport_tcp_reuseaddr,
        ),
        StreamSettings(
            SendSettings(
                window_size=source.transport_tcp_transmission_window_size,
                data_rate=0,
                retransmit_rate=0,
                sm_minimum=_SM_NS[0],
                sm_maximum=_SM_NS[1],
                evict_after=evict_after_ms(source) * MS if behavior == "normal" else 0,
            ),
            ClientSettings(
                clients_max=clients_max,
                topics_max=source.transport_tcp_maximum_topics_per_transport,
                activity_timeout=source.transport_tcp_client_activity_timeout * MS,
            ),
            behavior,  # type: ignore[arg-type]
            source.transport_session_maximum_buffer,
        ),
        source.transport_source_side_filtering_behavior == "inclusion",
    )


def plan_tcp_twin(context: ContextOptions, source: SourceOptions, *, receiver_paced: bool) -> TcpPlan:
    """Returns the plan of the UDP twin of a ring, with the pacing of the ring."""
    plan = plan_tcp(context, source)
    sending = plan.settings.sending
    settings = dataclasses.replace(
        plan.settings,
        behavior="normal" if receiver_paced else "source_paced",
        # A source-paced one has to keep for each receiver what the ring keeps for its readers; it holds this anyway.
        buffer_max=plan.settings.buffer_max if receiver_paced else sending.window_size,
        sending=dataclasses.replace(sending, evict_after=evict_after_ms(source) * MS if receiver_paced else 0),
    )
    return dataclasses.replace(plan, ports=Ports(0, 0, ephemeral=True, cure="nothing"), settings=settings, twin=True)


def _ports(context: ContextOptions, source: SourceOptions) -> Ports:
    if port := source.transport_tcp_port:
        return Ports(port, port, ephemeral=False, cure="transport_tcp_port (scope source)")
    low, high = context.transport_tcp_port_low, context.transport_tcp_port_high
    return Ports(low, high, ephemeral=True, cure="transport_tcp_port_low, transport_tcp_port_high (scope context)")


def receiver_port(
    context: ContextOptions,
    receiver: ReceiverOptions,
    seal: Seal | None,
    tls: Tls | None,
    on_unused: Callable[[StreamPort], object],
) -> StreamPort:
    """Returns the socket with which a receiver connects.

    Args:
        context: the options of the context.
        receiver: the options of the receiver.
        seal: the seal of receivers, where the domain has a key.
        tls: the TLS of the context; None without TLS.
        on_unused: see `StreamPort`.

    Raises:
        ConfigError: this host has no such interface, or TLS has no certificates to trust.
    """
    if tls is not None:
        tls.receiver_side()
    interface = network_interface.find(receiver.transport_tcp_interface, "transport_tcp_interface")
    frame_max = _PACKET_MAX + (SEAL_BYTES if seal is not None else 0)
    options = StreamOptions(frame_max=frame_max, receive_buffer=context.transport_tcp_receiver_socket_buffer)
    socket = StreamSocket(None, interface, options, tls.connected if tls is not None else None)
    return StreamPort(socket, seal, on_unused)


def stream_receiver_settings(options: ReceiverOptions) -> ReceiverSettings:
    """Returns limits and times of receivers of a session over TCP, from their options."""
    return ReceiverSettings(
        ReceiveSettings(
            NakSettings(generation=_RECOVERY_NS), activity_timeout=options.transport_tcp_activity_timeout * MS
        ),
        info_request_interval=options.transport_topic_sequence_number_info_request_interval * MS,
        info_request_maximum=options.transport_topic_sequence_number_info_request_maximum,
    )


def tls_of(options: ContextOptions) -> Tls | None:
    """Returns the certificates of a context; None where its sessions over TCP go without TLS.

    Raises:
        ConfigError: a file cannot be read.
    """
    if options.use_tls:
        # Here, because ssl takes 10 ms, and most contexts do without.
        from ipcbus.transport.tcp.tls import Tls

        return Tls(options)
    if options.tls_certificate or options.tls_trusted_certificates:
        log.warning("certificates for TLS are set, and use_tls is not: sessions over LBT-TCP go without TLS")
    return None
