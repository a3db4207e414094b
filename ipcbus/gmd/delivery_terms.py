"""The delivery mode and timeout of a source's messages as runs of numbers, and the deadlines that follow from them."""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from ipcbus.gmd import sender_notes
from ipcbus.gmd.delivery_modes import ALL
from ipcbus.gmd.gmd_settings import FOREVER_NS
from ipcbus.gmd.sender_notes import TIMEOUT, Note
from ipcbus.wire.control_messages import NUMBER_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class DeliveryTerms:
    """Mode and timeout of each message, as runs: a change costs memory, a message does not."""

    def __init__(self) -> None:
        """Begins with mode `ALL` and no timeout for all numbers."""
        self._begins = [0]
        self._terms = [(ALL, 0)]

    def change(self, number: int, mode: int, timeout_ns: int) -> None:
        """Sets the terms of all messages from a number on; numbers of the calls do not decrease."""
        while self._begins and self._begins[-1] >= number:
            del self._begins[-1], self._terms[-1]
        if not self._terms or self._terms[-1] != (mode, timeout_ns):
            self._begins.append(number)
            self._terms.append((mode, timeout_ns))

    @property
    def current(self) -> tuple[int, int]:
        """Mode and timeout of the messages to come."""
        return self._terms[-1]

    def runs(self, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
        """Yields the runs within a range of numbers: first and last number, mode, timeout in ns."""
        at = max(0, bisect_right(self._begins, first) - 1)
        while first <= last:
            end = min(last, self._begins[at + 1] - 1) if at + 1 < len(self._begins) else last
            yield (first, end, *self._terms[at])
            first = end + 1
            at += 1

    def timeout_of(self, number: int) -> int:
        """The timeout of a message in ns; 0: it has none."""
        return next(self.runs(number, number))[3]

    def notes(self, first: int) -> Iterator[bytes]:
        """Yields the notes of the timeouts from a number on; the records of the messages have the modes."""
        for begin, _, _, timeout_ns in self.runs(first, NUMBER_MAX):
            yield timeout_note(begin, timeout_ns)

    def recover(self, modes: Iterable[tuple[int, int]], timeouts: Iterable[tuple[int, int]]) -> None:
        """Takes over modes and timeouts, each from a number on."""
        mode_of, timeout_of = dict(modes), dict(timeouts)
        mode, timeout_ns = self.current
        for number in sorted({*mode_of, *timeout_of}):
            mode, timeout_ns = mode_of.get(number, mode), timeout_of.get(number, timeout_ns)
            self.change(number, mode, timeout_ns)

    def drop_below(self, number: int) -> None:
        """Forgets the runs that end below a number."""
        gone = bisect_right(self._begins, number) - 1
        if gone > 0:
            del self._begins[:gone], self._terms[:gone]


def timeout_note(number: int, timeout_ns: int) -> bytes:
    """Returns the note that messages from a number on have this timeout."""
    return sender_notes.encode(Note(TIMEOUT, ranges=((number, timeout_ns),)))


class Deadlines:
    """When runs of messages fail unless they are acknowledged.

    Messages of one timeout that are noted within a hundredth of it share a deadline, the latest of them.
    """

    def __init__(self) -> None:
        """Begins without deadlines."""
        self._heap: list[tuple[int, int, int]] = []
        self._open: tuple[int, int, int, int] | None = None  # first, last, timeout, when it was begun
        self._open_due_ns = FOREVER_NS

    def add(self, first: int, last: int, timeout_ns: int, now_ns: int) -> None:
        """Takes note that messages have this long from now on."""
        begun = self._open
        if (
            begun is not None
            and begun[1] + 1 == first
            and begun[2] == timeout_ns
            and now_ns - begun[3] <= timeout_ns // 100
        ):
            first, began_ns = begun[0], begun[3]
        else:
            self._close()
            began_ns = now_ns
        self._open, self._open_due_ns = (first, last, timeout_ns, began_ns), now_ns + timeout_ns

    @property
    def next_ns(self) -> int:
        """When `take` may have something; FOREVER_NS without a deadline."""
        return min(self._open_due_ns, self._heap[0][0]) if self._heap else self._open_due_ns

    def take(self, now_ns: int) -> Iterator[tuple[int, int]]:
        """Removes and yields the ranges of numbers whose time is over."""
        if self._open_due_ns <= now_ns:
            self._close()
        while self._heap and self._heap[0][0] <= now_ns:
            _, first, last = heappop(self._heap)
            yield first, last

    def _close(self) -> None:
        if self._open is not None:
            heappush(self._heap, (self._open_due_ns, self._open[0], self._open[1]))
            self._open, self._open_due_ns = None, FOREVER_NS
