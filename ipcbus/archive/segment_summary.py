"""What a segment holds, in numbers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipcbus.archive.segments import OpenSegment
    from ipcbus.archive.watermark import Watermark


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """What a segment holds.

    Attributes:
        base: its first offset.
        rows: messages, losses and other events.
        bytes: of its messages, headers included.
        disk_bytes: of its three files.
        closed: whether no more will be written into it.
        first_receive_ns: the least receive time of its rows, in ns since the epoch; 0 when it has none.
        last_receive_ns: the greatest.
        losses: rows that are losses.
        lost: what those rows lost together, in sequence numbers.
        hole: offsets before it that were given, or may have been given, and are lost; 0 as a rule.
        damaged: blocks whose record is damaged; their rows are counted, not what is in them.
    """

    base: int
    rows: int
    bytes: int
    disk_bytes: int
    closed: bool
    first_receive_ns: int
    last_receive_ns: int
    losses: int
    lost: int
    hole: int
    damaged: int

    @property
    def end(self) -> int:
        """The offset after its last row."""
        return self.base + self.rows


def summary(opened: OpenSegment, mark: Watermark, limit: int) -> Segment:
    """What a segment holds; its hole is filled in by who knows the segment before it."""
    written = opened.base == mark.base
    size = losses = lost = damaged = 0
    times: list[int] = []
    for found in opened.all_records():
        good = [block for block in found if block is not None]
        size += sum(block.bytes for block in good)
        losses += sum(block.losses for block in good)
        lost += sum(block.lost for block in good)
        damaged += len(found) - len(good)
        times += (
            [min(block.first_receive_ns for block in good), max(block.last_receive_ns for block in good)]
            if good
            else []
        )
    return Segment(
        base=opened.base,
        rows=(mark.next_offset if written else min(opened.end(), limit)) - opened.base,
        bytes=size,
        disk_bytes=opened.blk.size() + opened.idx.size() + opened.dat.size(),
        closed=not written,
        first_receive_ns=min(times, default=0),
        last_receive_ns=max(times, default=0),
        losses=losses,
        lost=lost,
        hole=0,
        damaged=damaged,
    )
