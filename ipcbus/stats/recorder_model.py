"""The part of a snapshot about recorders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ipcbus.stats.udp_model import NO_RATES, Counters, Rates

BEHIND_NS: Final = 1_000_000_000
"""A recorder is behind when its oldest message has waited for this time."""
CROWDED: Final = 0.5
"""A recorder is also behind when this share of its buffer is full, because it writes more slowly than it receives."""
SILENT_NS: Final = 3_000_000_000
"""A recorder hangs when it has shown nothing for this time; a working one shows its numbers several times a second."""


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """A recorder of a context, which writes messages into a log of an archive.

    Attributes:
        log: path of the log: the path of the archive and the stream; the end of a long path.
        since_ns: when the recorder was started, ns since the epoch.
        alive: whether its process lives.
        stopped: whether its process is stopped, for example by SIGSTOP or a debugger.
        failing: whether writing to the disk fails; the recorder tries again, and drops messages when its buffer is
            full.
        silent_ns: time since the recorder showed its numbers.
        counters: counters of kind `recorder`.
        per_second: growth of the counters a second.
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
        """Share of the buffer that is full, 0 to 1; None before the recorder has shown its buffer."""
        room = self.counters.get("buffer_bytes", 0)
        return min(1.0, self.counters["buffered_bytes"] / room) if room else None

    @property
    def doing(self) -> str:
        """The state of the recorder in one word.

        `dead`; `stopped`; `hangs`: it has shown nothing for 3 s; `drops`: it dropped messages since the earlier
        snapshot; `fails`: writing to the disk fails; `behind`: its oldest message has waited for 1 s, or its buffer is
        half full; `records`.
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
        """Returns the values that `DomainSnapshot.to_dict` adds to the fields."""
        return {"fill": self.fill, "doing": self.doing}
