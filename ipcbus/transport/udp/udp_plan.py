"""The plan of a session over UDP, from the options of its context and its first source."""

from __future__ import annotations

import ipaddress
import secrets
import time
from dataclasses import dataclass
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Final, Literal

from ipcbus.config.options.udp_options import DATA_RATE, RETRANSMIT_RATE
from ipcbus.errors import ConfigError
from ipcbus.reliability.clients import ClientSettings
from ipcbus.reliability.following import SLOWEST
from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.reliable_sender import ReliableSender
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings
from ipcbus.resolution.local.adverts import TRANSPORT_NAMES, Endpoint
from ipcbus.transport.transport_kinds import evict_after_ms
from ipcbus.transport.udp import datagram_socket, network_interface
from ipcbus.transport.udp.datagram_socket import Buffers
from ipcbus.transport.udp.loss_injection import from_environment
from ipcbus.transport.udp.ports import Ports
from ipcbus.transport.udp.session_socket import SessionSocket
from ipcbus.transport.udp.stats_blocks import SenderStatsBlock
from ipcbus.transport.udp.udp_link import frame_settings
from ipcbus.transport.udp.udp_sender import UdpSender
from ipcbus.wire.datagram_topics import topics_of
from ipcbus.wire.udp_packets import DATA_BODY
from ipcbus.wire.wire_layout import TRANSPORT_LBTRM, TRANSPORT_LBTRU

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipcbus.config import ContextOptions, ReceiverOptions, SourceOptions
    from ipcbus.config.option_values import OptionValues
    from ipcbus.transport.tcp.tls import Tls
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.sealing import Seal
    from ipcbus.transport.udp.udp_sender import UdpSenderListener
    from ringbuf.channel import OwnedChannel

MS = 1_000_000
DATAGRAM_MAX = 65_400
"""Longest datagram of a session that UDP carries, with all headers and a seal."""
Kind = Literal["lbtru", "lbtrm"]


@dataclass(frozen=True, slots=True)
class UdpPlan:
    """The part of a session plan for UDP.

    Attributes:
        kind: the transport, as a value of the option `transport`.
        interface: the interface of its socket, as in the option.
        ports: the ports that the socket may take.
        buffers: the sizes of the socket's buffers.
        settings: limits and times of the protocol.
        group: the multicast group; empty for LBT-RU.
        group_port: the port of the group.
        ttl: the largest number of routers that datagrams to the group may pass.
        filters: whether a client gets only datagrams with messages of its topics.
        exempts_own_host: whether clients at the address of its socket need no congestion control.
    """

    kind: Kind
    interface: str
    ports: Ports
    buffers: Buffers
    settings: SenderSettings
    group: str = ""
    group_port: int = 0
    ttl: int = 0
    filters: bool = False
    exempts_own_host: bool = True

    drops = False  # here, pacing is that of the transport, or of the ring

    @property
    def transport(self) -> int:
        """The number of the transport."""
        return TRANSPORT_LBTRM if self.kind == "lbtrm" else TRANSPORT_LBTRU

    @property
    def on_loopback(self) -> bool:
        """Whether its packets stay on this host."""
        return network_interface.is_loopback(self.interface)

    def open(self, seal: Seal | None, tls: Tls | None, on_unused: Callable[[SessionSocket], object]) -> SessionSocket:
        """Makes the socket.

        Args:
            seal: the seal of sources, where the domain has a key.
            tls: without effect: TLS is for connections.
            on_unused: see `SessionSocket`.

        Raises:
            ConfigError: this host has no such interface.
            ipcbus.TransportError: no port is free, or the system refuses it.
        """
        del tls
        option = "resolver_multicast_interface" if self.group else "transport_lbtru_interface"
        interface = network_interface.find(self.interface, option)
        socket = datagram_socket.unicast(
            interface, self.ports, self.buffers, from_environment(self.kind, "source", SystemRandom())
        )
        if self.group:
            socket.send_multicast_from(interface, self.ttl)
        return SessionSocket(socket, seal, on_unused=on_unused)

    def endpoint(self, address: Address) -> Endpoint:
        """Returns the endpoint at which receivers find the session, from the address of its socket."""
        return Endpoint(str(address[0]).partition("%")[0], address[1], self.group, self.group_port)

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
    ) -> UdpSender:
        """Returns what sends the datagrams of a session's ring over UDP.

        Args:
            channel: the session's ring and control block.
            session_socket: the socket that the session sends from.
            session_id: the session's id.
            topics_max: the number of topic lines of the ring.
            topic_numbers: see `ReliableSender`.
            listener: see `UdpSender`.
            twin: whether it is the UDP twin of a ring session.
        """
        now_ns, secret = time.monotonic_ns(), secrets.token_bytes(32)
        reliable_sender = ReliableSender(
            session_id,
            self.settings,
            secret,
            now_ns,
            bool(self.group),
            topic_numbers,
            partial(topics_of, start=DATA_BODY.size) if self.filters else None,
            partial(_is_at, session_socket.socket.address[0]) if self.exempts_own_host else lambda address: False,
        )
        return UdpSender(
            channel,
            session_socket,
            reliable_sender,
            SenderStatsBlock(channel.ring, topics_max, self.transport, reliable_sender),
            listener,
            name=TRANSPORT_NAMES[self.transport],
            group=session_socket.socket.peer(self.group, self.group_port) if self.group else None,
            twin=twin,
            return_timeout_ns=self.settings.clients.activity_timeout,
            frames=frame_settings(self.transport, str(session_socket.socket.address[0])),
        )


