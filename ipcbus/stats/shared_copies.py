"""Copies of the shared objects of a session, checked before they are used.

The objects are read with `pread`, not mapped: when another program truncates an object, a read is short and its error
says why, while an access to a mapping would raise SIGBUS. Nothing is written, and no lock is taken.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ipcbus.wire.wire_layout import CLIENT_LINE, CLIENTS_SHOWN, RECEPTION_BOARD, TOPIC_LINE, UPLINK_BOARD, uplink_bytes
from ringbuf import layout, liveness, segment
from ringbuf.ring_errors import SegmentMismatch

if TYPE_CHECKING:
    Record = np.void
    Records = np.ndarray[tuple[int], np.dtype[np.void]]

Fields = dict[str, Any]
"""A structure as Python values, whose access is ten times as fast as that of numpy values."""

_TRIES = 4
_STATE = struct.Struct("<II")  # state and generation of a slot
_FREE = layout.SLOT_FREE.to_bytes(4, "little")
_IN_USE = (layout.SLOT_JOINING, layout.SLOT_ACTIVE, layout.SLOT_EVICTED)
_WORD = np.dtype("<u8")
_NO_WORDS = np.zeros(0, _WORD)
_AREA_MAX = 1 << 24
"""Largest user area in bytes; a line for every topic that options allow fits into it."""


@dataclass(frozen=True, slots=True)
class UplinkCopy:
    """The sending side of a session over UDP; `joined` has a word for each topic, with bit i for client i."""

    board: Fields
    clients: dict[int, Fields]
    joined: np.ndarray[tuple[int], np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class ReceptionCopy:
    """The ring of a context that receives a session over UDP: header, stats block, and its one reader."""

    header: Fields
    board: Fields
    slot: Fields
    parked: bool


@dataclass(frozen=True, slots=True)
class RingCopy:
    """Header and topic lines of a ring; `uplink` is None without a sending side over UDP, and before its first use."""

    header: Fields
    lines: Records
    uplink: UplinkCopy | None = None

    def line(self, number: int) -> Fields:
        """Returns the line of the topic with this number, or of the topic that has this line now."""
        return _fields(self.lines[number % len(self.lines)])


@dataclass(frozen=True, slots=True)
class ControlCopy:
    """Header, joined words and slots in use of a control block; `held` are the slots whose owner lives."""

    header: Fields
    joined: np.ndarray[tuple[int], np.dtype[np.uint64]]
    slots: dict[int, Fields]
    held: frozenset[int]


class SharedObject:
    """One shared object, open for reading."""

    def __init__(self, name: str) -> None:
        """Opens the object.

        Raises:
            ringbuf.ring_errors.RingError: the object is gone, or this user may not read it.
        """
        self.name = name
        self.fd = segment.open_fd(name, write=False)

    def __enter__(self) -> SharedObject:
        """Returns the object itself, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the object."""
        os.close(self.fd)

    def read(self, offset: int, length: int) -> bytes:
        """Returns a copy of some bytes.

        Raises:
            SegmentMismatch: the object ends before them.
        """
        data = os.pread(self.fd, length, offset)
        if len(data) < length:
            raise SegmentMismatch(
                f"{self.name} ends at byte {offset + len(data)}, but must have {offset + length} bytes or more: its "
                "owner is just starting, or the object was cut short; look again, then restart its owner"
            )
        return data

    def record(self, dtype: np.dtype[np.void], offset: int = 0) -> Record:
        """Returns a copy of one structure."""
        return np.frombuffer(self.read(offset, dtype.itemsize), dtype, 1)[0]  # type: ignore[no-any-return]

    def array(self, dtype: np.dtype[Any], count: int, offset: int) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Returns a copy of consecutive structures."""
        return np.frombuffer(self.read(offset, count * dtype.itemsize), dtype, count)

    def header(self, dtype: np.dtype[np.void], kind: int, session_id: int, what: str) -> Fields:
        """Returns the header of the object.

        Raises:
            SegmentMismatch: the object is of another kind or session, or another release made it.
        """
        header = _fields(self.record(dtype))
        if header["magic"] != layout.MAGIC or header["kind"] != kind:
            raise SegmentMismatch(
                f"{self.name} is not a {what} of ipcbus: its owner is just starting, or the object is damaged; look "
                "again, then restart its owner"
            )
        if header["layout_id"] != layout.LAYOUT_ID:
            raise layout.other_layout(self.name, header["layout_id"], header["version"])
        if header["session_id"] != session_id:
            raise SegmentMismatch(
                f"{self.name} belongs to session {header['session_id']:08x}, but the registry says {session_id:08x}; "
                "restart its owner"
            )
        if header["user_offset"] + header["user_bytes"] > _AREA_MAX:
            raise _contradiction(self.name)
        return header


def _contradiction(name: str) -> SegmentMismatch:
    return SegmentMismatch(f"the header of {name} is damaged: its sizes do not fit each other; restart its owner")


