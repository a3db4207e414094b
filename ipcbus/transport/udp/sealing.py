"""The seal of one kind of packets of a context: it protects what the context sends, and checks what it receives."""

from __future__ import annotations

import copy
import secrets
import threading
import time
from typing import TYPE_CHECKING

from ipcbus.wire.seal import Opener, Sealer
from ipcbus.wire.seal_format import SALT_BYTES

if TYPE_CHECKING:
    from ipcbus.wire.seal import Keyring, SealCounts
    from ipcbus.wire.seal_format import Purpose


class Seal:
    """Seals outgoing and opens incoming packets of one kind; any thread may seal, one thread opens."""

    def __init__(
        self, keyring: Keyring, domain: str, out: Purpose, into: Purpose, window: int, *, encrypts: bool = True
    ) -> None:
        """Makes sealer and opener.

        Args:
            keyring: the keys of the domain.
            domain: the name of the domain.
            out: the purpose of outgoing packets.
            into: the purpose of incoming packets.
            window: the replay window, in packets.
            encrypts: encrypts outgoing packets.
        """

        def sealer() -> Sealer:
            return Sealer(keyring, domain, out, lambda: secrets.token_bytes(SALT_BYTES), encrypts=encrypts)

        self._new_sealer = sealer
        self._sealer = sealer()
        self._opener = Opener(keyring, domain, into, window=window, own=self._sealer if out is into else None)
        self._lock = threading.Lock()

    def for_stream(self) -> Seal:
        """Returns a seal with a salt of its own: what waits in a stream may be far behind what others have sealed."""
        found = copy.copy(self)
        found._sealer, found._lock = self._new_sealer(), threading.Lock()
        return found

    def seal(self, packet: bytes) -> bytes:
        """Returns a sealed packet."""
        with self._lock:
            return self._sealer.seal(packet, time.time_ns())

    def open(self, packet: bytes) -> bytes | None:
        """Returns the packet in a seal; counts it and returns None when the seal is invalid, old or repeated."""
        return self._opener.open(packet, time.time_ns())

    @property
    def counts(self) -> SealCounts:
        """The counters of received packets."""
        return self._opener.counts
