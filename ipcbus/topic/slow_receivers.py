"""Who keeps a waiting source waiting, and for how long. No clock: the time is passed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Reader = tuple[int, int]
"""A slot, and the generation of who has it."""

LOOKS_MIN: Final = 4
"""So many looks at least find a reader in the way before it has been there for too long: time in which nobody looked,
because source and reader were stopped together, counts only a little."""


@dataclass(slots=True)
class _HoldUp:
    """A reader in the way: the position that was needed when that began, and how long the source has waited since."""

    needed: int
    held_ns: int = 0


class SlowReceivers:
    """The readers in the way of one writer.

    A reader is in the way from the look that finds it before the position that is needed, until it reaches that one. If
    more is needed then, that is a new matter: a slow reader that makes each room in time is never in the way for long.
    """

    def __init__(self, patience_ns: int) -> None:
        """Nobody is in the way.

        Args:
            patience_ns: for how long a reader may be.
        """
        self._patience_ns = patience_ns
        self._step_ns = max(1, patience_ns // LOOKS_MIN)
        self._held: dict[Reader, _HoldUp] = {}
        self._looked_ns: int | None = None

    def look(self, needed: int, positions: Mapping[Reader, int], now_ns: int) -> list[Reader]:
        """Returns the source waits, now as at the look before this one unless it went on in between.

        Args:
            needed: position that all readers have to reach for it to go on.
            positions: those of all readers.
            now_ns: the time.

        Returns:
            The readers that have been in the way for too long; they are forgotten.
        """
        passed = 0 if self._looked_ns is None else min(now_ns - self._looked_ns, self._step_ns)
        self._looked_ns = now_ns
        held = {}
        for reader, position in positions.items():
            known = self._held.get(reader)
            if known is not None and position >= known.needed:
                known = None
            if position < needed:
                if known is None:
                    known = _HoldUp(needed)
                else:
                    known.held_ns += passed
            if known is not None:
                held[reader] = known
        late = [reader for reader, known in held.items() if known.held_ns >= self._patience_ns]
        self._held = {reader: known for reader, known in held.items() if known.held_ns < self._patience_ns}
        return late

    def go_on(self) -> None:
        """The source does not wait any more: what passes until the next look counts for nobody."""
        self._looked_ns = None

    @property
    def next_look_ns(self) -> int:
        """After how many ns to look again."""
        longest = max((known.held_ns for known in self._held.values()), default=0)
        return max(1, min(self._step_ns, self._patience_ns - longest))
