"""What a log may take: sizes and ages of segments, what is kept, how often it is synced."""

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
    """Limits of a log that is written; what is closed by them is whole segments."""

    segment_bytes: int = 256 << 20
    """A segment is closed before its files together grow beyond this; a larger block has one of its own."""
    segment_seconds: float = 3600.0
    """A segment is closed before it spans more receive time than this."""
    retain_bytes: int | None = None
    """The oldest segments go while the log takes more bytes on the disk than this; None: without limit."""
    retain_seconds: float | None = None
    """Segments go when all of their rows are older than this; None: without limit."""
    hard_cap_bytes: int | None = None
    """Above this the oldest segments go though cursors hold them; None: twice `retain_bytes`, if that is given."""
    cursor_max_age_seconds: float = 7 * 86400.0
    """A cursor that was not committed for longer holds nothing any more."""
    sync: Sync = "interval"
    """When what is written is synced, so that it survives a power loss: every `sync_seconds`, before anybody sees it
    (`always`), or only when a segment is closed (`never`)."""
    sync_seconds: float = 1.0
    """How long published rows may stay unsynced with `interval`, while rows come; 0: until the end of each append."""

    def __post_init__(self) -> None:
        """Checks them.

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
            raise ConfigError(f"{name} = {value!r}: give a number from {low:g} to {high:g}")

    @property
    def cap_bytes(self) -> int | None:
        """The hard cap that is in force."""
        if self.hard_cap_bytes is None and self.retain_bytes is not None:
            return 2 * self.retain_bytes
        return self.hard_cap_bytes
