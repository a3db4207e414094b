"""The seals of a context whose domain has a key: one for each direction."""

from __future__ import annotations

import secrets
import threading
import time

from ipcbus.config import network_key
from ipcbus.wire.seal import Opener, Purpose, Sealer


class Seal:
    """Seals what goes out and opens what comes in; any thread may use it."""

    def __init__(self, key: bytes, domain: str, out: Purpose, into: Purpose, window: int) -> None:
        """For one direction of a context.

        Args:
            key: that of the domain.
            domain: its name.
            out: purpose of what goes out.
            into: purpose of what comes in.
            window: of the opener, in datagrams.
        """
        sender = secrets.randbits(64)
        self._sealer = Sealer(key, domain, out, sender)
        self._opener = Opener(key, domain, into, window=window, own=sender if out is into else None)
        self._lock = threading.Lock()

    def seal(self, packet: bytes) -> bytes:
        """Returns a packet as it goes out."""
        with self._lock:
            return self._sealer.seal(packet, time.time_ns())

    def open(self, packet: bytes) -> bytes | None:
        """What came in; None, and counted, when it is not to be trusted."""
        return self._opener.open(packet, time.time_ns())

    @property
    def dropped(self) -> int:
        """How many datagrams were not to be trusted."""
        counts = self._opener.counts
        return counts.short + counts.forged + counts.replayed + counts.old + counts.stale


class Seals:
    """Those of one context; each is None where the domain has no key."""

    def __init__(self, domain: str, path: str, window: int) -> None:
        """Reads the key.

        Args:
            domain: name of the domain.
            path: file with the key (`network_key_file`); empty without one.
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
