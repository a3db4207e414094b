"""A context's part in topic resolution over the network: its sockets, and what it offers and looks for."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import time
from collections import deque
from random import SystemRandom
from typing import TYPE_CHECKING

from ipcbus.config import addresses
from ipcbus.resolution.network.network_resolution import NetworkResolution, Who
from ipcbus.resolution.network.resolution_settings import ResolutionSettings
from ipcbus.resolution.network.resolver_clients import ResolverClients, ResolverClientSettings
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.transport.udp import datagram_socket, network_interface
from ipcbus.transport.udp.datagram_socket import Buffers, Ports
from ipcbus.transport.udp.session_socket import SessionSocket

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipcbus.config import ContextOptions, ReceiverOptions, SourceOptions
    from ipcbus.resolution.local.adverts import SourceAdvert
    from ipcbus.runtime.discovery.peers import Offers
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.network_interface import Interface
    from ipcbus.transport.udp.sealing import Seal
    from ringbuf.slots import Identity

_SECOND_NS = 1_000_000_000
_MS_NS = 1_000_000
_UDP_MAX = 65_000


class ResolutionPath:
    """One way to others: a multicast group, or resolver daemons (transport.udp.session_socket.PacketHandler)."""

    def __init__(self, resolution: NetworkResolution, interface: Interface, seal: Seal | None) -> None:
        """Without a socket; `sends_to` or `heard_through` follows.

        Args:
            resolution: what it speaks.
            interface: by which it leaves.
            seal: of the domain, if it has a key.
        """
        self.resolution = resolution
        self.ports: list[SessionSocket] = []
        self._loopback = ipaddress.ip_address(interface.host.partition("%")[0]).is_loopback
        self._seal = seal
        self._clients: ResolverClients | None = None
        self._group: Address | None = None
        self._changes = 0

    def sends_to(self, port: SessionSocket, group: Address) -> None:
        """Everything goes to a group; a port that hears it belongs to `ports` too."""
        self.ports, self._group = [port], group

    def heard_through(self, port: SessionSocket, clients: ResolverClients) -> None:
        """Everything goes to daemons, and comes from them."""
        self.ports, self._clients = [port], clients

    def reaches(self, source: SourceAdvert) -> bool:
        """Whether who is told of a source this way can reach it: what is on the loopback interface stays there."""
        endpoint = source.session.endpoint
        return endpoint is not None and ipaddress.ip_address(endpoint.host).is_loopback == self._loopback

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet, whatever it is."""
        inner = packet if self._clients is None else self._clients.receive(packet, address, now_ns)
        if inner is not None and self._seal is not None:
            inner = self._seal.open(inner)
        if inner is not None:
            self.resolution.receive(inner, address, now_ns)

    def turn(self, now_ns: int) -> int | None:
        """Does what is due; returns when to call again."""
        clients = self._clients
        if clients is not None:
            clients.turn(now_ns)
            if clients.changes != self._changes:
                self._changes = clients.changes
                self.resolution.refresh(now_ns)
        self.resolution.turn(now_ns)
        self._send(self.resolution.take())
        times = (self.resolution.next_ns, clients.next_ns if clients is not None else None)
        return min((time for time in times if time is not None), default=None)

    def close(self, now_ns: int) -> None:
        """Tells that all ends."""
        self._send(self.resolution.close(now_ns))

    def _send(self, packets: list[bytes]) -> None:
        if self._seal is not None:
            packets = [self._seal.seal(packet) for packet in packets]
        if self._clients is None:
            if packets and self._group is not None:
                self.ports[0].send([(packet, self._group) for packet in packets])
            return
        for packet in packets:
            self._clients.send(packet)
        if pairs := self._clients.take():
            self.ports[0].send(pairs)  # type: ignore[arg-type]


