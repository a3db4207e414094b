"""A context's connections to its resolver daemons.

The context sends each packet to all daemons that answer, so that the death of one daemon loses nothing. Packets that
arrive twice are dropped by their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.wire import relay_packets

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from random import Random

_MS = 1_000_000

_ECHO_NS = 20 * _MS
"""Shortest time between two echoes of new cookies, so that a daemon cannot keep the context busy."""


@dataclass(frozen=True, slots=True)
class ResolverClientSettings:
    """Settings with the names of the options, without `resolver_unicast_`; times in ns.

    Attributes:
        keepalive_interval: time between two keepalives to a daemon.
        activity_timeout: a daemon that has not answered for this time counts as dead.
    """

    keepalive_interval: int = 500 * _MS
    activity_timeout: int = 1000 * _MS


@dataclass(slots=True)
class ResolverClientCounts:
    """Counters, in datagrams.

    Attributes:
        dropped_unproven: from another address than a daemon's, or without a valid cookie or nonce.
        unsent: not sent, because no daemon had ever answered.
    """

    dropped_unproven: int = 0
    unsent: int = 0


class _Daemon:
    """A daemon: when it answered, and its last two cookies and nonces."""

    __slots__ = ("address", "asked_ns", "cookies", "due_ns", "heard_ns", "nonces")

    def __init__(self, address: Hashable, now_ns: int) -> None:
        self.address = address
        self.due_ns = now_ns
        self.asked_ns = self.heard_ns = -1
        self.cookies = self.nonces = (0, 0)


class ResolverClients:
    """The context's connections to its daemons.

    Attributes:
        changes: a number that changes when a daemon begins or stops to answer. The caller then calls
            `NetworkResolution.refresh`, which sends all adverts again.
    """

    def __init__(
        self, addresses: Iterable[Hashable], terms: ResolverClientSettings, random: Random, now_ns: int
    ) -> None:
        """Makes connections to daemons, none of which has answered.

        Args:
            addresses: addresses of the daemons, in the form of sockets.
            terms: intervals.
            random: draws nonces; use `random.SystemRandom`, so that a forger cannot guess them.
            now_ns: the time.
        """
        self.counts = ResolverClientCounts()
        self.changes = 0
        self._terms = terms
        self._random = random
        self._daemons = {address: _Daemon(address, now_ns) for address in addresses}
        self._alive: tuple[Hashable, ...] = ()
        self._out: list[tuple[bytes, Hashable]] = []

    @property
    def alive(self) -> tuple[Hashable, ...]:
        """The daemons that answer."""
        return self._alive

    def send(self, packet: bytes) -> None:
        """Sends a packet to all daemons that answer; if none does, to all that have ever answered."""
        known = [daemon for daemon in self._daemons.values() if daemon.cookies[0]]
        living = [daemon for daemon in known if daemon.address in self._alive] or known
        self.counts.unsent += not living
        self._out += [(relay_packets.relay(daemon.cookies[0], packet), daemon.address) for daemon in living]

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> bytes | None:
        """Handles a received datagram, any bytes from any address; returns the packet of another context in it."""
        daemon = self._daemons.get(address)
        found = relay_packets.parse(packet)
        if daemon is None or found is None or found.cookie == 0:
            self.counts.dropped_unproven += 1
        elif found.type == relay_packets.RELAY and found.cookie in daemon.cookies:
            return found.inner
        elif found.type == relay_packets.ANSWER and found.nonce and found.nonce in daemon.nonces:
            daemon.heard_ns = now_ns
            if found.cookie != daemon.cookies[0]:
                daemon.cookies = (found.cookie, daemon.cookies[0])
                daemon.due_ns = min(daemon.due_ns, max(now_ns, daemon.asked_ns + _ECHO_NS))
            self._update_alive(now_ns)
        else:
            self.counts.dropped_unproven += 1
        return None

    def turn(self, now_ns: int) -> None:
        """Sends the keepalives that are due, and notes which daemons are dead."""
        for daemon in self._daemons.values():
            if daemon.due_ns <= now_ns:
                daemon.nonces = (self._random.getrandbits(64) or 1, daemon.nonces[0])
                daemon.asked_ns, daemon.due_ns = now_ns, now_ns + self._terms.keepalive_interval
                self._out.append((relay_packets.keepalive(daemon.cookies[0], daemon.nonces[0]), daemon.address))
        self._update_alive(now_ns)

    @property
    def next_ns(self) -> int | None:
        """When to call `turn`; None without daemons."""
        times = [daemon.due_ns for daemon in self._daemons.values()]
        times += [self._daemons[address].heard_ns + self._terms.activity_timeout for address in self._alive]
        return min(times, default=None)

    def take(self) -> list[tuple[bytes, Hashable]]:
        """Returns the datagrams to send now, with their addresses."""
        found, self._out = self._out, []
        return found

    def _update_alive(self, now_ns: int) -> None:
        alive = tuple(
            daemon.address
            for daemon in self._daemons.values()
            if daemon.heard_ns >= 0 and now_ns - daemon.heard_ns < self._terms.activity_timeout
        )
        if alive != self._alive:
            self._alive = alive
            self.changes += 1
