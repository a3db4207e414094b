"""The seals of a context: with a domain key, they protect what it sends and check what it receives."""

from __future__ import annotations

import secrets
import threading
import time

from ipcbus.config import network_key
from ipcbus.wire.seal import Opener, Purpose, Sealer


class Seal:
    """Seals outgoing and opens incoming packets of one kind; any thread may use it."""

    def __init__(self, key: bytes, domain: str, out: Purpose, into: Purpose, window: int) -> None:
        """Makes sealer and opener.

        Args:
            key: the key of the domain.
            domain: the name of the domain.
            out: the purpose of outgoing packets.
            into: the purpose of incoming packets.
            window: the replay window, in datagrams.
        """
        sender = secrets.randbits(64)
        self._sealer = Sealer(key, domain, out, sender)
        self._opener = Opener(key, domain, into, window=window, own=sender if out is into else None)
        self._lock = threading.Lock()

    def seal(self, packet: bytes) -> bytes:
        """Returns a sealed packet."""
        with self._lock:
            return self._sealer.seal(packet, time.time_ns())

    def open(self, packet: bytes) -> bytes | None:
        """Returns the packet in a seal; counts it and returns None when the seal is invalid, old or repeated."""
        return self._opener.open(packet, time.time_ns())

    @property
    def dropped(self) -> int:
        """The number of packets whose seal was invalid, old or repeated."""
        counts = self._opener.counts
        return counts.short + counts.forged + counts.replayed + counts.old + counts.stale


class Seals:
    """The seals of one context; each is None where the domain has no key."""

    def __init__(self, domain: str, path: str, window: int) -> None:
        """Reads the key.

        Args:
            domain: the name of the domain.
            path: the file with the key (`network_key_file`); empty without one.
            window: `network_replay_window`.

        Raises:
            ConfigError: as `config.keys.read`.
        """
        key = network_key.read(path) if path else b""

        def sealed(out: Purpose, into: Purpose) -> Seal | None:
            return Seal(key, domain, out, into, window) if key else None

        self.source = sealed(Purpose.DATA, Purpose.CONTROL)
        self.receiver = sealed(Purpose.CONTROL, Purpose.DATA)
        self.resolution = sealed(Purpose.RESOLUTION, Purpose.RESOLUTION)