class TopicResolution:
    """All ways of a context. Runs on the driver, but for what says otherwise."""

    def __init__(
        self,
        domain: str,
        who: Identity,
        options: tuple[ContextOptions, SourceOptions, ReceiverOptions],
        seal: Seal | None,
        hurry: Callable[[], None],
    ) -> None:
        """Opens the ways that the options ask for; none is the default.

        Args:
            domain: the bus domain.
            who: how the context introduces itself.
            options: of the context, and those of its sources and receivers that nobody overrides.
            seal: of the domain, if it has a key.
            hurry: has `turn` called soon; any thread may call it.

        Raises:
            ConfigError, ipcbus.TransportError: a socket cannot be had.
        """
        self.ways: list[ResolutionPath] = []
        self._hurry = hurry
        self._todo: deque[Callable[[int], None]] = deque()
        context = options[0]
        me = Who(who.context_id, who.pid, who.context_name)
        try:
            if context.resolver_multicast_interface:
                self._open_multicast(domain, me, options, seal)
            if context.resolver_unicast_daemon:
                self._open_unicast(domain, me, options, seal)
        except BaseException:
            for way in self.ways:
                for port in way.ports:
                    port.close()
            raise

    def _open_multicast(
        self, domain: str, me: Who, options: tuple[ContextOptions, SourceOptions, ReceiverOptions], seal: Seal | None
    ) -> None:
        context = options[0]
        option = "resolver_multicast_interface"
        interface = network_interface.find(context.resolver_multicast_interface, option)
        way = self._way(domain, me, terms_of(*options, check_address=True), interface, seal)
        sends = datagram_socket.unicast(interface, Ports(0, 0, ephemeral=True, cure=option), Buffers())
        sends.send_multicast_from(interface, context.resolver_multicast_ttl)
        group, number = context.resolver_multicast_address, context.resolver_multicast_port
        buffers = Buffers(
            receive=context.resolver_multicast_receiver_socket_buffer,
            receive_option="resolver_multicast_receiver_socket_buffer",
        )
        way.sends_to(SessionSocket(sends, default_handler=way), sends.peer(group, number))
        way.ports.append(
            SessionSocket(datagram_socket.group_member(group, number, interface, buffers), default_handler=way)
        )

    def _open_unicast(
        self, domain: str, me: Who, options: tuple[ContextOptions, SourceOptions, ReceiverOptions], seal: Seal | None
    ) -> None:
        context = options[0]
        interface = network_interface.find(context.resolver_unicast_interface, "resolver_unicast_interface")
        way = self._way(domain, me, terms_of(*options, check_address=False), interface, seal)
        ports = Ports(
            context.resolver_unicast_port_low,
            context.resolver_unicast_port_high,
            ephemeral=True,
            cure="resolver_unicast_port_low or resolver_unicast_port_high (scope context)",
        )
        buffers = Buffers(
            receive=context.resolver_unicast_receiver_socket_buffer,
            receive_option="resolver_unicast_receiver_socket_buffer",
        )
        socket = datagram_socket.unicast(interface, ports, buffers)
        terms = ResolverClientSettings(
            context.resolver_unicast_keepalive_interval * _MS_NS, context.resolver_unicast_activity_timeout * _MS_NS
        )
        daemons = [socket.peer(*daemon) for daemon in addresses.daemons(context.resolver_unicast_daemon)]
        clients = ResolverClients(daemons, terms, SystemRandom(), time.monotonic_ns())
        way.heard_through(SessionSocket(socket, default_handler=way), clients)

    def _way(
        self, domain: str, me: Who, terms: ResolutionSettings, interface: Interface, seal: Seal | None
    ) -> ResolutionPath:
        resolution = NetworkResolution(terms, me, domain, SystemRandom(), time.monotonic_ns())
        way = ResolutionPath(resolution, interface, seal)
        self.ways.append(way)
        return way

    # ------------------------------------------------------------------ what the context offers and looks for

    def offer(self, source: SourceAdvert) -> None:
        """A topic is published; any thread may say so."""
        for way in self.ways:
            if way.reaches(source):
                self._later(functools.partial(way.resolution.offer, source))

    def withdraw(self, source: SourceAdvert) -> None:
        """A topic is not published any more; any thread may say so."""
        for way in self.ways:
            if way.reaches(source):
                self._later(functools.partial(way.resolution.withdraw, source))

    def want(self, name: str, *, wildcard: bool) -> None:
        """A topic, or all that match a pattern, are looked for."""
        for way in self.ways:
            self._later(functools.partial(way.resolution.want_pattern if wildcard else way.resolution.want, name))

    def unwant(self, name: str, *, wildcard: bool) -> None:
        """Nobody looks for them any more."""
        for way in self.ways:
            unwant = way.resolution.unwant_pattern if wildcard else way.resolution.unwant
            self._later(lambda _, unwant=unwant: unwant(name))  # type: ignore[misc]

    def _later(self, step: Callable[[int], None]) -> None:
        self._todo.append(step)
        self._hurry()

    # ------------------------------------------------------------------ driving

    def turn(self, now_ns: int) -> int:
        """Does what is due; returns when to call again."""
        while self._todo:
            self._todo.popleft()(now_ns)
        return min((due for way in self.ways if (due := way.turn(now_ns)) is not None), default=FOREVER_NS)

    @property
    def changes(self) -> int:
        """Moves when others offer something else."""
        return sum(way.resolution.changes for way in self.ways)

    def sources(self) -> Offers:
        """What others offer."""
        found: Offers = {}
        for way in self.ways:
            for session, topics in way.resolution.sources().items():
                found.setdefault(session, {}).update(topics)
        return found

    def contexts(self) -> dict[int, int]:
        """Processes of those that offer something, by the contexts' ids."""
        found: dict[int, int] = {}
        for way in self.ways:
            found |= way.resolution.contexts()
        return found

    def counters(self) -> dict[str, int]:
        """What all ways have counted, by the names in the statistics; nothing without a way."""
        found: dict[str, int] = {}
        for way in self.ways:
            counts = dataclasses.asdict(way.resolution.counts)
            sockets = [port.socket.counts for port in way.ports]
            counts["tr_dgrams_send_failed"] = sum(
                each.send_blocked + each.send_refused + each.send_too_large for each in sockets
            )
            found = {name: found.get(name, 0) + value for name, value in counts.items()}
        return found

    def close(self) -> None:
        """Tells that all ends."""
        self._todo.clear()
        for way in self.ways:
            way.close(time.monotonic_ns())


def terms_of(
    context: ContextOptions, source: SourceOptions, receiver: ReceiverOptions, *, check_address: bool
) -> ResolutionSettings:
    """Returns how a context takes part, from its options."""
    values: dict[str, int] = {}
    for options in (context, source, receiver):
        for name, row in options.rows.items():
            own = name.removeprefix("resolver_")
            if own in ResolutionSettings.__dataclass_fields__ and own != name:
                values[own] = int(options[name]) * {"ms": _MS_NS, "s": _SECOND_NS}.get(row.unit, 1)
    values["datagram_max_size"] = min(values["datagram_max_size"], _UDP_MAX)
    return ResolutionSettings(check_address=check_address, **values)  # type: ignore[arg-type]
