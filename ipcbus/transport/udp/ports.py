"""The port of a socket over UDP or TCP: the first free one of a range."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipcbus.errors import TransportError

if TYPE_CHECKING:
    from ipcbus.transport.udp.network_interface import Interface

_NAMES: Final = {socket.SOCK_DGRAM: "UDP", socket.SOCK_STREAM: "TCP"}


@dataclass(frozen=True, slots=True)
class Ports:
    """A range of ports, of which a socket takes the first free one.

    Attributes:
        low: the first; 0 leaves the choice to the system.
        high: the last.
        ephemeral: whether the system chooses a port when the range has no free one.
        cure: the options to change when there is no free port, for the error.
    """

    low: int
    high: int
    ephemeral: bool
    cure: str


def new_socket(family: socket.AddressFamily, kind: socket.SocketKind) -> socket.socket:
    """Returns a socket that never blocks and that child processes do not inherit.

    Raises:
        TransportError: the system makes none.
    """
    try:
        return socket.socket(family, kind | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise TransportError(
            f"no {_NAMES[kind]} socket can be made ({error.strerror}): check the limit of open files (ulimit -n), and "
            f"that the host has {'IPv6' if family == socket.AF_INET6 else 'IPv4'}"
        ) from error


def bind_first(sock: socket.socket, interface: Interface, ports: Ports) -> None:
    """Binds to the first port that is free.

    Raises:
        TransportError: no port is free, or the system refuses the interface.
    """
    name = _NAMES[sock.type]
    for port in [*range(ports.low, ports.high + 1), *([0] if ports.ephemeral else [])]:
        address = (interface.host, port)
        try:
            if interface.family == socket.AF_INET6:
                sock.bind((*address, 0, interface.index if interface.host.startswith("fe80:") else 0))
            else:
                sock.bind(address)
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise TransportError(
                    f"{name} port {port} of interface {interface.host} cannot be taken ({error.strerror}): "
                    f"check the interface, and change {ports.cure}"
                ) from error
    many = f"ports {ports.low} to {ports.high} are" if ports.low != ports.high else f"port {ports.low} is"
    raise TransportError(f"{name} {many} in use on interface {interface.host}: free one, or change {ports.cure}")
