"""The sockets that the sessions over UDP of a context receive from: several sessions share one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.errors import ConfigError
from ipcbus.transport.udp import datagram_socket, network_interface
from ipcbus.transport.udp.loss_injection import from_environment
from ipcbus.transport.udp.session_socket import SessionSocket
from ipcbus.transport.udp.udp_plan import receiver_buffers, receiver_ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import SystemRandom

    from ipcbus.config import ContextOptions, ReceiverOptions
    from ipcbus.transport.udp.datagram_socket import DatagramSocket
    from ipcbus.transport.udp.sealing import Seal
    from ipcbus.transport.udp.udp_plan import Kind


class SharedPorts:
    """The sockets of one context, each opened for the first session that needs it, and closed after the last one."""

    def __init__(
        self,
        options: ContextOptions,
        seal: Seal | None,
        random: SystemRandom,
        opened: Callable[[SessionSocket], None],
        release: Callable[[SessionSocket], None],
    ) -> None:
        """Opens nothing yet.

        Args:
            options: the options of the context.
            seal: opens what other contexts have sealed; None without a key.
            random: decides which datagrams a test loses.
            opened: called with each socket that was opened.
            release: closes a socket that no session uses any more.
        """
        self._options, self._seal, self._random = options, seal, random
        self._opened, self._release = opened, release
        self._ports: dict[tuple[str, ...], SessionSocket] = {}

    def own(self, kind: Kind, host: str, options: ReceiverOptions) -> SessionSocket:
        """Returns the socket for unicast to this context.

        Args:
            kind: the transport.
            host: the address of the source, whose family the socket has.
            options: the options of the first receiver of the session.

        Raises:
            ConfigError, ipcbus.TransportError: no interface is set, or the socket cannot be opened.
        """
        of_multicast = kind == "lbtrm"
        option = "resolver_multicast_interface" if of_multicast else "transport_lbtru_interface"
        text = self._options.resolver_multicast_interface if of_multicast else options.transport_lbtru_interface
        key = (kind, text, "6" if ":" in host else "4")
        if key not in self._ports:
            if not text:
                raise ConfigError(
                    "multicast is off in this context: set resolver_multicast_interface (scope context) to an address "
                    "of this host"
                )
            loss = from_environment(kind, "receiver", self._random)
            buffers = receiver_buffers(kind, self._options)
            ports = receiver_ports(kind, options)
            self._share(
                key,
                datagram_socket.unicast(network_interface.find(text, option), ports, buffers, loss),
            )
        return self._ports[key]

    def group(self, group: str, port: int) -> SessionSocket:
        """Returns the socket for a multicast group.

        Raises:
            ConfigError, ipcbus.TransportError: as `own`.
        """
        key = (group, str(port))
        if key not in self._ports:
            interface = network_interface.find(
                self._options.resolver_multicast_interface, "resolver_multicast_interface"
            )
            loss = from_environment("lbtrm", "receiver", self._random)
            buffers = receiver_buffers("lbtrm", self._options)
            self._share(key, datagram_socket.group_member(group, port, interface, buffers, loss))
        return self._ports[key]

    def _share(self, key: tuple[str, ...], socket: DatagramSocket) -> None:
        def unused(port: SessionSocket) -> None:
            self._ports.pop(key, None)
            self._release(port)

        self._ports[key] = port = SessionSocket(socket, self._seal, on_unused=unused)
        self._opened(port)
