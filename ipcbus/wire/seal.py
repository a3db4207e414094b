"""Packets that are sealed with keys that all contexts of a domain share; `wire.seal_format` has the layout.

Each sealer draws a random salt of 128 bits when it starts. HKDF-SHA256 derives its key from the key of the domain, the
salt, the form, the purpose and the domain's name. The nonce is a counter from 1. So no two packets have the same key
and nonce, also after a restart. When the counter ends, or another key of the domain is to seal, the sealer draws a new
salt.

A seal protects against a host without the key: it can neither make, change nor replay a packet, nor read an encrypted
one. The opener knows which of the latest counters of each salt have arrived, and drops older ones.

A seal does not protect against this:

- Each host with the key may send in the name of any other, and read all packets, also those that were recorded before
  it got the key.
- An attacker may delay a packet, or redirect it once to another opener of the domain.
- An opener that has just started, or has forgotten a salt to make room, knows no counters. So it accepts an unknown
  salt only with a fresh packet: its time is within the tolerance of the opener's clock, and after the times of all
  forgotten salts. Packets that are older than the tolerance cannot be replayed; younger ones can be replayed once, to
  an opener that has just started. The clocks of hosts must agree within the tolerance.
- A flood of forged salts delays senders that are new: the number of keys that an opener derives in a period is limited.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ipcbus.wire.seal_format import (
    AUTHENTICATED,
    BACK,
    COUNTER_MAX,
    ENCRYPTED,
    FRONT,
    HEAD_BYTES,
    MARK,
    NONCE,
    SEAL_BYTES,
    TAG_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipcbus.wire.seal_format import Purpose

_PERIOD_NS: Final = 100_000_000
_DERIVED_MAX: Final = 1000
"""Most keys that an opener derives in a period, for salts that it does not know; one costs about 4 us."""
_OWN_KEPT: Final = 4


class Keyring:
    """The keys of a domain; any thread may use it."""

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        """Takes the first keys.

        Args:
            keys: keys of 32 bytes by their numbers. The first one seals; all of them open.
        """
        self.keys = keys
        """Replaced as a whole, never changed."""


class Sealer:
    """Seals the packets of one sender for one purpose."""

    def __init__(
        self,
        keyring: Keyring,
        domain: str,
        purpose: Purpose,
        draw_salt: Callable[[], bytes],
        *,
        encrypts: bool = True,
        packets_max: int = COUNTER_MAX,
    ) -> None:
        """Begins with a new salt.

        Args:
            keyring: the keys of the domain.
            domain: name of the domain.
            purpose: purpose of all its packets.
            draw_salt: returns 16 random bytes, never the same ones again.
            encrypts: encrypts packets; False: they stay readable, but no host without the key can change them.
            packets_max: packets after which it draws a new salt.
        """
        self._keyring, self._domain, self._purpose, self._draw_salt = keyring, domain, purpose, draw_salt
        self._form = ENCRYPTED if encrypts else AUTHENTICATED
        self._packets_max = packets_max
        self.own: tuple[bytes, ...] = ()
        """The fronts of its latest packets' heads."""
        self._begin()

    def _begin(self) -> None:
        """Draws a salt, and derives the key for it."""
        self._keys = self._keyring.keys
        number, secret = next(iter(self._keys.items()))
        self._front = FRONT.pack(MARK, self._form, number, self._draw_salt())
        self._cipher = _cipher(secret, self._front, self._domain, self._purpose)
        self._counter = 0
        self.own = (*self.own[1 - _OWN_KEPT :], self._front)

    def seal(self, packet: bytes, now_ns: int) -> bytes:
        """Returns a packet with its seal.

        Args:
            packet: any bytes.
            now_ns: wall clock, ns since the epoch.
        """
        if self._counter >= self._packets_max or self._keys is not self._keyring.keys:
            self._begin()
        self._counter += 1
        head = self._front + BACK.pack(self._counter, now_ns)
        nonce = NONCE.pack(self._counter)
        if self._form == ENCRYPTED:
            return head + self._cipher.encrypt(nonce, packet, head)
        content = head + packet
        return content + self._cipher.encrypt(nonce, b"", content)


@dataclass(slots=True)
class SealCounts:
    """The counters of an opener, in packets.

    Attributes:
        opened: accepted packets.
        unsealed: without a seal of this layout.
        unknown_key: sealed with a key whose number the opener does not have.
        forged: not sealed with the key of their number, the domain and the purpose; damaged packets, too.
        replayed: had arrived before.
        old: too far behind the latest packet of their salt to know whether they had arrived.
        stale: not fresh, with an unknown salt: replayed, or the clocks disagree.
        unchecked: with an unknown salt, when the opener had derived as many keys as it does in a period.
        own: sent by this context itself.
        forgotten: salts (not packets) that were forgotten to make room for others.
    """

    opened: int = 0
    unsealed: int = 0
    unknown_key: int = 0
    forged: int = 0
    replayed: int = 0
    old: int = 0
    stale: int = 0
    unchecked: int = 0
    own: int = 0
    forgotten: int = 0

    @property
    def dropped(self) -> int:
        """Packets of others that were not accepted."""
        changed = self.unsealed + self.unknown_key + self.forged
        return changed + self.replayed + self.old + self.stale + self.unchecked


class _Sender:
    """A salt: its key, and its latest counters that have arrived."""

    __slots__ = ("cipher", "highest", "latest_ns", "secret", "seen")

    def __init__(self, cipher: AESGCM, secret: bytes) -> None:
        self.cipher, self.secret = cipher, secret
        # Index: counter modulo the window; value: the last counter that arrived there. Counters begin at 1. Empty
        # until the first packet has opened: forged ones cost no memory.
        self.seen = array("I")
        self.highest = 0
        self.latest_ns = 0


