"""Logs that named receivers write while they are killed: what came in which process, and whether that is all of it."""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING

from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UNRECORDED = 64
"""Default of option gmd_unrecorded_maximum."""


def lines(log: Path) -> list[tuple[int, ...]]:
    """The whole lines of a log."""
    text = log.read_text() if log.exists() else ""
    return [tuple(map(int, line.split())) for line in text[: text.rfind("\n") + 1].splitlines()]


def until(condition: Callable[[], object], what: str) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.001)


class ReceiverLog:
    """The log of one named receiver and topic (`Peer.note_guaranteed`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lives = [0]
        """Where the lines of each process begin."""

    def begin_life(self) -> None:
        """The process that wrote it is dead; the next one has not begun."""
        self.lives.append(len(lines(self.path)))

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.path.stat().st_size if self.path.exists() else 0

    def await_more(self, size: int) -> None:
        """Waits until it is longer."""
        until(lambda: self.size > size, f"messages for {self.path.name}")

    def check(self, content: Callable[[int], bytes], last: int, *, losses_at_ends: bool = False) -> None:
        """Asserts that all messages came in order; what came again has the flag, and is not more than is unrecorded.

        Args:
            content: returns the bytes of a message.
            last: the number of the last message.
            losses_at_ends: whether losses may be reported, at the ends of sessions whose source was killed.
        """
        got = lines(self.path)
        assert losses_at_ends or not any(each[0] < 0 for each in got), "messages were reported lost"
        assert [each for each in got if each[0] >= 0 and each[1] != zlib.crc32(content(each[0]))] == [], (
            "messages hold other bytes"
        )
        highest = 0
        for begin, end in zip(self.lives, [*self.lives[1:], len(got)], strict=True):
            life = [each for each in got[begin:end] if each[0] >= 0]
            numbers = [number for number, _, _ in life]
            assert numbers == sorted(set(numbers)), "a process got a message twice, or out of order"
            repeated = [again for number, _, again in life if number <= highest]
            assert all(repeated), "a message came again without the flag"
            assert len(repeated) <= UNRECORDED
            new = [number for number in numbers if number > highest]
            assert new == list(range(highest + 1, highest + 1 + len(new)))
            highest += len(new)
        assert highest == last
