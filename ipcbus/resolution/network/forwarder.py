"""A resolver daemon: it forwards each packet of a context to all other contexts, without reading it.

A client is a context that is known by its address. It must echo a cookie that the daemon sent to this address. Until
then the daemon forwards none of its packets, and sends nothing to the address that is longer than the packet received.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.resolution.network.advert_pacing import AdvertPacing
from ipcbus.resolution.network.timer_queue import NEVER, TimerQueue
from ipcbus.wire import relay_packets

if TYPE_CHECKING:
    from collections.abc import Hashable

_MS = 1_000_000
_S = 1000 * _MS


@dataclass(frozen=True, slots=True)
class ForwarderSettings:
    """Settings of a daemon; times in ns.

    Attributes:
        client_timeout: the daemon forgets a client that was silent for this time.
        clients_max: most clients; new ones are refused until one has gone.
        client_bps: limit of the packets of one client in bits a second; packets above it are dropped. 0: no limit.
        datagram_max_size: longest packet that is forwarded, in bytes.
        epoch: a cookie is valid for this time at least, and for twice this time at most.
    """

    client_timeout: int = 5 * _S
    clients_max: int = 1000
    client_bps: int = 10_000_000
    datagram_max_size: int = 8192
    epoch: int = 60 * _S


@dataclass(slots=True)
class ForwarderCounts:
    """The counters of a daemon, in datagrams.

    Attributes:
        rcved: received.
        relayed: forwarded, each counted once.
        sent: sent when they were forwarded, one for each other client.
        keepalives: received keepalives.
        dropped_malformed: malformed.
        dropped_size: too long.
        dropped_unproven: from addresses without a valid cookie.
        dropped_rate: above the limit of their client.
        dropped_full: from new clients, while there were too many clients.
    """

    rcved: int = 0
    relayed: int = 0
    sent: int = 0
    keepalives: int = 0
    dropped_malformed: int = 0
    dropped_size: int = 0
    dropped_unproven: int = 0
    dropped_rate: int = 0
    dropped_full: int = 0


class _Client:
    """A context that has proved its address."""

    __slots__ = ("address", "cookie", "due_ns", "pace", "until_ns")

    def __init__(self, address: Hashable, pace: AdvertPacing) -> None:
        self.address = address
        self.pace = pace
        self.cookie = 0
        self.due_ns = self.until_ns = NEVER


class Forwarder:
    """A daemon without its socket."""

    def __init__(self, terms: ForwarderSettings, secret: bytes) -> None:
        """Makes a daemon without clients.

        Args:
            terms: its settings.
            secret: 16 to 64 random bytes, from which it computes the cookies; each daemon has its own.
        """
        self.counts = ForwarderCounts()
        self._terms = terms
        self._secret = secret
        self._clients: dict[Hashable, _Client] = {}
        self._deadlines: TimerQueue[_Client] = TimerQueue()
        self._out: list[tuple[bytes, Hashable]] = []

    @property
    def clients(self) -> tuple[Hashable, ...]:
        """The addresses of all clients."""
        return tuple(self._clients)

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Handles a received datagram: any bytes, from any address."""
        self.counts.rcved += 1
        found = relay_packets.parse(packet)
        if found is None or found.type == relay_packets.ANSWER:
            self.counts.dropped_malformed += 1
        elif found.type == relay_packets.KEEPALIVE:
            self.counts.keepalives += 1
            if self._proves(found.cookie, address, now_ns):
                self._heard(address, found.cookie, now_ns)
            # The answer is not longer than the question, because its sender may be forged.
            self._out.append(
                (relay_packets.answer(self._cookie(address, now_ns // self._terms.epoch), found.nonce), address)
            )
        elif len(found.inner) > self._terms.datagram_max_size:
            self.counts.dropped_size += 1
        elif not self._proves(found.cookie, address, now_ns):
            self.counts.dropped_unproven += 1
        elif (client := self._heard(address, found.cookie, now_ns)) is not None:
            self._relay(client, found.inner, now_ns)

    def turn(self, now_ns: int) -> None:
        """Forgets the clients that were silent for too long."""
        while (first := self._deadlines.first()) is not None and first.due_ns <= now_ns:
            self._deadlines.pop()
            if first.until_ns > now_ns:
                first.due_ns = first.until_ns
                self._deadlines.put(first)
            else:
                del self._clients[first.address]
                first.due_ns = NEVER

    @property
    def next_ns(self) -> int | None:
        """When to call `turn`; None without clients."""
        first = self._deadlines.first()
        return None if first is None else first.due_ns

    def take(self) -> list[tuple[bytes, Hashable]]:
        """Returns the datagrams to send now, with their addresses."""
        found, self._out = self._out, []
        return found

    def _relay(self, sender: _Client, inner: bytes, now_ns: int) -> None:
        if sender.pace.free_ns > now_ns:
            self.counts.dropped_rate += 1
            return
        sender.pace.count(1, len(inner), now_ns)
        self.counts.relayed += 1
        self.counts.sent += len(self._clients) - 1
        self._out += [
            (relay_packets.relay(client.cookie, inner), client.address)
            for client in self._clients.values()
            if client is not sender
        ]

    def _heard(self, address: Hashable, cookie: int, now_ns: int) -> _Client | None:
        """Returns the client of an address, which is added if needed; None if there are too many clients."""
        client = self._clients.get(address)
        if client is None:
            if len(self._clients) >= self._terms.clients_max:
                self.counts.dropped_full += 1
                return None
            client = self._clients[address] = _Client(address, AdvertPacing(0, self._terms.client_bps, ahead_ns=_S))
            client.due_ns = now_ns + self._terms.client_timeout
            self._deadlines.put(client)
        client.cookie = cookie
        client.until_ns = now_ns + self._terms.client_timeout
        return client

    def _proves(self, cookie: int, address: Hashable, now_ns: int) -> bool:
        epoch = now_ns // self._terms.epoch
        return cookie != 0 and cookie in (self._cookie(address, epoch), self._cookie(address, epoch - 1))

    def _cookie(self, address: Hashable, epoch: int) -> int:
        proved = f"{address!r} {epoch}".encode()
        return int.from_bytes(hashlib.blake2b(proved, key=self._secret, digest_size=8).digest(), "big") or 1