class Opener:
    """Opens the sealed packets of one purpose, each of them once."""

    def __init__(
        self,
        keyring: Keyring,
        domain: str,
        purpose: Purpose,
        *,
        window: int = 4096,
        tolerance_ns: int = 30_000_000_000,
        senders_max: int = 4096,
        own: Sealer | None = None,
    ) -> None:
        """Makes an opener that knows no salt.

        Args:
            keyring: the keys of the domain.
            domain: name of the domain.
            purpose: purpose of all packets that it opens.
            window: how far a packet may be behind the latest counter of its salt; costs 4 bytes each, by salt.
            tolerance_ns: largest difference between the time of a salt's first packet and this host's clock.
            senders_max: most salts that it remembers; it forgets the one that has been silent for longest. Only hosts
                with the key can make it forget a salt.
            own: the sealer of this context, whose packets it drops.
        """
        self.counts = SealCounts()
        self._keyring, self._keys = keyring, keyring.keys
        self._domain, self._purpose = domain, purpose
        self._window = window
        self._tolerance_ns = tolerance_ns
        self._senders_max = senders_max
        self._own = own
        # By the fronts of their heads, in the order of their latest packets.
        self._senders: OrderedDict[bytes, _Sender] = OrderedDict()
        self._forgotten_ns = 0
        self._period_ns = self._derived = 0

    def __len__(self) -> int:
        """Returns the number of known salts."""
        return len(self._senders)

    def open(self, sealed: bytes, now_ns: int) -> bytes | None:
        """Returns the packet in a sealed packet; returns None, and counts why, if that is refused.

        Args:
            sealed: any bytes.
            now_ns: wall clock, ns since the epoch.
        """
        counts = self.counts
        if len(sealed) < SEAL_BYTES:
            counts.unsealed += 1
            return None
        if self._keys is not self._keyring.keys:
            self._take_keys()
        front = sealed[: FRONT.size]
        counter, time_ns = BACK.unpack_from(sealed, FRONT.size)
        known = self._senders.get(front)
        sender = known or self._unknown(front, time_ns, now_ns)
        if sender is None:
            return None
        packet = _opened(sender.cipher, sealed, counter)
        if packet is None:
            counts.forged += 1
            return None
        if known is None:
            self._admit(front, sender, now_ns)
        if not self._is_new(sender, counter):
            return None
        if time_ns > sender.latest_ns:
            sender.latest_ns = time_ns
        self._senders.move_to_end(front)
        counts.opened += 1
        return packet

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

    def _take_keys(self) -> None:
        """Forgets the salts whose keys have been removed."""
        self._keys = keys = self._keyring.keys
        valid = set(keys.values())
        for front in [front for front, sender in self._senders.items() if sender.secret not in valid]:
            del self._senders[front]

    def _unknown(self, front: bytes, time_ns: int, now_ns: int) -> _Sender | None:
        """Returns what an unknown salt would be; None, and counts why, where its packet need not be looked at."""
        counts = self.counts
        mark, form, number, _ = FRONT.unpack(front)
        if mark != MARK or form not in (AUTHENTICATED, ENCRYPTED):
            counts.unsealed += 1
            return None
        if self._own is not None and front in self._own.own:
            counts.own += 1
            return None
        secret = self._keys.get(number)
        if secret is None:
            counts.unknown_key += 1
            return None
        if abs(now_ns - time_ns) > self._tolerance_ns or time_ns <= self._forgotten_ns:
            counts.stale += 1
            return None
        if abs(now_ns - self._period_ns) >= _PERIOD_NS:
            self._period_ns, self._derived = now_ns, 0
        if self._derived >= _DERIVED_MAX:
            counts.unchecked += 1
            return None
        self._derived += 1
        return _Sender(_cipher(secret, front, self._domain, self._purpose), secret)

    def _admit(self, front: bytes, sender: _Sender, now_ns: int) -> None:
        """Remembers a salt from now on."""
        if len(self._senders) >= self._senders_max:
            _, oldest = self._senders.popitem(last=False)
            # Not later than now, so that one sender with a wrong clock does not lock the others out.
            self._forgotten_ns = max(self._forgotten_ns, min(oldest.latest_ns, now_ns))
            self.counts.forgotten += 1
        sender.seen = array("I", bytes(4 * self._window))
        self._senders[front] = sender


def _cipher(secret: bytes, front: bytes, domain: str, purpose: Purpose) -> AESGCM:
    """Returns the cipher of a salt."""
    _, form, _, salt = FRONT.unpack(front)
    use = b"ipcbus seal %d %s " % (form, purpose.value) + domain.encode()
    return AESGCM(HKDF(SHA256(), 32, salt, use).derive(secret))


def _opened(cipher: AESGCM, sealed: bytes, counter: int) -> bytes | None:
    """Returns the packet in a sealed packet; None where the tag is invalid."""
    view = memoryview(sealed)
    nonce = NONCE.pack(counter)
    try:
        if sealed[1] == ENCRYPTED:
            return cipher.decrypt(nonce, view[HEAD_BYTES:], view[:HEAD_BYTES])
        cipher.decrypt(nonce, view[-TAG_BYTES:], view[:-TAG_BYTES])
    except InvalidTag:
        return None
    return sealed[HEAD_BYTES:-TAG_BYTES]