def read_control(name: str, session_id: int, topics_max: int) -> ControlCopy:
    """Returns a copy of a control block.

    Raises:
        ringbuf.ring_errors.RingError: the object cannot be read, or its header is wrong.
        OSError: the system refused.
    """
    with SharedObject(name) as shared:
        header = shared.header(layout.CONTROL_HEADER, layout.KIND_CONTROL, session_id, "control block")
        count = header["slots_max"]
        if not 0 < count <= layout.SLOTS_MAX or header["user_bytes"] < 8 * topics_max:
            raise _contradiction(name)
        slots, held = {}, set()
        for index in range(count):
            slot = _read_slot(shared, header["slots_offset"] + index * layout.SLOT.itemsize)
            if slot is not None:
                slots[index] = slot
                if liveness.held_by_other(shared.fd, index + 1):
                    held.add(index)
        joined = shared.array(_WORD, topics_max, header["user_offset"]) if topics_max else _NO_WORDS
        return ControlCopy(header, joined, slots, frozenset(held))


def _read_slot(shared: SharedObject, offset: int) -> Fields | None:
    """Returns a slot in use, with values of one owner; None if the slot is free."""
    for _ in range(_TRIES):
        # Most slots are free, so this must be fast.
        if os.pread(shared.fd, len(_FREE), offset) == _FREE:
            return None
        state, generation = _STATE.unpack(shared.read(offset, _STATE.size))
        if state not in _IN_USE:
            return None
        slot = _fields(shared.record(layout.SLOT, offset))
        if slot["state"] in _IN_USE and slot["generation"] == generation:
            return slot
    return None


def _fields(record: Record) -> Fields:
    """Returns the fields of a structure by name, as numbers, bytes and arrays."""
    return dict(zip(record.dtype.names or (), record.item(), strict=True))


def read_ring(name: str, session_id: int, topics_max: int) -> RingCopy:
    """Returns a copy of header and topic lines of a ring.

    Raises:
        ringbuf.ring_errors.RingError: the object cannot be read, or its header is wrong.
        OSError: the system refused.
    """
    with SharedObject(name) as shared:
        header = shared.header(layout.RING_HEADER, layout.KIND_RING, session_id, "ring")
        if header["user_bytes"] < topics_max * TOPIC_LINE.itemsize:
            raise _contradiction(name)
        at, size = header["user_offset"], topics_max * TOPIC_LINE.itemsize
        if header["user_bytes"] < size + uplink_bytes(topics_max):
            return RingCopy(header, shared.array(TOPIC_LINE, topics_max, at))
        # With one read, because most sessions have never sent over UDP, and need no other.
        data = shared.read(at, size + UPLINK_BOARD.itemsize)
        lines = np.frombuffer(data, TOPIC_LINE, topics_max)
        uplink = _read_uplink(shared, at + size, topics_max) if any(data[size : size + 8]) else None
        return RingCopy(header, lines, uplink)


def read_ring_header(name: str, session_id: int) -> Fields:
    """Returns a copy of the header of a ring.

    Raises:
        ringbuf.ring_errors.RingError: the object cannot be read, or its header is wrong.
        OSError: the system refused.
    """
    with SharedObject(name) as shared:
        return shared.header(layout.RING_HEADER, layout.KIND_RING, session_id, "ring")


def _read_uplink(shared: SharedObject, offset: int, topics_max: int) -> UplinkCopy:
    """Returns a copy of the sending side over UDP; consistent unless its source keeps writing, or died writing."""
    size = CLIENTS_SHOWN * CLIENT_LINE.itemsize
    for _ in range(_TRIES):
        board = _fields(shared.record(UPLINK_BOARD, offset))
        clients, joined = {}, _NO_WORDS
        if board["num_clients"]:
            at = offset + UPLINK_BOARD.itemsize
            lines = shared.array(CLIENT_LINE, CLIENTS_SHOWN, at)
            clients = {int(line): _fields(lines[line]) for line in np.flatnonzero(lines["used"])}
            joined = shared.array(_WORD, topics_max, at + size)
        if board["version"] % 2 == 0 and shared.read(offset, 8) == board["version"].to_bytes(8, "little"):
            break
    return UplinkCopy(board, clients, joined)


def read_reception(ring_name: str, control_name: str, session_id: int) -> ReceptionCopy:
    """Returns a copy of the objects of a context for a session that it receives over UDP.

    Raises:
        ringbuf.ring_errors.RingError: an object cannot be read, or its header is wrong.
        OSError: the system refused.
    """
    control = read_control(control_name, session_id, 0)
    slot = control.slots.get(0)
    if slot is None:
        raise SegmentMismatch(
            f"the context of {ring_name} does not read it: it is just joining the session, or leaves it; look again"
        )
    with SharedObject(ring_name) as shared:
        header = shared.header(layout.RING_HEADER, layout.KIND_RING, session_id, "ring")
        if header["user_bytes"] < RECEPTION_BOARD.itemsize:
            raise _contradiction(ring_name)
        for _ in range(_TRIES):
            board = _fields(shared.record(RECEPTION_BOARD, header["user_offset"]))
            if board["version"] % 2 == 0:
                break
    return ReceptionCopy(header, board, slot, bool(control.header["parked"] & 1))
