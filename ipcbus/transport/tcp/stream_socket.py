"""Connections over TCP that carry packets, each behind its length; refused connections are counted, never raised.

The source has one socket that listens, and a connection for each client; a receiver has one connection. An empty packet
stands for the end of a connection: one that comes says that it has ended, one that is sent ends it.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import itertools
import os
import select
import socket
import struct
import threading
import time
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ipcbus.errors import TransportError
from ipcbus.transport.tcp.inflow import READ_BYTES, Inflow
from ipcbus.transport.udp.datagram_socket import DatagramCounts
from ipcbus.transport.udp.network_interface import is_loopback
from ipcbus.transport.udp.ports import bind_first, new_socket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ipcbus.transport.tcp.outflow import RecordStream
    from ipcbus.transport.tcp.tls import TlsStream
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.network_interface import Interface
    from ipcbus.transport.udp.ports import Ports
    from ringbuf.ring import RingWriter

_LENGTH: Final = struct.Struct("!I")
_PARTS: Final = 128
"""Most pieces of memory in one system call."""
_READS: Final = 4
"""Most reads of a connection in one go, where all that comes is relayed."""
_ACCEPT_MAX: Final = 256
"""Most connections to accept in one go: a flood of them must not keep out what has come from others."""
_STRANGERS_MAX: Final = 64
"""Most connections from which no whole packet has come; a further one ends the oldest of them."""
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_open: set[StreamSocket] = set()
"""All open sockets: without a reference the garbage collector could close one before its context has left sessions."""


_ON_ONE_HOST: Final = b"reno"
"""The congestion control of connections within one host, which every process may choose.

BBR, the default of many systems, sends by a timer at a measured rate: on loopback 64 KiB take three times as long then.
"""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of the connections of a socket.

    Attributes:
        frame_max: the longest packet that may come; a longer one ends its connection.
        connections_max: the largest number of connections; others are ended at once.
        receive_buffer: SO_RCVBUF; 0 leaves it to the system.
        send_buffer: SO_SNDBUF; 0 leaves it to the system.
        nodelay: TCP_NODELAY: whether small packets go at once.
        backlog: the number of connections that may wait to be accepted.
        reuse: SO_REUSEADDR: whether the port may be taken while connections of an earlier process linger there.
    """

    frame_max: int
    connections_max: int = 1
    receive_buffer: int = 0
    send_buffer: int = 0
    nodelay: bool = True
    backlog: int = 1024
    reuse: bool = False


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    address: Address
    inflow: Inflow
    tls: TlsStream | None
    connecting: bool = False
    ending: bool = False
    broken: bool = False
    mask: int = 0
    unsent: int = 0
    out: collections.deque[bytes | memoryview] = field(default_factory=collections.deque)

    @property
    def is_clear(self) -> bool:
        """Whether it has sent all that it was given, and takes more as it is."""
        return self.tls is None and not (self.out or self.connecting or self.ending or self.broken)


