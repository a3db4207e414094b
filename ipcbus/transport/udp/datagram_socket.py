"""A UDP socket with its port, buffers and counters; refusals of the kernel are counted, never raised.

An address is the tuple that Python's sockets have: `(host, port)`, for IPv6 `(host, port, flow, scope)`. It may be
hashed; the addresses of one sender are equal.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ipcbus.errors import TransportError
from ipcbus.transport.udp.mmsg import Batched
from ipcbus.transport.udp.ports import bind_first, new_socket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.transport.udp.loss_injection import LossInjection
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.network_interface import Interface
    from ipcbus.transport.udp.ports import Ports

log = logging.getLogger("ipcbus")

PAYLOAD_MAX: Final = 65507
"""Longest datagram that UDP over IPv4 carries."""

_READ_MAX: Final = 65_536
"""More than the longest read: datagrams of one sender that the system has joined are as long as one over IPv6."""

# Of Linux's asm/socket.h; Python has no names for them.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_MEMINFO = 32, 33, 55
_MEMINFO: Final = struct.Struct("9I")
_MEMINFO_DROPS: Final = 8


@dataclass(frozen=True, slots=True)
class Buffers:
    """The sizes of a socket's buffers in bytes; 0 keeps the size that the system gives.

    Attributes:
        receive: the buffer of datagrams that have come and were not read yet.
        send: the buffer of datagrams that are not on the wire yet.
        receive_option: the name of the option for `receive`, for the warning.
        send_option: the name of the option for `send`.
    """

    receive: int = 0
    send: int = 0
    receive_option: str = "receiver_socket_buffer"
    send_option: str = "source_socket_buffer"


@dataclass(slots=True)
class DatagramCounts:
    """The counters of a socket.

    Attributes:
        dgrams_sent: datagrams that the kernel accepted.
        bytes_sent: the bytes of these datagrams.
        dgrams_rcved: datagrams that were read, with those of `dgrams_lost`.
        bytes_rcved: the bytes of these datagrams.
        send_blocked: times that a datagram found no room in a buffer (EAGAIN, ENOBUFS).
        send_refused: datagrams that ended with another error: no route, a closed port.
        send_too_large: datagrams longer than UDP carries.
        dgrams_truncated: datagrams that came and were too long.
        dgrams_lost: datagrams that loss injection dropped.
        dgrams_overrun: datagrams that the kernel dropped, because the receive buffer was full.
        tls_failed: connections over TCP that ended because TLS failed.
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
    tls_failed: int = 0


_open: set[socket.socket] = set()
"""All open sockets: without a reference the garbage collector could close one before its context has left sessions."""


