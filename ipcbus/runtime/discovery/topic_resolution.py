"""Topic resolution of a context over the network: its sockets, its offers and its queries."""

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
from ipcbus.transport.udp.datagram_socket import Buffers
from ipcbus.transport.udp.ports import Ports
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
    """A path to other contexts: a multicast group, or resolver daemons (transport.udp.session_socket.PacketHandler)."""

    def __init__(self, resolution: NetworkResolution, interface: Interface, seal: Seal | None) -> None:
        """Begins without a socket; `use_group` or `use_daemons` follows.

        Args:
            resolution: reads and makes the packets.
            interface: the network interface of the path.
            seal: the seal of the domain; None without a key.
        """
        self.resolution = resolution
        self.ports: list[SessionSocket] = []
        self._loopback = ipaddress.ip_address(interface.host.partition("%")[0]).is_loopback
        self._seal = seal
        self._clients: ResolverClients | None = None
        self._group: Address | None = None
        self._changes = 0

    def use_group(self, port: SessionSocket, group: Address) -> None:
        """Sends all packets to a group; `ports` also needs a port that is a member of the group."""
        self.ports, self._group = [port], group

    def use_daemons(self, port: SessionSocket, clients: ResolverClients) -> None:
        """Sends all packets to daemons, and receives from them."""
        self.ports, self._clients = [port], clients

    def reaches(self, source: SourceAdvert) -> bool:
        """Returns whether contexts on this path can reach a source: a loopback address stays on its host."""
        endpoint = source.session.endpoint
        return endpoint is not None and ipaddress.ip_address(endpoint.host).is_loopback == self._loopback

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Reads a packet of any content."""
        inner = packet if self._clients is None else self._clients.receive(packet, address, now_ns)
        if inner is not None and self._seal is not None:
            inner = self._seal.open(inner)
        if inner is not None:
            self.resolution.receive(inner, address, now_ns)

    def turn(self, now_ns: int) -> int | None:
        """Does the work that is due; returns when to call again, in ns of the monotonic clock."""
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
        """Announces the end of all offers."""
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
    """All paths of a context. Runs on the driver, except where a text says not."""

    def __init__(
        self,
        domain: str,
        who: Identity,
        options: tuple[ContextOptions, SourceOptions, ReceiverOptions],
        seal: Seal | None,
        hurry: Callable[[], None],
    ) -> None:
        """Opens the paths that the options ask for; by default there is no path.

        Args:
            domain: the bus domain.
            who: the identity of the context.
            options: the options of the context, and those of its sources and receivers without overrides.
            seal: the seal of the domain; None without a key.
            hurry: makes the event loop call `turn` soon; any thread may call it.

        Raises:
            ConfigError, ipcbus.TransportError: a socket cannot be opened.
        """
        self.paths: list[ResolutionPath] = []
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
            for path in self.paths:
                for port in path.ports:
                    port.close()
            raise

    def _open_multicast(
        self, domain: str, me: Who, options: tuple[ContextOptions, SourceOptions, ReceiverOptions], seal: Seal | None
    ) -> None:
        context = options[0]
        option = "resolver_multicast_interface"
        interface = network_interface.find(context.resolver_multicast_interface, option)
        path = self._add_path(domain, me, settings_of(*options, check_address=True), interface, seal)
        sends = datagram_socket.unicast(interface, Ports(0, 0, ephemeral=True, cure=option), Buffers())
        sends.send_multicast_from(interface, context.resolver_multicast_ttl)
        group, number = context.resolver_multicast_address, context.resolver_multicast_port
        buffers = Buffers(
            receive=context.resolver_multicast_receiver_socket_buffer,
            receive_option="resolver_multicast_receiver_socket_buffer",
        )
        path.use_group(SessionSocket(sends, default_handler=path), sends.peer(group, number))
        path.ports.append(
            SessionSocket(datagram_socket.group_member(group, number, interface, buffers), default_handler=path)
        )

    def _open_unicast(
        self, domain: str, me: Who, options: tuple[ContextOptions, SourceOptions, ReceiverOptions], seal: Seal | None
    ) -> None:
        context = options[0]
        interface = network_interface.find(context.resolver_unicast_interface, "resolver_unicast_interface")
        path = self._add_path(domain, me, settings_of(*options, check_address=False), interface, seal)
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
        path.use_daemons(SessionSocket(socket, default_handler=path), clients)

    def _add_path(
        self, domain: str, me: Who, terms: ResolutionSettings, interface: Interface, seal: Seal | None
    ) -> ResolutionPath:
        resolution = NetworkResolution(terms, me, domain, SystemRandom(), time.monotonic_ns())
        path = ResolutionPath(resolution, interface, seal)
        self.paths.append(path)
        return path

    # ------------------------------------------------------------------ what the context offers and looks for

    def offer(self, source: SourceAdvert) -> None:
        """Offers a topic; any thread may call this."""
        for path in self.paths:
            if path.reaches(source):
                self._later(functools.partial(path.resolution.offer, source))

    def withdraw(self, source: SourceAdvert) -> None:
        """Withdraws the offer of a topic; any thread may call this."""
        for path in self.paths:
            if path.reaches(source):
                self._later(functools.partial(path.resolution.withdraw, source))

    def offers(self, topic: str) -> bool:
        """Returns whether other hosts may have receivers of a topic: it is advertised, and they need not have asked."""
        return any(path.resolution.offers(topic) for path in self.paths)

    def want(self, name: str, *, wildcard: bool) -> None:
        """Looks for a topic, or for all topics that match a pattern, from now on."""
        for path in self.paths:
            self._later(functools.partial(path.resolution.want_pattern if wildcard else path.resolution.want, name))

    def unwant(self, name: str, *, wildcard: bool) -> None:
        """Stops looking for a topic or a pattern."""
        for path in self.paths:
            unwant = path.resolution.unwant_pattern if wildcard else path.resolution.unwant
            self._later(lambda _, unwant=unwant: unwant(name))  # type: ignore[misc]

    def _later(self, step: Callable[[int], None]) -> None:
        self._todo.append(step)
        self._hurry()

    # ------------------------------------------------------------------ driving

    def turn(self, now_ns: int) -> int:
        """Does the work that is due; returns when to call again, in ns of the monotonic clock."""
        while self._todo:
            self._todo.popleft()(now_ns)
        return min((due for path in self.paths if (due := path.turn(now_ns)) is not None), default=FOREVER_NS)

    @property
    def changes(self) -> int:
        """A number that increases when the offers of other contexts change."""
        return sum(path.resolution.changes for path in self.paths)

    def sources(self) -> Offers:
        """Returns the offers of other contexts."""
        found: Offers = {}
        for path in self.paths:
            for session, topics in path.resolution.sources().items():
                found.setdefault(session, {}).update(topics)
        return found

    def contexts(self) -> dict[int, int]:
        """Returns the process ids of contexts with offers, by context id."""
        found: dict[int, int] = {}
        for path in self.paths:
            found |= path.resolution.contexts()
        return found

    def counters(self) -> dict[str, int]:
        """Returns the counters of all paths together, by their names in the statistics; empty without a path."""
        found: dict[str, int] = {}
        for path in self.paths:
            counts = dataclasses.asdict(path.resolution.counts)
            sockets = [port.socket.counts for port in path.ports]
            counts["tr_dgrams_send_failed"] = sum(
                each.send_blocked + each.send_refused + each.send_too_large for each in sockets
            )
            found = {name: found.get(name, 0) + value for name, value in counts.items()}
        return found

    def close(self) -> None:
        """Announces the end of all offers on all paths."""
        self._todo.clear()
        for path in self.paths:
            path.close(time.monotonic_ns())


def settings_of(
    context: ContextOptions, source: SourceOptions, receiver: ReceiverOptions, *, check_address: bool
) -> ResolutionSettings:
    """Returns the settings of resolution from the options of a context."""
    values: dict[str, int] = {}
    for options in (context, source, receiver):
        for name, row in options.rows.items():
            own = name.removeprefix("resolver_")
            if own in ResolutionSettings.__dataclass_fields__ and own != name:
                values[own] = int(options[name]) * {"ms": _MS_NS, "s": _SECOND_NS}.get(row.unit, 1)
    values["datagram_max_size"] = min(values["datagram_max_size"], _UDP_MAX)
    return ResolutionSettings(check_address=check_address, **values)  # type: ignore[arg-type]
