"""The seals of a context, and the file with their keys, which is read again when it changes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ipcbus.config import network_key, secret_file
from ipcbus.errors import ConfigError
from ipcbus.extras import how_to_install
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.wire.seal_format import Purpose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.transport.udp.sealing import Seal
    from ipcbus.wire.seal import Keyring

log = logging.getLogger("ipcbus")

_LOOK_NS: Final = 1_000_000_000
_REPORT_NS: Final = 600_000_000_000


class Seals:
    """The seals of one context; each is None where the domain has no key."""

    def __init__(self, domain: str, path: str, window: int, *, encrypts: bool = True) -> None:
        """Reads the keys.

        Args:
            domain: the name of the domain.
            path: the file with the keys (`network_key_file`); empty without one.
            window: `network_replay_window`.
            encrypts: encrypts outgoing packets.

        Raises:
            ConfigError: as `config.network_key.read`, or the package cryptography is missing.
        """
        self._path, self._due_ns = path, 0 if path else FOREVER_NS
        self._keyring: Keyring | None = None
        self.source: Seal | None = None
        self.receiver: Seal | None = None
        self.resolution: Seal | None = None
        self._reported: dict[str, int] = {}
        self._report_ns = 0
        if not path:
            return
        try:
            # Here, because contexts without a key do without the package that it needs.
            from ipcbus.transport.udp.sealing import Seal
            from ipcbus.wire.seal import Keyring
        except ImportError as error:
            raise ConfigError(
                f"option network_key_file (scope context) = {path!r} needs the package cryptography; "
                f"{how_to_install('network-key')}"
            ) from error
        self._seen = secret_file.state(path)
        self._keyring = keyring = Keyring(network_key.read(path))

        def seal(out: Purpose, into: Purpose) -> Seal:
            return Seal(keyring, domain, out, into, window, encrypts=encrypts)

        self.source = seal(Purpose.DATA, Purpose.CONTROL)
        self.receiver = seal(Purpose.CONTROL, Purpose.DATA)
        self.resolution = seal(Purpose.RESOLUTION, Purpose.RESOLUTION)

    def turn(self, now_ns: int) -> int:
        """Reads the file again if it has changed, and reports what was dropped; returns when to call again."""
        if now_ns >= self._due_ns:
            self._due_ns = now_ns + _LOOK_NS
            self._look_at_file()
            if now_ns >= self._report_ns and self._report():
                self._report_ns = now_ns + _REPORT_NS
        return self._due_ns

    def dropped(self) -> int:
        """The number of packets whose seal was missing, invalid, old or repeated."""
        return sum(seal.counts.dropped for seal in self._all())

    def _all(self) -> list[Seal]:
        return [seal for seal in (self.source, self.receiver, self.resolution) if seal is not None]

    def _look_at_file(self) -> None:
        state = secret_file.state(self._path)
        if self._keyring is None or state == self._seen:
            return
        self._seen = state
        try:
            keys = network_key.read(self._path)
        except ConfigError as error:
            log.warning("%s. The context goes on with the keys that it has", error)
            return
        # The order says which key seals.
        if list(keys.items()) != list(self._keyring.keys.items()):
            self._keyring.keys = keys
            log.info("the context seals with key %d, and opens with %s", next(iter(keys)), _listed(keys))

    def _report(self) -> bool:
        """Logs what was dropped since the last report; returns whether that was anything."""
        counts = [seal.counts for seal in self._all()]
        now = {name: sum(getattr(each, name) for each in counts) for name in _TEXTS}
        new = {name: count - self._reported.get(name, 0) for name, count in now.items()}
        if not any(new.values()) or self._keyring is None:
            return False
        self._reported = now
        log.warning(
            "datagrams dropped: %s. This context opens with key %s of %r: compare the files of all hosts",
            "; ".join(f"{count} {_TEXTS[name]}" for name, count in new.items() if count),
            _listed(self._keyring.keys),
            self._path,
        )
        return True


_TEXTS: Final = {
    "unsealed": "without a seal",
    "unknown_key": "sealed with a key of another number",
    "forged": "changed, of another domain, or sealed with another key of the same number",
    "stale": "with a time that is far from this host's clock",
    "unchecked": "unchecked, because too many were forged",
}


def _listed(keys: Iterable[int]) -> str:
    return ", ".join(map(str, keys))
