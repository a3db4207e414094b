"""Summaries of segments, in numbers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipcbus.archive.segments import OpenSegment
    from ipcbus.archive.watermark import Watermark


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """The summary of a segment.

    Attributes:
        base: first offset.
        rows: number of messages, losses and other events.
        bytes: bytes of its messages, headers included.
        disk_bytes: bytes of its three files.
        closed: whether the segment is complete.
        first_receive_ns: the least receive time of its rows, in ns since the epoch; 0 without rows.
        last_receive_ns: the greatest receive time.
        losses: rows that are losses.
        lost: sequence numbers that these losses span.
        hole: offsets before the segment that were given, or may have been given, and are lost; usually 0.
        damaged: blocks with a damaged record; their rows are counted, but not the messages and losses in them.
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
        """The offset after the last row."""
        return self.base + self.rows


def summary(opened: OpenSegment, mark: Watermark, limit: int) -> Segment:
    """Returns the summary of a segment; the caller, which knows the segment before it, sets its hole."""
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