DROP_BYTES: Final = 524_288
"""Least number of bytes that leave the window of a source together, as all receivers on one host have got them."""


def plan_udp(
    kind: Kind, context: ContextOptions, source: SourceOptions, *, twin: bool, receiver_paced: bool | None = None
) -> UdpPlan:
    """Returns the plan that the options ask for.

    Args:
        kind: the transport.
        context: the options of the context.
        source: the options of the source.
        twin: whether it is for the UDP twin of a ring session. A twin takes any port: those of the range are for
            sessions that need a known one.
        receiver_paced: the pacing of a twin, that of its ring; None for that of the option.

    Raises:
        ConfigError: multicast is off.
    """
    if receiver_paced is None:
        own = source.transport_lbtrm_behavior if kind == "lbtrm" else source.transport_lbtru_behavior
        receiver_paced = own == "receiver_paced"
    is_group = kind == "lbtrm"
    control = source.transport_lbtrm_congestion_control if is_group else source.transport_lbtru_congestion_control
    of_context, of_source = _numbers(context, kind), _numbers(source, kind)
    interface = context.resolver_multicast_interface if kind == "lbtrm" else source.transport_lbtru_interface
    if not interface:
        raise ConfigError(
            f"transport {TRANSPORT_NAMES[TRANSPORT_LBTRM]} is off: multicast needs an interface to leave by; set "
            "resolver_multicast_interface (scope context) to an address of this host"
        )
    buffers = Buffers(
        send=of_context["source_socket_buffer"],
        receive=of_context["source_socket_buffer"],
        send_option=f"transport_{kind}_source_socket_buffer",
        receive_option=f"transport_{kind}_source_socket_buffer",
    )
    return UdpPlan(
        kind,
        interface,
        Ports(0, 0, ephemeral=True, cure="nothing") if twin else _ports(kind, context, source),
        buffers,
        _settings(
            of_context,
            of_source,
            loopback=network_interface.is_loopback(interface),
            twin=twin,
            congestion_control=control == "on" or (control == "auto" and not network_interface.is_loopback(interface)),
            receiver_paced=receiver_paced,
            evict_after=evict_after_ms(source) * MS if receiver_paced else 0,
            follows=(source.transport_lbtrm_follows, source.transport_lbtrm_follows_tag) if is_group else (SLOWEST, ""),
        ),
        *(_group(context, source) if kind == "lbtrm" else ("", 0, 0)),
        kind == "lbtru" and source.transport_source_side_filtering_behavior == "inclusion",
        control != "on",
    )


def _ports(kind: Kind, context: ContextOptions, source: SourceOptions) -> Ports:
    if kind == "lbtrm":
        low, high = context.transport_lbtrm_source_port_low, context.transport_lbtrm_source_port_high
        cure = "transport_lbtrm_source_port_low or transport_lbtrm_source_port_high (scope context)"
        return Ports(low, high, ephemeral=True, cure=cure)
    if port := source.transport_lbtru_port:
        return Ports(port, port, ephemeral=False, cure="transport_lbtru_port (scope source)")
    low, high = context.transport_lbtru_port_low, context.transport_lbtru_port_high
    cure = "transport_lbtru_port_low, transport_lbtru_port_high (scope context) or transport_lbtru_allow_ephemeral"
    return Ports(low, high, ephemeral=source.transport_lbtru_allow_ephemeral, cure=cure)


