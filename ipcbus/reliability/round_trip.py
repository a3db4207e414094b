"""The measured times of a session at its receiver: the round trip, and how late datagrams come that are overtaken."""

from __future__ import annotations

from typing import Final

_UNKNOWN_NS: Final = 20_000_000
"""The round trip before the first measurement."""
_FIRST_MAX_NS: Final = 50_000_000
"""Longest measured time before the first NAK: Ultra Messaging's default for groups."""
_ANSWER_MIN_NS: Final = 5_000_000
_REPEAT_MIN_NS: Final = 10_000_000
_ANSWER_MAX_NS: Final = 500_000_000


class RoundTrip:
    """Smoothed times, as TCP measures them: a mean, and a mean deviation from it."""

    def __init__(self) -> None:
        self._mean = self._deviation = 0.0
        self._late = self._late_deviation = 0.0
        self._measured = False

    def note_answer(self, passed_ns: int) -> None:
        """Takes the time from a question, which was asked once, to its answer."""
        if not self._measured:
            self._measured, self._mean, self._deviation = True, passed_ns, passed_ns / 2
            return
        self._deviation += (abs(passed_ns - self._mean) - self._deviation) / 4
        self._mean += (passed_ns - self._mean) / 8

    def note_overtaken(self, late_ns: int) -> None:
        """Takes how long after a later datagram one came that was only overtaken."""
        self._late_deviation += (abs(late_ns - self._late) - self._late_deviation) / 8
        self._late += (late_ns - self._late) / 8

    def note_loss(self) -> None:
        """Takes note that a datagram was lost, and not overtaken: the times of those fade slowly."""
        self._late -= self._late / 64
        self._late_deviation -= self._late_deviation / 64

    @property
    def ns(self) -> int:
        """The smoothed round trip."""
        return int(self._mean) if self._measured else _UNKNOWN_NS

    @property
    def first_backoff_ns(self) -> int:
        """The time from a loss to the first NAK: a quarter of the round trip, and what overtaken datagrams need."""
        return min(max(self.ns // 4, int(self._late + 4 * self._late_deviation)), _FIRST_MAX_NS)

    @property
    def answer_ns(self) -> int:
        """The time after which a NAK, or its answer, counts as lost."""
        return min(max(2 * self.ns, self.ns + int(4 * self._deviation), _ANSWER_MIN_NS), _ANSWER_MAX_NS)

    @property
    def repeat_ns(self) -> int:
        """The time between two NAKs for a number: the datagram should have come by then."""
        return min(max(5 * self.ns // 4, self.ns + int(4 * self._deviation), _REPEAT_MIN_NS), _ANSWER_MAX_NS)
