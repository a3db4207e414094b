"""What a snapshot says of recorders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ipcbus.stats.udp_model import NO_RATES, Counters, Rates

BEHIND_NS: Final = 1_000_000_000
"""A recorder whose oldest message waits for so long is behind."""
CROWDED: Final = 0.5
"""So is one whose buffer is full to this share: it fills faster than it is emptied."""
SILENT_NS: Final = 3_000_000_000
"""A recorder that has shown nothing for so long hangs; one that works shows its numbers some times a second."""


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """A recorder of a context, which writes what it receives into a log of an archive.

    Attributes:
        log: path of the log: that of the archive, and its stream; of a long one the end.
        since_ns: when it was started, ns since the epoch.
        alive: whether its process lives.
        stopped: whether its process is stopped, as by SIGSTOP or a debugger.
        failing: whether the disk refuses what it writes; it tries again, and drops when its buffer is full.
        silent_ns: how long ago it showed its numbers.
        counters: those of kind `recorder`.
        per_second: how they grew.
    """

    log: str
    since_ns: int
    alive: bool
    stopped: bool
    failing: bool
    silent_ns: int
    counters: Counters
    per_second: Rates = field(default_factory=lambda: NO_RATES)

    @property
    def fill(self) -> float | None:
        """The share of its buffer, 0 to 1, that is full; None where it has shown none."""
        room = self.counters.get("buffer_bytes", 0)
        return min(1.0, self.counters["buffered_bytes"] / room) if room else None

    @property
    def doing(self) -> str:
        """In a word.

        `dead`; `stopped`; `hangs`: it has shown nothing for 3 s; `drops`: it had no room since the earlier snapshot;
        `fails`: the disk refuses; `behind`: its oldest message waits for 1 s, or its buffer is half full; `records`.
        """
        if not self.alive:
            return "dead"
        if self.stopped:
            return "stopped"
        if self.silent_ns >= SILENT_NS:
            return "hangs"
        if self.per_second.get("dropped"):
            return "drops"
        if self.failing:
            return "fails"
        if self.counters.get("behind_ns", 0) >= BEHIND_NS or (self.fill or 0.0) >= CROWDED:
            return "behind"
        return "records"

    def derived(self) -> dict[str, float | str | None]:
        """What `DomainSnapshot.to_dict` adds to the fields."""
        return {"fill": self.fill, "doing": self.doing}