class DatagramSocket:
    """A UDP socket that never blocks; make it with `unicast` or `group_member`."""

    def __init__(self, sock: socket.socket, scope: int, buffers: Buffers, loss: LossInjection | None) -> None:
        """Takes a bound socket.

        Args:
            sock: the socket; `close` closes it.
            scope: the index of its interface.
            buffers: the sizes of its buffers.
            loss: loss injection for datagrams that arrive.
        """
        self._socket = sock
        self._scope = scope
        self._loss = loss
        _set_buffer_size(sock, "receive", buffers.receive, buffers.receive_option)
        _set_buffer_size(sock, "send", buffers.send, buffers.send_option)
        self.batched = Batched(sock.fileno(), sock.family == socket.AF_INET6, _READ_MAX, joins=True)
        """Its system calls."""
        self.receive_buffer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        """The bytes of datagrams that it can hold, by the system's own count."""
        self.address: Address = sock.getsockname()
        """The address that it is bound to."""
        _open.add(sock)

    def peer(self, host: str, port: int) -> Address:
        """Returns the address of a peer, equal to the sender address of its datagrams.

        Args:
            host: the numeric host address, of the family of this socket.
            port: the port.
        """
        if self._socket.family != socket.AF_INET6:
            return (host, port)
        canonical = str(ipaddress.IPv6Address(host.partition("%")[0]))
        return (canonical, port, 0, self._scope if ipaddress.IPv6Address(canonical).is_link_local else 0)

    def fileno(self) -> int:
        """Returns its descriptor, to wait for datagrams; -1 after `close`."""
        return self._socket.fileno()

    @property
    def arrivals(self) -> Batched | None:
        """What reads datagrams without making objects of them; None with loss injection, which looks at each one."""
        return self.batched if self._loss is None else None

    @property
    def longest_read(self) -> int:
        """The bytes of the longest of the last reads; the system may have joined several datagrams to one read."""
        return self.batched.longest

    def receive(self, limit: int) -> list[tuple[bytes, Address]]:
        """Returns datagrams that have come, each with its sender; reads on until there are `limit`."""
        found = self.batched.receive(limit)
        if self._loss is not None:
            return [each for each in found if not self._loss.drops_next()]
        return found

    def send(self, packet: bytes, to: Address) -> bool:
        """Sends a datagram; returns whether the kernel accepted it."""
        return self.batched.send(packet, to) == 1

    def send_pairs(self, pairs: Iterable[tuple[bytes, Address]]) -> tuple[tuple[bytes, Address], ...]:
        """Sends each datagram to its address, until one finds no room; returns that one and those after it."""
        return self.batched.send_pairs(pairs)

    def send_to_all(self, packet: bytes, addresses: Iterable[Address]) -> int:
        """Sends a datagram to each of the addresses; returns how many the kernel accepted."""
        return self.batched.send_to_all(packet, addresses)

    def send_multicast_from(self, interface: Interface, ttl: int) -> None:
        """Sets the interface for multicast; this host gets the datagrams too.

        Args:
            interface: the interface that they leave by, of the family of the socket.
            ttl: the largest number of routers that they may pass; 0 keeps them on the host.
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
        """The present counters."""
        batched = self.batched
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
        """Closes the socket; datagrams that are sent afterwards are dropped. May be called again."""
        self.batched.close()
        self._socket.close()
        _open.discard(self._socket)

    def _overrun(self) -> int:
        try:
            found = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        except OSError:  # closed, or a kernel before 4.12
            return 0
        return int(_MEMINFO.unpack(found)[_MEMINFO_DROPS]) if len(found) == _MEMINFO.size else 0


def unicast(interface: Interface, ports: Ports, buffers: Buffers, loss: LossInjection | None = None) -> DatagramSocket:
    """Makes a socket with a port of its own.

    Args:
        interface: the interface to bind to.
        ports: the ports to try.
        buffers: the sizes of its buffers.
        loss: loss injection, for tests.

    Raises:
        TransportError: no port is free, or the system refuses the interface.
    """
    sock = _new(interface.family)
    try:
        bind_first(sock, interface, ports)
        return DatagramSocket(sock, interface.index, buffers, loss)
    except BaseException:
        sock.close()
        raise


def group_member(
    group: str, port: int, interface: Interface, buffers: Buffers, loss: LossInjection | None = None
) -> DatagramSocket:
    """Makes a socket that receives from a multicast group; other sockets of this host may do so too.

    Args:
        group: the numeric address of the group, of the family of the interface.
        port: the port of the group.
        interface: the interface to join the group on.
        buffers: the sizes of its buffers.
        loss: loss injection, for tests.

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
                # Bound to the group, so that datagrams for another group with this port do not come here.
                sock.bind((group, port))
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _membership(group, interface))
                # By default Linux gives a socket the datagrams of all groups that any socket has joined.
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
    """Returns a socket that never blocks and that child processes do not inherit."""
    sock = new_socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return sock


def _membership(group: str, interface: Interface) -> bytes:
    """Returns Linux's struct ip_mreqn."""
    return socket.inet_aton(group) + socket.inet_aton(interface.host) + struct.pack("@i", interface.index)


_reported: set[tuple[str, int]] = set()


def _set_buffer_size(sock: socket.socket, which: Literal["receive", "send"], size: int, option: str) -> None:
    """Sets the size of a buffer; logs once when the kernel gives less, which it does without an error."""
    if not size:
        return
    plain, force, setting = (
        (socket.SO_RCVBUF, _SO_RCVBUFFORCE, "net.core.rmem_max")
        if which == "receive"
        else (socket.SO_SNDBUF, _SO_SNDBUFFORCE, "net.core.wmem_max")
    )
    try:
        # Above the limit, for processes that may (CAP_NET_ADMIN).
        sock.setsockopt(socket.SOL_SOCKET, force, size)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, plain, size)
    # The kernel doubles the size for its own use, and returns the double.
    given = sock.getsockopt(socket.SOL_SOCKET, plain) // 2
    if given < size and (setting, size) not in _reported:
        _reported.add((setting, size))
        log.warning(
            "option %s = %d: the kernel gives this process %d bytes, and a burst above that is lost and has to be sent "
            "again. Allow more with: sysctl -w %s=%d",
            option, size, given, setting, size,
        )  # fmt: skip