def _group(context: ContextOptions, source: SourceOptions) -> tuple[str, int, int]:
    group = ipaddress.ip_address(source.transport_lbtrm_multicast_address)
    own = str(group) if group.is_multicast else context.transport_lbtrm_multicast_address_low
    return own, source.transport_lbtrm_destination_port, context.resolver_multicast_ttl


def _settings(
    context: dict[str, int],
    source: dict[str, int],
    *,
    loopback: bool,
    twin: bool,
    congestion_control: bool,
    receiver_paced: bool,
    evict_after: int,
    follows: tuple[str, str],
) -> SenderSettings:
    sending = SendSettings(
        window_size=source["transmission_window_size"],
        window_limit=source["transmission_window_limit"],
        ignore_interval=_ns(source["ignore_interval"]),
        data_rate=context["data_rate_limit"] or (0 if loopback else DATA_RATE),
        retransmit_rate=context["retransmit_rate_limit"] or (0 if loopback else RETRANSMIT_RATE),
        rate_interval=context["rate_interval"] * MS,
        receiver_paced=receiver_paced,
        evict_after=evict_after,
        follows=follows[0],
        tag=follows[1],
        congestion_control=congestion_control,
        # A receiver that is evicted from a ring may need what all clients of the twin have got.
        drop_bytes=DROP_BYTES if loopback and not twin and not congestion_control else 0,
        sm_minimum=source["sm_minimum_interval"] * MS,
        sm_maximum=source["sm_maximum_interval"] * MS,
    )
    clients = ClientSettings(
        clients_max=source["maximum_clients_per_transport"],
        topics_max=source["maximum_topics_per_transport"],
        activity_timeout=source["client_activity_timeout"] * MS,
    )
    return SenderSettings(sending, clients)


def _ns(interval: int) -> int:
    """Returns an interval in ms as ns; -1 stays, which is a time that is measured."""
    return interval * MS if interval >= 0 else -1


def _numbers(values: OptionValues, kind: Kind) -> dict[str, int]:
    """Returns the options of a transport that are numbers, by their names without the prefix."""
    own = f"transport_{kind}_"
    return {name.removeprefix(own): value for name, value in values.items() if isinstance(value, int) and own in name}


def _is_at(host: str, address: Hashable) -> bool:
    return isinstance(address, tuple) and address[0] == host


def receiver_settings(kind: Kind, options: ReceiverOptions) -> ReceiverSettings:
    """Returns limits and times of receivers of a session over UDP, from their options."""
    of = _numbers(options, kind)
    naks = NakSettings(
        initial_backoff=_ns(of["nak_initial_backoff_interval"]),
        backoff=_ns(of["nak_backoff_interval"]),
        suppress=of["nak_suppress_interval"] * MS,
        generation=of["nak_generation_interval"] * MS,
    )
    return ReceiverSettings(
        ReceiveSettings(naks, send_naks=bool(of["send_naks"]), activity_timeout=of["activity_timeout"] * MS),
        connect_interval=of["connect_interval"] * MS,
        maximum_connect_attempts=of["maximum_connect_attempts"],
        acknowledgement_interval=of["acknowledgement_interval"] * MS,
        info_request_interval=options.transport_topic_sequence_number_info_request_interval * MS,
        info_request_maximum=options.transport_topic_sequence_number_info_request_maximum,
    )


def receiver_buffers(kind: Kind, options: ContextOptions) -> Buffers:
    """Returns the sizes of the buffers of a receiving socket."""
    name = f"transport_{kind}_receiver_socket_buffer"
    return Buffers(receive=_numbers(options, kind)["receiver_socket_buffer"], receive_option=name)


def receiver_ports(kind: Kind, options: ReceiverOptions) -> Ports:
    """Returns the ports that a receiver's socket may take."""
    if kind == "lbtrm":
        return Ports(0, 0, ephemeral=True, cure="nothing")
    return Ports(
        options.transport_lbtru_port_low,
        options.transport_lbtru_port_high,
        ephemeral=options.transport_lbtru_allow_ephemeral,
        cure="transport_lbtru_port_low, transport_lbtru_port_high or transport_lbtru_allow_ephemeral (scope receiver)",
    )
