"""Limits of a log: sizes and ages of segments, retention, and syncs."""

from __future__ import annotations

import dataclasses
import math
from typing import Final, Literal, get_args

from ipcbus.archive.archive_layout import SEGMENT_BYTES_MAX
from ipcbus.errors import ConfigError

Sync = Literal["interval", "always", "never"]

_SEGMENT_BYTES_MIN: Final = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a log that is written; they close and remove whole segments."""

    segment_bytes: int = 256 << 20
    """Close a segment before its files together exceed this; a larger block gets its own segment."""
    segment_seconds: float = 3600.0
    """Close a segment before it spans more receive time than this."""
    retain_bytes: int | None = None
    """Remove the oldest segments while the log takes more bytes on the disk than this; None: no limit."""
    retain_seconds: float | None = None
    """Remove segments whose rows are all older than this; None: no limit."""
    hard_cap_bytes: int | None = None
    """Above this, remove segments although cursors hold them; None: twice `retain_bytes`, if that is given."""
    cursor_max_age_seconds: float = 7 * 86400.0
    """A cursor whose last commit is older than this no longer holds rows."""
    sync: Sync = "interval"
    """When rows are synced, so that they survive a power loss: every `sync_seconds` (`interval`), before they are
    published (`always`), or only when a segment is closed (`never`)."""
    sync_seconds: float = 1.0
    """How long published rows may stay unsynced with `interval`, while rows come; 0: until the end of each append."""

    def __post_init__(self) -> None:
        """Checks the limits.

        Raises:
            ConfigError: a limit is out of range, or contradicts another one.
        """
        self._check("segment_bytes", _SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
        self._check("segment_seconds", 1e-3, math.inf)
        self._check("retain_bytes", 0, math.inf)
        self._check("retain_seconds", 0, math.inf)
        self._check("hard_cap_bytes", self.retain_bytes or 0, math.inf)
        self._check("cursor_max_age_seconds", 0, math.inf)
        self._check("sync_seconds", 0, math.inf)
        if self.sync not in get_args(Sync):
            raise ConfigError(f"sync = {self.sync!r}: choose one of {', '.join(get_args(Sync))}")

    def _check(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        if value is not None and not low <= value <= high:
            bound = "on" if high == math.inf else f"to {high}"
            raise ConfigError(f"{name} = {value!r}: give a number from {low} {bound}")

    @property
    def cap_bytes(self) -> int | None:
        """The hard cap in effect; None: no cap."""
        if self.hard_cap_bytes is None and self.retain_bytes is not None:
            return 2 * self.retain_bytes
        return self.hard_cap_bytes