class StreamSocket:
    """The connections of one session; any thread may send, only the driver receives."""

    def __init__(
        self,
        listener: socket.socket | None,
        local: Interface,
        options: StreamOptions,
        new_tls: Callable[[], TlsStream] | None = None,
    ) -> None:
        """Takes a socket that listens; `close` closes it.

        Args:
            listener: the socket; None for a socket that connects by itself when something is sent.
            local: the interface.
            options: the options of the connections.
            new_tls: makes the TLS of a new connection; None for connections without TLS.
        """
        self._listener, self._local, self._options = listener, local, options
        self._new_tls: Callable[[], TlsStream | None] = new_tls or (lambda: None)
        self.has_tls = new_tls is not None
        """Whether the connections use TLS, which may hold what has come without showing it."""
        self._lock = threading.Lock()
        self._epoll = select.epoll()
        self._connections: dict[Address, _Connection] = {}
        self._of_number: dict[int, _Connection] = {}
        self._strangers: dict[Address, int] = {}
        """Connections from which no whole packet has come, with the time at which they were accepted."""
        self._failures: list[tuple[Address, str]] = []
        self._ended: list[Address] = []
        self.is_paused = False
        """Whether nothing is read from the connections."""
        self.relay: Callable[[], Callable[[Inflow], int] | None] = lambda: None
        """Takes datagrams that have come, before all others; returns how many. Weak, as it refers to the context."""
        self._only: _Connection | None = None
        """The connection of a receiver, once it is made."""
        self._stream: Callable[[], RecordStream | None] = lambda: None
        """What sends records of a source's ring over the connections; weak, as it refers to the context."""
        self.may_have_more = True
        """Whether more may wait than the last `receive` has read."""
        self.counts = DatagramCounts()
        self.address: Address = (local.host, 0) if listener is None else listener.getsockname()
        """The address that it is bound to."""
        self._spare = os.open(os.devnull, os.O_RDONLY) if listener is not None else None
        if listener is not None:
            self._epoll.register(listener.fileno(), select.EPOLLIN)
        _open.add(self)

    def peer(self, host: str, port: int) -> Address:
        """Returns the address of a peer, equal to the sender address of its packets."""
        if self._local.family != socket.AF_INET6:
            return (host, port)
        return (host, port, 0, self._local.index if host.startswith("fe80:") else 0)

    def fileno(self) -> int:
        """Returns a descriptor to wait for packets, room and connections; -1 after `close`."""
        return -1 if self._epoll.closed else self._epoll.fileno()

    # ------------------------------------------------------------------ receiving

    def receive(self) -> tuple[list[tuple[bytes, Address]], bool]:
        """Returns packets that have come, each with its sender, and whether a connection is new or has room again."""
        found: list[tuple[bytes, Address]] = []
        has_room = False
        with self._lock:
            if self._epoll.closed:
                return found, False
            self.may_have_more = True
            if self._only is not None and self._only.mask == select.EPOLLIN:
                # There is nothing to ask for: a read says by itself that nothing has come.
                self._read(self._only, found)
                events_of = []
            else:
                events_of = self._epoll.poll(0)
            for number, events in events_of:
                connection = self._of_number.get(number)
                if connection is None:
                    self._accept(found)
                    has_room = True
                    continue
                if connection.connecting:
                    self._finish_connecting(connection, events)
                elif events & select.EPOLLOUT:
                    self._flush(connection)
                    has_room = True
                if events & ~select.EPOLLOUT and connection.address in self._connections:
                    self._read(connection, found)
            ended, self._ended = self._ended, []
        found += [(b"", address) for address in ended]
        return found, has_room

    def _accept(self, found: list[tuple[bytes, Address]]) -> None:
        for _ in range(_ACCEPT_MAX):
            if self._listener is None:
                return
            try:
                sock, address = self._listener.accept()
            except OSError as error:  # no peer waits any more, or this process has no descriptor left
                if error.errno in _NO_DESCRIPTOR and self._refuse_next(self._listener):
                    continue
                return
            if len(self._connections) >= self._options.connections_max:
                self.counts.send_refused += 1
                sock.close()
                continue
            self._add(_Connection(sock, address, Inflow(self._options.frame_max), self._new_tls()))
            self._strangers[address] = time.monotonic_ns()
            if len(self._strangers) > _STRANGERS_MAX:
                self._end_stranger(found)

    def _end_stranger(self, found: list[tuple[bytes, Address]]) -> None:
        """Ends the connection that is silent for longest, unless its first packet waits unread: many may come."""
        oldest = next(iter(self._strangers))
        self._read(self._connections[oldest], found)
        if oldest in self._strangers:
            self._end(self._connections[oldest])

    def end_strangers(self, now_ns: int, patience_ns: int) -> int | None:
        """Ends connections from which no whole packet has come for too long; returns when to call again."""
        with self._lock:
            for address, since_ns in list(self._strangers.items()):
                if now_ns - since_ns < patience_ns:
                    return since_ns + patience_ns
                connection = self._connections[address]
                if connection.tls is not None and not connection.tls.failure:
                    connection.tls.failure = "it has not finished the handshake in time"
                    self._note_failure(connection, connection.tls.failure)
                self._drop(connection)
        return None

    def _refuse_next(self, listener: socket.socket) -> bool:
        """Ends the next connection, with the spare descriptor: while one waits, the listener stays ready."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        try:
            listener.accept()[0].close()
            self.counts.send_refused += 1
        except OSError:  # without a descriptor, the kernel does not say that no peer waits
            return False
        finally:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY)
        return True

    def _add(self, connection: _Connection) -> None:
        sock, options = connection.socket, self._options
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, options.nodelay)
        if _is_local(connection.address[0], self._local.host):
            with contextlib.suppress(OSError):  # a system without it
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _ON_ONE_HOST)
        # Of a socket that listens, connections inherit the buffers.
        self._connections[connection.address] = connection
        self._of_number[sock.fileno()] = connection
        self._watch(connection)

    def _finish_connecting(self, connection: _Connection, events: int) -> None:
        if events & (select.EPOLLHUP | select.EPOLLERR):  # refused
            self.counts.send_refused += 1
            self._end(connection)
            return
        connection.connecting = False
        self._only = connection if self._listener is None else None
        self._flush(connection)

    def _read(self, connection: _Connection, found: list[tuple[bytes, Address]]) -> None:
        counts, address, inflow = self.counts, connection.address, connection.inflow
        before = len(found)
        relay = self.relay()
        for _ in range(_READS if relay is not None and connection.tls is None else 1):
            size = self._read_bytes(connection)
            if size == 0 or (size < 0 and not inflow.has_packet):
                if size == 0:
                    self._end(connection)
                self.may_have_more = False
                return
            counts.bytes_rcved += max(size, 0)
            # Only before all other packets: each of those may change what a datagram after it means.
            count = relay(inflow) if relay is not None and not found else 0
            while (packet := inflow.packet()) is not None:
                found.append((packet, address))
            ends = inflow.broken or (connection.tls is not None and connection.tls.over)
            if inflow.broken:
                counts.dgrams_truncated += 1
                if connection.tls is None and inflow.is_tls:
                    self._note_failure(connection, "it uses TLS, and this context does not: set use_tls on both sides")
            if ends:
                self._end(connection)
            if count := count + len(found) - before:
                counts.dgrams_rcved += count
                self._strangers.pop(address, None)
            self.may_have_more = size == READ_BYTES or connection.tls is not None
            if found or ends or not self.may_have_more:
                return

    def _read_bytes(self, connection: _Connection) -> int:
        """Reads what waits in a connection, and opens it where it is under TLS; returns as `Inflow.read`."""
        tls = connection.tls
        if tls is None:
            return connection.inflow.read(connection.socket.fileno())
        failed_before = tls.failure
        size = tls.read(connection.socket, connection.inflow)
        if tls.failure and not failed_before:
            self._note_failure(connection, tls.failure)
        self._encrypt(connection)  # what the handshake says, or why TLS has failed
        if connection.out:
            self._flush(connection)
        return size

    @property
    def is_connected(self) -> bool:
        """Whether a receiver has its connection, of which the end was not read."""
        return self._only is not None

    @property
    def has_packet(self) -> bool:
        """Whether a packet of the receiver's connection was read and not taken."""
        return self._only is not None and self._only.inflow.has_packet

    def direct(self, writer: RingWriter, session_id: int, number: int, room_min: int) -> Inflow | None:
        """Lets the connection of a receiver be read by `Inflow.fetch`, without this socket; None where that cannot be.

        The arguments are those of `Inflow.direct`.
        """
        with self._lock:
            only = self._only
            if only is None or only.tls is not None or self.relay() is None or self.is_paused:
                return None
            only.inflow.direct(only.socket.fileno(), writer, session_id, number, room_min)
            return only.inflow

    def _note_failure(self, connection: _Connection, why: str) -> None:
        self.counts.tls_failed += 1
        self._failures.append((connection.address, why))

    def take_failures(self) -> list[tuple[Address, str]]:
        """Returns, once, the connections that TLS has ended, each with the reason."""
        with self._lock:
            found, self._failures = self._failures, []
        return found

    def pause(self, paused: bool) -> None:
        """Stops or resumes reading."""
        with self._lock:
            if paused != self.is_paused and not self._epoll.closed:
                self.is_paused = paused
                for connection in self._connections.values():
                    connection.inflow.stop()
                    self._watch(connection)

    # ------------------------------------------------------------------ sending

    def unsent(self, address: Address) -> int:
        """Returns how many bytes the connection to an address has taken and not sent."""
        connection = self._connections.get(address)
        return connection.unsent if connection is not None else 0

    def send_pairs(self, pairs: Iterable[tuple[bytes, Address]]) -> int:
        """Sends each packet to its address, or keeps it until there is room; returns how many there were."""
        touched: dict[Address, _Connection] = {}
        count = 0
        with self._lock:
            if self._epoll.closed:
                return 0
            self._stop_stream()
            for packet, address in pairs:
                connection = touched.get(address) or self._connections.get(address)
                if connection is None:
                    if not packet or self._listener is not None:
                        continue
                    connection = self._connect(address)
                touched[address] = connection
                if not packet:
                    connection.ending = True
                    continue
                if connection.broken:
                    continue  # the next read says that it has ended
                if connection.tls is not None:
                    connection.tls.waiting += (_LENGTH.pack(len(packet)), packet)
                else:
                    connection.out += (_LENGTH.pack(len(packet)), packet)
                    connection.unsent += _LENGTH.size + len(packet)
                count += 1
            for connection in touched.values():
                self._encrypt(connection)
                # Where room is waited for, only `receive` sends: its caller learns from it that there is room again.
                if not connection.mask & select.EPOLLOUT:
                    self._flush(connection)
        self.counts.dgrams_sent += count
        return count

    def send_records(
        self, stream: RecordStream, addresses: Sequence[Address], number: int
    ) -> tuple[list[bytes], bool, bool]:
        """Sends the records of a ring, as DATA packets, to addresses with connections that have sent all they have.

        Args:
            stream: what sends them; it may go on by itself then.
            addresses: the addresses.
            number: the number of the first datagram.

        Returns:
            The packets; what the connections did not take they keep. Whether the ring's writer waits for an event.
            Whether nothing more waits in the ring; False where nothing was looked at, as a connection is not ready.
        """
        with self._lock:
            connections = [self._connections.get(address) for address in addresses]
            ready = tuple(each for each in connections if each is not None and each.is_clear)
            if not ready or len(ready) < len(connections):
                return [], False, False
            stream.aim(self._lock, self._keep_rest, ready, [each.socket.fileno() for each in ready])
            self._stream = weakref.ref(stream)
            packets, room, drained = stream.send(number)
            self.note_sent(packets, len(ready))
        return packets, room, drained

    def note_sent(self, packets: list[bytes], connections: int) -> None:
        """Counts packets that were sent to a number of connections."""
        self.counts.dgrams_sent += len(packets) * connections
        self.counts.bytes_sent += (sum(map(len, packets)) + _LENGTH.size * len(packets)) * connections

    def _stop_stream(self) -> None:
        """Ends that records are sent without this object: a connection is about to change."""
        stream = self._stream()
        if stream is not None:
            stream.stop()

    def _keep_rest(self, connections: tuple[_Connection, ...], packets: list[bytes], taken: list[int]) -> None:
        for connection, done in zip(connections, taken, strict=True):
            self._keep(connection, packets, done)

    def _keep(self, connection: _Connection, packets: list[bytes], done: int) -> None:
        """Keeps what a connection has not taken of packets behind their lengths; `done` is -1 where it has ended."""
        size = sum(map(len, packets)) + _LENGTH.size * len(packets)
        self.counts.bytes_sent -= size - max(done, 0)
        if done < 0:
            self._break(connection)
        elif done < size:
            self.counts.send_blocked += 1
            connection.out += itertools.chain.from_iterable((_LENGTH.pack(len(each)), each) for each in packets)
            connection.unsent += size
            self._took(connection, done)
        self._watch(connection)

    def _connect(self, address: Address) -> _Connection:
        """Begins to connect; a failure shows as the end of the connection."""
        sock = socket.socket(self._local.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        connection = _Connection(sock, address, Inflow(self._options.frame_max), self._new_tls(), connecting=True)
        options = self._options
        if options.receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)
        with contextlib.suppress(OSError):  # a socket that is refused is shown as hung up when it is waited for
            sock.bind((self._local.host, 0))
            sock.connect_ex(address)
        self._add(connection)
        return connection

    def _encrypt(self, connection: _Connection) -> None:
        """Takes what TLS has to send."""
        if connection.tls is not None and (data := connection.tls.take()):
            connection.out.append(data)
            connection.unsent += len(data)

    def _flush(self, connection: _Connection) -> None:
        """Sends what there is room for."""
        out = connection.out
        try:
            while out:
                sent = connection.socket.sendmsg(itertools.islice(out, _PARTS))
                self.counts.bytes_sent += sent
                self._took(connection, sent)
        except BlockingIOError:
            self.counts.send_blocked += 1
        except OSError:
            self._break(connection)
        if connection.ending and not out:
            self._drop(connection)
            return
        self._watch(connection)

    @staticmethod
    def _took(connection: _Connection, sent: int) -> None:
        """Takes away what the system has taken of what waits for a connection."""
        out = connection.out
        connection.unsent -= sent
        while sent and sent >= len(out[0]):
            sent -= len(out.popleft())
        if sent:
            out[0] = memoryview(out[0])[sent:]

    def _break(self, connection: _Connection) -> None:
        """Sees to it that the next read finds the end of a connection, by whichever thread it was noticed."""
        connection.out.clear()
        connection.unsent = 0
        connection.broken = True
        with contextlib.suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)

    # ------------------------------------------------------------------ connections

    def _watch(self, connection: _Connection) -> None:
        """Waits for what matters of a connection."""
        mask = 0 if self.is_paused and not (connection.connecting or connection.broken) else select.EPOLLIN
        if connection.out or connection.connecting:
            mask |= select.EPOLLOUT
        if mask == connection.mask:
            return
        number = connection.socket.fileno()
        if not connection.mask:
            self._epoll.register(number, mask)
        elif not mask:
            self._epoll.unregister(number)  # also not for a reset, which would be shown again and again
        else:
            self._epoll.modify(number, mask)
        connection.mask = mask

    def _end(self, connection: _Connection) -> None:
        """Closes a connection; only within `receive`, which says so."""
        self._drop(connection)
        self._ended.append(connection.address)

    def _drop(self, connection: _Connection) -> None:
        """Closes a connection."""
        if connection is self._only:
            self._only = None
        self._stop_stream()
        connection.inflow.stop()
        self._connections.pop(connection.address, None)
        self._strangers.pop(connection.address, None)
        self._of_number.pop(connection.socket.fileno(), None)
        connection.socket.close()
        connection.out.clear()
        connection.unsent = 0

    def close(self) -> None:
        """Closes all connections. May be called again."""
        with self._lock:
            for connection in list(self._connections.values()):
                self._drop(connection)
            self._close_others()

    def abandon(self) -> None:
        """Closes descriptors only, in the child of a fork, without the lock, which a thread of the parent may hold."""
        for connection in self._connections.values():
            connection.socket.close()
        self._close_others()

    def _close_others(self) -> None:
        """Closes the descriptors that belong to no connection."""
        if self._listener is not None:
            self._listener.close()
        spare, self._spare = self._spare, None
        if spare is not None:
            with contextlib.suppress(OSError):  # in the child of a fork: a thread of the parent had just closed it
                os.close(spare)
        self._epoll.close()
        _open.discard(self)


def listening(
    local: Interface, ports: Ports, options: StreamOptions, new_tls: Callable[[], TlsStream] | None = None
) -> StreamSocket:
    """Makes the socket of a source.

    Args:
        local: the interface to bind to.
        ports: the ports to try.
        options: the options of the connections.
        new_tls: as in `StreamSocket`.

    Raises:
        TransportError: no port is free, or the system refuses the interface.
    """
    while True:
        sock = new_socket(local.family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, options.reuse)
            if options.send_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer)
            bind_first(sock, local, ports)
            sock.listen(options.backlog)
            return StreamSocket(sock, local, options, new_tls)
        except OSError as error:
            sock.close()
            # Another process bound the port in the same moment, which SO_REUSEADDR allows, and listened first. From now
            # on the port is in use.
            if error.errno != errno.EADDRINUSE:
                raise TransportError(
                    f"interface {local.host} cannot be listened on ({error.strerror}): check it"
                ) from error
        except BaseException:
            sock.close()
            raise


def _is_local(peer: str, own: str) -> bool:
    """Returns whether a connection between these addresses does not leave the host."""
    return peer == own or is_loopback(peer)
