"""A stage of a recorder, filled and emptied by hand."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ipcbus.archive import archive_layout, batch_waits
from ipcbus.archive.record_buffer import BUFFER_BYTES_MIN, RecordBuffer
from ipcbus.delivery.message_types import MessageType
from ipcbus.delivery.received_message import Origin, event, whole_message

if TYPE_CHECKING:
    from ipcbus.archive.row_block import RowBlock

PART = BUFFER_BYTES_MIN // 2
ROW = archive_layout.ROW.itemsize
LOSS, BURST = MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST
OWN = archive_layout.TYPE_LOSS_RECORDER


class Got(NamedTuple):
    """A row with its bytes."""

    topic: int
    session: int
    type: int
    first: int
    last: int
    value: bytes


class Desk:
    """A stage, and who sends to it and empties it."""

    def __init__(self, buffer_bytes: int = BUFFER_BYTES_MIN, **options: object) -> None:
        self.woken = 0
        self.room = threading.Event()
        self.stage = RecordBuffer(buffer_bytes, self._wake, self.room, **options)  # type: ignore[arg-type]
        self.origin = Origin("t", "s")
        self.got: list[Got] = []
        """Rows that are written."""
        self.held: list[RowBlock] = []

    def _wake(self) -> None:
        self.woken += 1

    def send(self, number: int, value: bytes = b"", origin: Origin | None = None, first: int | None = None) -> None:
        """A message."""
        first = number if first is None else first
        self.stage.record(whole_message(origin or self.origin, value, first, number, 0x12, 0, None))

    def event(
        self, kind: MessageType, first: int = -1, last: int = -1, origin: Origin | None = None, following: int = 0
    ) -> None:
        """An event."""
        self.stage.record(event(origin or self.origin, kind, first, last, following))

    def starves(self) -> bool:
        """Whether the last message found no memory."""
        return self.stage.out_of_memory

    def hold(self) -> bool:
        """Takes a buffer and keeps it."""
        buffer = self.stage.take()
        if buffer is not None:
            self.held.append(buffer)
        return buffer is not None

    def write(self) -> None:
        """Writes the oldest buffer that is kept, and gives it back."""
        buffer = self.held.pop(0)
        rows, data = buffer.rows, buffer.data
        place = 0
        for row, numbers in zip(rows, batch_waits.numbers(rows).tolist(), strict=True):
            begin, end = int(row["position"]), int(row["position"]) + int(row["headers"]) + int(row["length"])
            assert begin == place
            place = end
            value = data[begin + int(row["headers"]) : end].tobytes()
            last = int(row["sequence"])
            self.got.append(Got(row["topic"], row["session"], row["type"], last - numbers + 1, last, value))
        assert place == len(data)
        assert (np.diff(rows["receive_ns"]) >= 0).all()
        self.stage.give_back(buffer)

    def drain(self) -> list[Got]:
        """Writes everything; returns all rows so far."""
        while True:
            settled = self.stage.flush_notes()
            while self.hold():
                pass
            if not self.held:
                assert settled
                assert self.stage.filled == 0
                return self.got
            while self.held:
                self.write()
