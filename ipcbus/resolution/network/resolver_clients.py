"""A context's side of its resolver daemons: which of them answer, and what goes through them.

What is to be sent goes to all daemons that answer, so that one that dies costs nothing, not even the time to notice:
what comes twice is dropped by its number.
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
"""A new cookie is echoed at once, but not more often: a daemon must not be able to keep us busy."""


@dataclass(frozen=True, slots=True)
class ResolverClientSettings:
    """Named as the options, without `resolver_unicast_`; times in ns.

    Attributes:
        keepalive_interval: how often each daemon is told that the context is there.
        activity_timeout: a daemon that has not answered for so long is taken for dead.
    """

    keepalive_interval: int = 500 * _MS
    activity_timeout: int = 1000 * _MS


@dataclass(slots=True)
class ResolverClientCounts:
    """What is counted, in datagrams.

    Attributes:
        dropped_unproven: that may be no daemon's: from another address, or without the proof.
        unsent: that had to be sent while no daemon had ever answered.
    """

    dropped_unproven: int = 0
    unsent: int = 0


class _Daemon:
    """One of them: when it has answered, and the two cookies and nonces that were used last."""

    __slots__ = ("address", "asked_ns", "cookies", "due_ns", "heard_ns", "nonces")

    def __init__(self, address: Hashable, now_ns: int) -> None:
        self.address = address
        self.due_ns = now_ns
        self.asked_ns = self.heard_ns = -1
        self.cookies = self.nonces = (0, 0)


class ResolverClients:
    """The context's connections to its daemons.

    Attributes:
        changes: moves when a daemon begins to answer or stops. After one has begun to, `NetworkResolution.refresh` lets
            others know at once what it publishes.
    """

    def __init__(
        self, addresses: Iterable[Hashable], terms: ResolverClientSettings, random: Random, now_ns: int
    ) -> None:
        """No daemon has answered.

        Args:
            addresses: of the daemons, as the socket gives them.
            terms: intervals.
            random: draws nonces; `random.SystemRandom` where a forger should not guess them.
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
        """Gives a packet to all daemons that answer; while none does, to all that ever have."""
        known = [daemon for daemon in self._daemons.values() if daemon.cookies[0]]
        living = [daemon for daemon in known if daemon.address in self._alive] or known
        self.counts.unsent += not living
        self._out += [(relay_packets.relay(daemon.cookies[0], packet), daemon.address) for daemon in living]

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> bytes | None:
        """Returns a datagram came: any bytes, from any address. What another context said is returned."""
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
            self._look(now_ns)
        else:
            self.counts.dropped_unproven += 1
        return None

    def turn(self, now_ns: int) -> None:
        """Sends the keepalives that are due, and looks who is dead."""
        for daemon in self._daemons.values():
            if daemon.due_ns <= now_ns:
                daemon.nonces = (self._random.getrandbits(64) or 1, daemon.nonces[0])
                daemon.asked_ns, daemon.due_ns = now_ns, now_ns + self._terms.keepalive_interval
                self._out.append((relay_packets.keepalive(daemon.cookies[0], daemon.nonces[0]), daemon.address))
        self._look(now_ns)

    @property
    def next_ns(self) -> int | None:
        """When to call `turn`; None when there are no daemons."""
        times = [daemon.due_ns for daemon in self._daemons.values()]
        times += [self._daemons[address].heard_ns + self._terms.activity_timeout for address in self._alive]
        return min(times, default=None)

    def take(self) -> list[tuple[bytes, Hashable]]:
        """What to send now, and where to."""
        found, self._out = self._out, []
        return found

    def _look(self, now_ns: int) -> None:
        alive = tuple(
            daemon.address
            for daemon in self._daemons.values()
            if daemon.heard_ns >= 0 and now_ns - daemon.heard_ns < self._terms.activity_timeout
        )
        if alive != self._alive:
            self._alive = alive
            self.changes += 1
