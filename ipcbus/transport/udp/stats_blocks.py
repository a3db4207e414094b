"""The stats blocks of a session over UDP: counters, clients and state in shared memory, for statistics.

The driver and the sending threads write a stats block a few times a second at most, never for each packet.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ipcbus.delivery import timer_grid
from ipcbus.wire import wire_layout
from ringbuf.layout import RING_HEADER
from ringbuf.shared_words import SharedWords

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from ipcbus.reliability.clients import Client
    from ipcbus.reliability.reliable_receiver import ReliableReceiver
    from ipcbus.reliability.reliable_sender import ReliableSender
    from ipcbus.reliability.stream_receiver import StreamReceiver
    from ipcbus.reliability.stream_sender import StreamSender
    from ipcbus.transport.tcp.stream_port import StreamPort
    from ipcbus.transport.udp.session_socket import SessionSocket
    from ringbuf.memory import Mapping as Memory

INTERVAL_NS = 250_000_000
"""Time between two writes of a stats block."""
_IDLE_INTERVAL_NS = 1_000_000_000
"""The same after a write that had nothing new."""
_NEVER: Final = object()
_LEAD_NS = timer_grid.lead_ns(INTERVAL_NS)


def next_write_ns(now_ns: int) -> int:
    """Returns when a stats block is to be written again that has news now, in ns of the monotonic clock."""
    return timer_grid.next_ns(now_ns, INTERVAL_NS)


class _StatsBlock:
    """A structure in the user area of a ring; a version number lets readers detect one that is being written."""

    def __init__(self, ring: Memory, offset: int, dtype: np.dtype[np.void]) -> None:
        self._words, self._offset = SharedWords(ring), offset
        self._record = np.frombuffer(ring.view(offset, dtype.itemsize), dtype, 1)[0:1].reshape(())
        self._shown: dict[str, Any] = dict.fromkeys(dtype.names or (), _NEVER)
        """By field, what was written last: most values do not change, and to write one takes longer."""
        self._has_news = False
        """Whether this write has changed a value."""
        self.due_ns = 0
        """When it is to be written again, in ns of the monotonic clock."""

    def is_due(self, now_ns: int) -> bool:
        """Returns whether it may be written now."""
        return now_ns >= self.due_ns - _LEAD_NS

    def is_late(self, now_ns: int) -> bool:
        """Returns whether the driver should have written it long ago, so that another thread has to."""
        return now_ns >= self.due_ns + INTERVAL_NS

    def _begin(self) -> None:
        self._has_news = False
        self._words.store64(self._offset, self._words.load64(self._offset) | 1)
        self._words.fence()

    def _end(self, now_ns: int) -> None:
        self._words.store64(self._offset, self._words.load64(self._offset) + 1)
        self.due_ns = next_write_ns(now_ns) if self._has_news else timer_grid.next_ns(now_ns, _IDLE_INTERVAL_NS)

    def _write(self, values: Mapping[str, Any]) -> None:
        shown, record = self._shown, self._record
        for name, value in values.items():
            if shown.get(name, value) != value:
                record[name] = shown[name] = value
                self._has_news = True


class SenderStatsBlock(_StatsBlock):
    """The stats block of a UDP sender, behind the topic lines of its ring."""

    def __init__(
        self, ring: Memory, topics_max: int, transport: int, reliable_sender: ReliableSender | StreamSender
    ) -> None:
        """Starts before the first write.

        Args:
            ring: the session's ring.
            topics_max: the number of its topic lines.
            transport: the number of the transport.
            reliable_sender: the protocol with the counters to show.
        """
        at = RING_HEADER.itemsize + topics_max * wire_layout.TOPIC_LINE.itemsize
        super().__init__(ring, at, wire_layout.UPLINK_BOARD)
        self._sender, self._transport, self._topics_max = reliable_sender, transport, topics_max
        lines = ring.view(RING_HEADER.itemsize, topics_max * wire_layout.TOPIC_LINE.itemsize)
        self._topics = np.frombuffer(lines, wire_layout.TOPIC_LINE, topics_max)
        at += wire_layout.UPLINK_BOARD.itemsize
        size = wire_layout.CLIENTS_SHOWN * wire_layout.CLIENT_LINE.itemsize
        self._clients = np.frombuffer(ring.view(at, size), wire_layout.CLIENT_LINE, wire_layout.CLIENTS_SHOWN)
        self._joined = np.frombuffer(ring.view(at + size, 8 * topics_max), np.dtype("<u8"), topics_max)
        self._lines: dict[tuple[Hashable, int], int] = {}
        self._changes = -1
        self._limited_ns = 0
        self._limited_since_ns = 0

    def limited(self, now_ns: int) -> None:
        """Notes whether datagrams wait for the data rate now."""
        if self._sender.rate_limited:
            self._limited_since_ns = self._limited_since_ns or now_ns
        elif self._limited_since_ns:
            self._limited_ns += now_ns - self._limited_since_ns
            self._limited_since_ns = 0

    def show(self, session_socket: SessionSocket, links: Mapping[str, int], active: bool, now_ns: int) -> None:
        """Writes the stats block; `links` are the counters of the control channels."""
        sender = self._sender
        self._begin()
        self._write(sender.snapshot())
        self._write(links)
        self._write(_socket_counters((session_socket,)))
        self._write(
            {
                "transport": self._transport,
                "active": active,
                "source_paced": sender.source_paced,
                "clients_max": sender.settings.clients.clients_max,
                "data_rate": sender.settings.sending.data_rate,
                "retransmit_rate": sender.settings.sending.retransmit_rate,
                "rate_limited_ns": self._limited_ns,
                "limited_since": self._limited_since_ns,
                "slowest": slowest.context_id if (slowest := sender.slowest) is not None else 0,
            }
        )
        self._show_clients(sender.clients, slowest)
        self._end(now_ns)

    def _show_clients(self, clients: tuple[Client, ...], slowest: Client | None) -> None:
        if self._sender.changes != self._changes:
            self._changes = self._sender.changes
            self._assign_lines(clients)
            self._has_news = True
        for client in clients:
            line = self._lines.get((client.address, client.cookie))
            # While the source waits for a client, that says nothing new, or too seldom.
            behind = max(client.behind, self._sender.lead - client.lead) if client is slowest else client.behind
            if line is not None and self._clients[line]["behind"] != behind:
                self._clients[line]["behind"] = behind
                self._has_news = True

    def _assign_lines(self, clients: tuple[Client, ...]) -> None:
        """Gives each client a line, which it keeps; clients beyond the last line are only counted."""
        known = {(client.address, client.cookie): client for client in clients}
        for key in [key for key in self._lines if key not in known]:
            self._clients[self._lines.pop(key)] = np.zeros((), wire_layout.CLIENT_LINE)
        free = iter(sorted(set(range(wire_layout.CLIENTS_SHOWN)) - set(self._lines.values())))
        joined = [0] * self._topics_max
        for key, client in known.items():
            line = self._lines.get(key)
            if line is None:
                line = next(free, None)
                if line is None:
                    continue
                self._lines[key] = line
                self._clients[line]["since_ns"] = time.time_ns()
            entry = self._clients[line]
            entry["context_id"], entry["pid"], entry["used"] = client.context_id, client.pid, 1
            entry["context_name"], entry["address"] = (
                client.name.encode(errors="replace")[:32],
                _address(client.address),
            )
            for number in client.topics:
                # A client may claim topics that the session does not carry.
                if self._topics[number % self._topics_max]["topic"] == number:
                    joined[number % self._topics_max] |= 1 << line
        self._joined[:] = joined


class ReceiverStatsBlock(_StatsBlock):
    """The stats block of a UDP receiver, in the ring that it writes datagrams to."""

    def __init__(
        self, ring: Memory, transport: int, address: Hashable, reliable_receiver: ReliableReceiver | StreamReceiver
    ) -> None:
        """Starts before the first write.

        Args:
            ring: the receiver's ring.
            transport: the number of the transport.
            address: the source's address.
            reliable_receiver: the protocol with the counters to show.
        """
        super().__init__(ring, RING_HEADER.itemsize, wire_layout.RECEPTION_BOARD)
        self._receiver = reliable_receiver
        self._record["transport"], self._record["address"] = transport, _address(address)

    def show(
        self,
        session_sockets: Iterable[SessionSocket | StreamPort],
        links: Mapping[str, int],
        shed: int,
        reason: str,
        now_ns: int,
    ) -> None:
        """Writes the stats block; `links` are the counters of the control channel."""
        receiver = self._receiver
        self._begin()
        self._write({name: getattr(receiver.counts, name) for name in receiver.counts.__dataclass_fields__})
        self._write(_socket_counters(session_sockets))
        self._write(links)
        texts = {"state": receiver.state.name.lower().encode(), "reason": reason.encode(errors="replace")[:512]}
        self._write({"lead": receiver.lead, "missing": receiver.missing, "dgrams_shed": shed, **texts})
        self._end(now_ns)


def _socket_counters(session_sockets: Iterable[SessionSocket | StreamPort]) -> dict[str, int]:
    found = {"unknown_msgs_rcved": 0}
    for session_socket in session_sockets:
        counts = session_socket.socket.counts
        found["unknown_msgs_rcved"] += session_socket.unknown
        for name in counts.__dataclass_fields__:
            found[f"socket_{name}"] = found.get(f"socket_{name}", 0) + getattr(counts, name)
    return found


def _address(address: Any) -> bytes:  # noqa: ANN401 - what sockets give
    """Returns host and port in the form of source strings."""
    host, port = str(address[0]), address[1]
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}").encode()[:64]
