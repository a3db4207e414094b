"""Logs that named receivers write while they are killed: what came in which process, and whether that is all of it."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UNRECORDED = 64
"""Default of option gmd_unrecorded_maximum."""


def lines(log: Path) -> list[tuple[int, ...]]:
    """The whole lines of a log."""
    text = log.read_text() if log.exists() else ""
    return [tuple(map(int, line.split())) for line in text[: text.rfind("\n") + 1].splitlines()]


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

    def check(self, content: Callable[[int], bytes], last: int, unrecorded: int = UNRECORDED) -> None:
        """Asserts that all messages came in order; what came again has the flag, and is not more than is unrecorded.

        Args:
            content: returns the bytes of a message.
            last: the number of the last message.
            unrecorded: gmd_unrecorded_maximum of the receivers.
        """
        got = lines(self.path)
        assert not any(each[0] < 0 for each in got), "messages were reported lost"
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
            assert len(repeated) <= unrecorded
            new = [number for number in numbers if number > highest]
            assert new == list(range(highest + 1, highest + 1 + len(new)))
            highest += len(new)
        assert highest == last
