"""Whole datagrams sealed with a key that all contexts of a domain share.

A sealed datagram is a mark, the packet, and 40 bytes behind it; numbers are in the order of the network::

    +-----------+--------+------------+-------------+---------------------------+--------------+
    | mark 0xff | packet | sender u64 | counter u64 | time u64 (ns since epoch) | tag 16 bytes |
    +-----------+--------+------------+-------------+---------------------------+--------------+

No packet begins with the mark, which stands where they have their version: who has no key drops what is sealed.

The tag is BLAKE2b under the key over all that stands before it; the domain and the purpose go into it too, so that what
was sealed for one of them opens for no other. Each sender draws its id when it starts, and counts from 1.

What it keeps off: who does not have the key can neither make a datagram, nor change one, nor have one taken a second
time. Of each sender an opener knows which of the latest counters have come; older ones are dropped.

What it does not:

- Everybody with the key may speak for everybody else.
- Nothing is hidden: packets are sealed, not encrypted.
- A datagram may be held back, and may be brought to another opener of the domain than it was sent to, once.
- Whoever starts anew, or has forgotten a sender for another, knows no counters. So a sender that is not known is let in
  by a fresh datagram only: its time is within the tolerance of the opener's clock, and after that of all that were
  forgotten. What is older than the tolerance cannot be replayed to anybody; what is younger can be, once, to who has
  just started. Clocks of hosts have to agree within the tolerance.
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
"""How much longer a datagram gets."""


class Purpose(Enum):
    """What datagrams are for; a datagram that was sealed for one opens for no other."""

    DATA = b"ipcbus data"
    """From a source to its receivers."""
    CONTROL = b"ipcbus control"
    """From receivers to a source."""
    RESOLUTION = b"ipcbus resolving"
    """From everybody to everybody."""


class Sealer:
    """Seals what one sender sends for one purpose. It counts, so there is one, however many sockets are used."""

    def __init__(self, key: bytes, domain: str, purpose: Purpose, sender: int) -> None:
        """Nothing was sealed yet.

        Args:
            key: that of the domain.
            domain: name of the domain.
            purpose: of all that it seals.
            sender: 64 random bits, drawn anew at each start.
        """
        self._state = _keyed(key, domain, purpose)
        self._sender = sender
        self._counter = 0

    def seal(self, packet: bytes, now_ns: int) -> bytes:
        """Returns a packet with its seal.

        Args:
            packet: anything.
            now_ns: wall clock, ns since the epoch.
        """
        self._counter += 1
        content = _MARK + packet + _TRAILER.pack(self._sender, self._counter, now_ns)
        state = self._state.copy()
        state.update(content)
        return content + state.digest()


@dataclass(slots=True)
class SealCounts:
    """What an opener counts.

    Attributes:
        opened: datagrams that were let in.
        short: too short for a seal.
        forged: with a tag that is not that of the key, the domain and the purpose; also damaged ones.
        replayed: had come before.
        old: so far behind the latest of their sender that nobody knows whether they had come.
        stale: the first of a sender that is not known, and not fresh: replayed, or clocks disagree.
        own: sent by this context itself.
        forgotten: senders that went to make room for others.
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
    """Which of a sender's latest counters have come."""

    __slots__ = ("highest", "latest_ns", "seen")

    def __init__(self, window: int) -> None:
        # By counter modulo the window: the last counter that came there. Counters begin at 1.
        self.seen = array("Q", bytes(8 * window))
        self.highest = 0
        self.latest_ns = 0


class Opener:
    """Opens what comes for one purpose, each datagram once."""

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
        """Nothing has come.

        Args:
            key: that of the domain.
            domain: name of the domain.
            purpose: of all that it opens.
            window: how far behind the latest counter of its sender a datagram may be; 8 bytes each and sender.
            tolerance_ns: how far the time of the first datagram of a sender may be from ours.
            senders_max: how many senders are known; when there are more, the one that was silent for longest is
                forgotten. Only who has the key can push one out.
            own: id of the sealer of the same context: what comes back from it is dropped.
        """
        self.counts = SealCounts()
        self._state = _keyed(key, domain, purpose)
        self._window = window
        self._tolerance_ns = tolerance_ns
        self._senders_max = senders_max
        self._own = own
        # Whoever was heard last stands last.
        self._senders: dict[int, _Sender] = {}
        self._forgotten_ns = 0

    def __len__(self) -> int:
        """Returns how many senders are known."""
        return len(self._senders)

    def open(self, sealed: bytes, now_ns: int) -> bytes | None:
        """Returns the packet; None, and counted, when it is not to be trusted.

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
        known = self._senders.get(sender) or self._let_in(counter, time_ns, now_ns)
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

    def _let_in(self, counter: int, time_ns: int, now_ns: int) -> _Sender | None:
        """Room for a sender that is not known; None when its first datagram is not fresh."""
        fresh = abs(now_ns - time_ns) <= self._tolerance_ns and time_ns > self._forgotten_ns
        if not fresh or counter == 0:
            return None
        if len(self._senders) >= self._senders_max:
            oldest = self._senders.pop(next(iter(self._senders)))
            # Not later than now: a clock that went wrong must not keep everybody else out.
            self._forgotten_ns = max(self._forgotten_ns, min(oldest.latest_ns, now_ns))
            self.counts.forgotten += 1
        return _Sender(self._window)


def _keyed(key: bytes, domain: str, purpose: Purpose) -> blake2b:
    """Returns the state of the hash after the key; a copy of it is cheaper than a new one."""
    return blake2b(
        digest_size=TAG_BYTES,
        # Keys of any length go in whole.
        key=blake2b(key, person=b"ipcbus key").digest(),
        salt=blake2b(domain.encode(), digest_size=blake2b.SALT_SIZE).digest(),
        person=purpose.value,
    )
