"""Datagrams that are sealed with a key that all contexts of a domain share.

A sealed datagram is a mark, the packet, and 40 bytes behind it; numbers are in network byte order::

    +-----------+--------+------------+-------------+---------------------------+--------------+
    | mark 0xff | packet | sender u64 | counter u64 | time u64 (ns since epoch) | tag 16 bytes |
    +-----------+--------+------------+-------------+---------------------------+--------------+

The mark stands in the place of a version and is not a version, so that contexts without the key drop sealed datagrams.

The tag is the BLAKE2b hash, with the key, of all bytes before it. The domain and the purpose are part of the hash, so
that a datagram opens only for its domain and purpose. Each sender draws a random id when it starts, and counts from 1.

A seal protects against a host without the key: it can neither make nor change a datagram, nor replay one. The opener
knows which of the latest counters of each sender have arrived, and drops older ones.

A seal does not protect against this:

- Each host with the key may send in the name of any other.
- Packets are sealed, not encrypted: any host may read them.
- An attacker may delay a datagram, or redirect it once to another opener of the domain.
- An opener that has just started, or has forgotten a sender to make room, knows no counters. So it accepts an unknown
  sender only with a fresh datagram: its time is within the tolerance of the opener's clock, and after the times of all
  forgotten senders. Datagrams that are older than the tolerance cannot be replayed; younger ones can be replayed once,
  to an opener that has just started. The clocks of hosts must agree within the tolerance.
"""

from __future__ import annotations

import hmac
import struct
from array import array
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Final

TAG_BYTES: Final = 16
_TRAILER: Final = struct.Struct("!QQQ")
_MARK: Final = b"\xff"
_BEHIND: Final = _TRAILER.size + TAG_BYTES
SEAL_BYTES: Final = len(_MARK) + _BEHIND
"""Bytes that a seal adds to a datagram."""


class Purpose(Enum):
    """The purpose of a datagram; it opens only for the purpose that it was sealed for."""

    DATA = b"ipcbus data"
    """From a source to its receivers."""
    CONTROL = b"ipcbus control"
    """From receivers to a source."""
    RESOLUTION = b"ipcbus resolving"
    """From each context to all others."""


class Sealer:
    """Seals the datagrams of one sender for one purpose; all sockets of the sender share it, because it counts."""

    def __init__(self, key: bytes, domain: str, purpose: Purpose, sender: int) -> None:
        """Makes a sealer whose counter is 0.

        Args:
            key: the key of the domain.
            domain: name of the domain.
            purpose: purpose of all its datagrams.
            sender: 64 random bits, new at each start.
        """
        self._state = _keyed(key, domain, purpose)
        self._sender = sender
        self._counter = 0

    def seal(self, packet: bytes, now_ns: int) -> bytes:
        """Returns a packet with its seal.

        Args:
            packet: any bytes.
            now_ns: wall clock, ns since the epoch.
        """
        self._counter += 1
        content = _MARK + packet + _TRAILER.pack(self._sender, self._counter, now_ns)
        state = self._state.copy()
        state.update(content)
        return content + state.digest()


@dataclass(slots=True)
class SealCounts:
    """The counters of an opener, in datagrams.

    Attributes:
        opened: accepted datagrams.
        short: too short for a seal.
        forged: with a wrong tag for the key, the domain and the purpose; damaged datagrams, too.
        replayed: had arrived before.
        old: too far behind the latest datagram of their sender to know whether they had arrived.
        stale: not fresh, from an unknown sender: replayed, or the clocks disagree.
        own: sent by this context itself.
        forgotten: senders (not datagrams) that were forgotten to make room for others.
    """

    opened: int = 0
    short: int = 0
    forged: int = 0
    replayed: int = 0
    old: int = 0
    stale: int = 0
    own: int = 0
    forgotten: int = 0


class _Sender:
    """The latest counters of a sender that have arrived."""

    __slots__ = ("highest", "latest_ns", "seen")

    def __init__(self, window: int) -> None:
        # Index: counter modulo the window; value: the last counter that arrived there. Counters begin at 1.
        self.seen = array("Q", bytes(8 * window))
        self.highest = 0
        self.latest_ns = 0


