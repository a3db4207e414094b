"""One UDP socket: bound, sized and checked; what the kernel refuses is counted, never raised.

An address is the tuple that Python's sockets have: `(host, port)`, for IPv6 `(host, port, flow, scope)`. It may be
hashed, and is equal for equal senders.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ipcbus.errors import TransportError
from ipcbus.transport.udp.mmsg import Batched

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.transport.udp.loss_injection import LossInjection
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.network_interface import Interface

log = logging.getLogger("ipcbus")

PAYLOAD_MAX: Final = 65507
"""Longest datagram that UDP over IPv4 carries."""

# Of Linux's asm/socket.h; Python has no names for them.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_MEMINFO = 32, 33, 55
_MEMINFO: Final = struct.Struct("9I")
_MEMINFO_DROPS: Final = 8


@dataclass(frozen=True, slots=True)
class Buffers:
    """Sizes of a socket's buffers in bytes; 0 leaves one as the system has it.

    Attributes:
        receive: for what has come and was not read yet.
        send: for what was sent and is not on the wire yet.
        receive_option: name of the option that `receive` is from, for the warning.
        send_option: name of the option that `send` is from.
    """

    receive: int = 0
    send: int = 0
    receive_option: str = "receiver_socket_buffer"
    send_option: str = "source_socket_buffer"


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of which a socket takes the first free one.

    Attributes:
        low: the first; 0 leaves the choice to the system.
        high: the last.
        ephemeral: whether the system chooses one where none of them is free.
        cure: the options to change where none is free, for the error.
    """

    low: int
    high: int
    ephemeral: bool
    cure: str


@dataclass(slots=True)
class DatagramCounts:
    """What a socket counts.

    Attributes:
        dgrams_sent: datagrams that the kernel took.
        bytes_sent: their bytes.
        dgrams_rcved: datagrams that were read, with those of `dgrams_lost`.
        bytes_rcved: their bytes.
        send_blocked: datagrams for which there was no room (EAGAIN, ENOBUFS).
        send_refused: errors of any other kind: no route, nobody there.
        send_too_large: datagrams longer than UDP carries.
        dgrams_truncated: datagrams that came and were too long.
        dgrams_lost: thrown away on purpose: artificial loss.
        dgrams_overrun: thrown away by the kernel, because the receive buffer was full.
    """

    dgrams_sent: int = 0
    bytes_sent: int = 0
    dgrams_rcved: int = 0
    bytes_rcved: int = 0
    send_blocked: int = 0
    send_refused: int = 0
    send_too_large: int = 0
    dgrams_truncated: int = 0
    dgrams_lost: int = 0
    dgrams_overrun: int = 0


_open: set[socket.socket] = set()
"""The garbage collector closes sockets that nobody refers to before their context can say goodbye through them."""


class DatagramSocket:
    """A UDP socket that never blocks; make it with `unicast` or `group_member`."""

    def __init__(self, sock: socket.socket, scope: int, buffers: Buffers, loss: LossInjection | None) -> None:
        """Takes a bound socket.

        Args:
            sock: the socket, which is closed with this.
            scope: index of its interface.
            buffers: sizes to give it.
            loss: artificial loss of what arrives.
        """
        self._socket = sock
        self._scope = scope
        self._loss = loss
        _size(sock, "receive", buffers.receive, buffers.receive_option)
        _size(sock, "send", buffers.send, buffers.send_option)
        self._batched = Batched(sock.fileno(), sock.family == socket.AF_INET6, PAYLOAD_MAX + 1)
        self.address: Address = sock.getsockname()
        """What it is bound to."""
        _open.add(sock)

    def peer(self, host: str, port: int) -> Address:
        """Returns the address of somebody else as this socket writes it: equal to that of what comes from there.

        Args:
            host: numeric, of the same family.
            port: its port.
        """
        if self._socket.family != socket.AF_INET6:
            return (host, port)
        canonical = str(ipaddress.IPv6Address(host.partition("%")[0]))
        return (canonical, port, 0, self._scope if ipaddress.IPv6Address(canonical).is_link_local else 0)

    def fileno(self) -> int:
        """Returns its descriptor, to wait for; -1 after the end."""
        return self._socket.fileno()

    def receive(self, limit: int) -> list[tuple[bytes, Address]]:
        """What has come: at most so many datagrams, each with its sender."""
        found = self._batched.receive(limit)
        if self._loss is not None:
            return [each for each in found if not self._loss.drops_next()]
        return found

    def send(self, packet: bytes, to: Address) -> bool:
        """Sends a datagram; says whether the kernel took it."""
        return self._batched.send(packet, to) == 1

    def send_pairs(self, pairs: Iterable[tuple[bytes, Address]]) -> int:
        """Sends each datagram to its address; says how many the kernel took."""
        return self._batched.send_pairs(pairs)

    def send_to_all(self, packet: bytes, addresses: Iterable[Address]) -> int:
        """Sends a datagram to each of the addresses; says how many the kernel took."""
        return self._batched.send_to_all(packet, addresses)

    def send_multicast_from(self, interface: Interface, ttl: int) -> None:
        """What it sends to groups leaves by this interface, through so many routers, and is heard on this host too.

        Args:
            interface: of the same family as the socket.
            ttl: 0 stays on the host.
        """
        if self._socket.family == socket.AF_INET6:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, ttl)
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        else:
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _membership("0.0.0.0", interface))
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)

    @property
    def counts(self) -> DatagramCounts:
        """Everything counted so far."""
        batched = self._batched
        return DatagramCounts(
            dgrams_sent=batched.sent,
            bytes_sent=batched.sent_bytes,
            dgrams_rcved=batched.rcved,
            bytes_rcved=batched.rcved_bytes,
            send_blocked=batched.blocked,
            send_refused=batched.refused,
            send_too_large=batched.too_large,
            dgrams_truncated=batched.truncated,
            dgrams_lost=self._loss.lost if self._loss is not None else 0,
            dgrams_overrun=self._overrun(),
        )

    def close(self) -> None:
        """Gives the port back; what is sent afterwards is dropped. Does nothing the second time."""
        self._batched.close()
        self._socket.close()
        _open.discard(self._socket)

    def _overrun(self) -> int:
        try:
            found = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        except OSError:  # closed, or a kernel before 4.12
            return 0
        return int(_MEMINFO.unpack(found)[_MEMINFO_DROPS]) if len(found) == _MEMINFO.size else 0


