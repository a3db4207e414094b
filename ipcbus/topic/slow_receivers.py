"""Finds the receivers that keep a source waiting for too long. No clock: the time is passed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Reader = tuple[int, int]
"""A slot, and the generation of its reader."""

CHECKS_MIN: Final = 4
"""A reader is late only after this number of checks at least. Time without checks, in which source and reader were
stopped together, counts only a little."""


@dataclass(slots=True)
class _Delay:
    """A reader in the way: the position that the source needed when the delay began, and the time waited since."""

    needed: int
    delay_ns: int = 0


class SlowReceivers:
    """The readers in the way of one writer.

    A delay of a reader begins with the check that finds it before the needed position. The delay ends when the reader
    reaches that position. If the source then needs more, a new delay begins: a slow reader that makes each room in time
    is never late.
    """

    def __init__(self, limit_ns: int) -> None:
        """Makes an object without delays.

        Args:
            limit_ns: for how long a reader may be in the way.
        """
        self._limit_ns = limit_ns
        self._step_ns = max(1, limit_ns // CHECKS_MIN)
        self._delays: dict[Reader, _Delay] = {}
        self._checked_ns: int | None = None

    def find_late(self, needed: int, positions: Mapping[Reader, int], now_ns: int) -> list[Reader]:
        """Checks the readers of a source that waits; it has waited since the last check, unless it resumed in between.

        Args:
            needed: the position that all readers have to reach so that the source can send.
            positions: the positions of all readers.
            now_ns: the time.

        Returns:
            The readers that were in the way for too long; their delays are forgotten.
        """
        passed = 0 if self._checked_ns is None else min(now_ns - self._checked_ns, self._step_ns)
        self._checked_ns = now_ns
        delays = {}
        for reader, position in positions.items():
            delay = self._delays.get(reader)
            if delay is not None and position >= delay.needed:
                delay = None
            if position < needed:
                if delay is None:
                    delay = _Delay(needed)
                else:
                    delay.delay_ns += passed
            if delay is not None:
                delays[reader] = delay
        late = [reader for reader, delay in delays.items() if delay.delay_ns >= self._limit_ns]
        self._delays = {reader: delay for reader, delay in delays.items() if delay.delay_ns < self._limit_ns}
        return late

    def resume(self) -> None:
        """Notes that the source does not wait any more: the time until the next check counts for no reader."""
        self._checked_ns = None

    @property
    def next_check_ns(self) -> int:
        """The ns until the next check."""
        longest = max((delay.delay_ns for delay in self._delays.values()), default=0)
        return max(1, min(self._step_ns, self._limit_ns - longest))