class Opener:
    """Opens the sealed datagrams of one purpose, each of them once."""

    def __init__(
        self,
        key: bytes,
        domain: str,
        purpose: Purpose,
        *,
        window: int = 4096,
        tolerance_ns: int = 30_000_000_000,
        senders_max: int = 4096,
        own: int | None = None,
    ) -> None:
        """Makes an opener that knows no sender.

        Args:
            key: the key of the domain.
            domain: name of the domain.
            purpose: purpose of all datagrams that it opens.
            window: how far a datagram may be behind the latest counter of its sender; costs 8 bytes each, by sender.
            tolerance_ns: largest difference between the time of a sender's first datagram and this host's clock.
            senders_max: most senders that it remembers; it forgets the one that has been silent for longest. Only
                hosts with the key can make it forget a sender.
            own: id of the sealer of this context, whose datagrams it drops.
        """
        self.counts = SealCounts()
        self._state = _keyed(key, domain, purpose)
        self._window = window
        self._tolerance_ns = tolerance_ns
        self._senders_max = senders_max
        self._own = own
        # In the order of their latest datagrams.
        self._senders: dict[int, _Sender] = {}
        self._forgotten_ns = 0

    def __len__(self) -> int:
        """Returns the number of known senders."""
        return len(self._senders)

    def open(self, sealed: bytes, now_ns: int) -> bytes | None:
        """Returns the packet in a sealed datagram; returns None, and counts why, if the datagram is refused.

        Args:
            sealed: any bytes.
            now_ns: wall clock, ns since the epoch.
        """
        counts = self.counts
        if len(sealed) < SEAL_BYTES:
            counts.short += 1
            return None
        state = self._state.copy()
        state.update(memoryview(sealed)[:-TAG_BYTES])
        if not hmac.compare_digest(state.digest(), sealed[-TAG_BYTES:]):
            counts.forged += 1
            return None
        sender, counter, time_ns = _TRAILER.unpack_from(sealed, len(sealed) - _BEHIND)
        if sender == self._own:
            counts.own += 1
            return None
        known = self._senders.get(sender) or self._admit(counter, time_ns, now_ns)
        if known is None:
            counts.stale += 1
            return None
        if not self._is_new(known, counter):
            return None
        known.latest_ns = max(known.latest_ns, time_ns)
        self._senders.pop(sender, None)
        self._senders[sender] = known
        counts.opened += 1
        return sealed[len(_MARK) : -_BEHIND]

    def _is_new(self, known: _Sender, counter: int) -> bool:
        place = counter % self._window
        if counter + self._window <= known.highest:
            self.counts.old += 1
            return False
        if known.seen[place] == counter:
            self.counts.replayed += 1
            return False
        known.seen[place] = counter
        known.highest = max(known.highest, counter)
        return True

    def _admit(self, counter: int, time_ns: int, now_ns: int) -> _Sender | None:
        """Admits an unknown sender; returns None if its first datagram is not fresh."""
        fresh = abs(now_ns - time_ns) <= self._tolerance_ns and time_ns > self._forgotten_ns
        if not fresh or counter == 0:
            return None
        if len(self._senders) >= self._senders_max:
            oldest = self._senders.pop(next(iter(self._senders)))
            # Not later than now, so that one sender with a wrong clock does not lock the others out.
            self._forgotten_ns = max(self._forgotten_ns, min(oldest.latest_ns, now_ns))
            self.counts.forgotten += 1
        return _Sender(self._window)


def _keyed(key: bytes, domain: str, purpose: Purpose) -> blake2b:
    """Returns the state of the hash after the key; copying it is cheaper than making a new one."""
    return blake2b(
        digest_size=TAG_BYTES,
        # Hashed, because keys may have any length.
        key=blake2b(key, person=b"ipcbus key").digest(),
        salt=blake2b(domain.encode(), digest_size=blake2b.SALT_SIZE).digest(),
        person=purpose.value,
    )
