"""Builds the part of a segment that is written before the segment gets its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.gmd import journal_layout as layout
from ipcbus.gmd.journal_records import end_mark, pack, segment_stamp
from ipcbus.gmd.journal_segments import SegmentHead

if TYPE_CHECKING:
    from ipcbus.gmd.journal_segments import Checkpoint
    from ipcbus.gmd.sender_area import SavedMessage


class SegmentBuilder:
    """The begin of a segment."""

    def __init__(self, incarnation: int, serial: int, checkpoint: Checkpoint, notes: list[bytes]) -> None:
        """Begins with the state."""
        self.moves: list[tuple[int, int, int, int]] = []
        """Number, offset, length and mode of each message that was copied."""
        self._incarnation, self._serial, self._checkpoint = incarnation, serial, checkpoint
        self._stamp = segment_stamp(incarnation, serial)
        self._pieces: list[bytes] = []
        self._end = layout.SEGMENT_HEAD.itemsize
        self._state = checkpoint.pack()
        self._add(pack(layout.KIND_CHECKPOINT, self._stamp, self._end, checkpoint.last_number, body=self._state))
        for note in notes:
            self._add(pack(layout.KIND_NOTE, self._stamp, self._end, checkpoint.last_number, body=note))

    def copy(self, message: SavedMessage) -> None:
        """Adds a message of an older segment."""
        record = pack(
            layout.KIND_COPY,
            self._stamp,
            self._end,
            message.number,
            first=message.send_time_ns,
            second=message.place,
            mode=message.mode,
            block=message.block,
            body=message.data,
        )
        self.moves.append((message.number, self._end, len(record), message.mode))
        self._add(record)

    def finish(self, boot: bytes, capacity: int) -> tuple[bytes, int]:
        """Returns the bytes, with an end mark, and the capacity: a state that is large makes the segment larger.

        Args:
            boot: see `Files.boot_id`.
            capacity: bytes of a usual segment.
        """
        last = self._checkpoint.last_number
        self._add(pack(layout.KIND_CHECKPOINT, self._stamp, self._end, last, body=self._state))
        capacity = min(max(capacity, 4 * self._end), (1 << 32) - 1)
        head = SegmentHead(self._incarnation, self._serial, last + 1, boot, self._end, capacity)
        return b"".join((head.pack(), *self._pieces, end_mark(self._stamp, self._end))), capacity

    def _add(self, record: bytes) -> None:
        self._pieces.append(record)
        self._end += len(record)