def unicast(interface: Interface, ports: Ports, buffers: Buffers, loss: LossInjection | None = None) -> DatagramSocket:
    """Makes a socket of one port, which it has for itself.

    Args:
        interface: what it is bound to.
        ports: which it may take.
        buffers: sizes.
        loss: artificial loss.

    Raises:
        TransportError: no port is free, or the system refuses the interface.
    """
    sock = _new(interface.family)
    try:
        _bind_first(sock, interface, ports)
        return DatagramSocket(sock, interface.index, buffers, loss)
    except BaseException:
        sock.close()
        raise


def group_member(
    group: str, port: int, interface: Interface, buffers: Buffers, loss: LossInjection | None = None
) -> DatagramSocket:
    """Makes a socket that hears a multicast group, beside others of this host that do.

    Args:
        group: its numeric address, of the family of the interface.
        port: its port.
        interface: by which the group is joined.
        buffers: sizes.
        loss: artificial loss.

    Raises:
        TransportError: the system refuses the port or the group.
    """
    sock = _new(interface.family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if interface.family == socket.AF_INET6:
                sock.bind((group, port, 0, interface.index))
                member = socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", interface.index)
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
            else:
                # Bound to the group, so that what is for another group of the same port is not heard.
                sock.bind((group, port))
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _membership(group, interface))
                # Linux gives a socket what others have joined, unless it is told not to.
                sock.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        except OSError as error:
            raise TransportError(
                f"multicast group {group} port {port} cannot be joined on interface {interface.host} "
                f"({error.strerror}): check that the interface is up and can do multicast, and set "
                "resolver_multicast_interface (scope context)"
            ) from error
        return DatagramSocket(sock, interface.index, buffers, loss)
    except BaseException:
        sock.close()
        raise


_IP_MULTICAST_ALL: Final = 49


def _new(family: socket.AddressFamily) -> socket.socket:
    """Returns a socket that never blocks and that no child process gets."""
    try:
        sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise TransportError(
            f"no UDP socket can be made ({error.strerror}): check the limit of open files (ulimit -n), and that the "
            f"host has {'IPv6' if family == socket.AF_INET6 else 'IPv4'}"
        ) from error
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return sock


def _bind_first(sock: socket.socket, interface: Interface, ports: Ports) -> None:
    """Binds to the first port that is free."""
    choices = [*range(ports.low, ports.high + 1), *([0] if ports.ephemeral else [])]
    for port in choices:
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
                    f"UDP port {port} of interface {interface.host} cannot be taken ({error.strerror}): "
                    f"check the interface, and change {ports.cure}"
                ) from error
    many = f"ports {ports.low} to {ports.high} are" if ports.low != ports.high else f"port {ports.low} is"
    raise TransportError(f"UDP {many} in use on interface {interface.host}: free one, or change {ports.cure}")


def _membership(group: str, interface: Interface) -> bytes:
    """Linux's struct ip_mreqn."""
    return socket.inet_aton(group) + socket.inet_aton(interface.host) + struct.pack("@i", interface.index)


_reported: set[tuple[str, int]] = set()


def _size(sock: socket.socket, which: Literal["receive", "send"], size: int, option: str) -> None:
    """Sizes a buffer, and reports once where the kernel gives less: it does so in silence."""
    if not size:
        return
    plain, force, setting = (
        (socket.SO_RCVBUF, _SO_RCVBUFFORCE, "net.core.rmem_max")
        if which == "receive"
        else (socket.SO_SNDBUF, _SO_SNDBUFFORCE, "net.core.wmem_max")
    )
    try:
        # Above the limit, for who may (CAP_NET_ADMIN).
        sock.setsockopt(socket.SOL_SOCKET, force, size)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, plain, size)
    # The kernel doubles what is asked for, for its own, and answers with that.
    given = sock.getsockopt(socket.SOL_SOCKET, plain) // 2
    if given < size and (setting, size) not in _reported:
        _reported.add((setting, size))
        log.warning(
            "option %s = %d: the kernel gives this process %d bytes, and a burst above that is lost and has to be sent "
            "again. Allow more with: sysctl -w %s=%d",
            option, size, given, setting, size,
        )  # fmt: skip
