"""Copies of what a session's two shared objects say, checked before anything of it is used.

The objects are read with `pread`, not mapped: an object that its owner, or somebody with bad intent, cuts short is
then a short read with a reason, where touching a mapping would be a SIGBUS. Nothing is written and no lock is taken.
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
"""A structure as Python values: those of numpy take ten times as long to look at."""

_TRIES = 4
_STATE = struct.Struct("<II")  # state and generation of a slot
_FREE = layout.SLOT_FREE.to_bytes(4, "little")
_IN_USE = (layout.SLOT_JOINING, layout.SLOT_ACTIVE, layout.SLOT_EVICTED)
_WORD = np.dtype("<u8")
_NO_WORDS = np.zeros(0, _WORD)
_AREA_MAX = 1 << 24
"""No user area is larger: that many bytes hold a line for every topic that options allow."""


@dataclass(frozen=True, slots=True)
class UplinkCopy:
    """What a session's uplink shows; `joined` has a word a topic, in which bit i is of client i."""

    board: Fields
    clients: dict[int, Fields]
    joined: np.ndarray[tuple[int], np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class ReceptionCopy:
    """The own ring of a context that receives a session over UDP: header, board, and its one reader."""

    header: Fields
    board: Fields
    slot: Fields
    parked: bool


@dataclass(frozen=True, slots=True)
class RingCopy:
    """Header and topic lines of a ring, and what its uplink shows; None without one, or before it shows anything."""

    header: Fields
    lines: Records
    uplink: UplinkCopy | None = None

    def line(self, number: int) -> Fields:
        """Returns the line of the topic with this number, or of another one that has its place now."""
        return _fields(self.lines[number % len(self.lines)])


@dataclass(frozen=True, slots=True)
class ControlCopy:
    """Header, joined words and the slots in use of a control block; `held` are those whose owner lives."""

    header: Fields
    joined: np.ndarray[tuple[int], np.dtype[np.uint64]]
    slots: dict[int, Fields]
    held: frozenset[int]


class SharedObject:
    """One shared object, open for reading."""

    def __init__(self, name: str) -> None:
        """Opens it.

        Raises:
            ringbuf.ring_errors.RingError: it is gone, refused, or nothing that can be read.
        """
        self.name = name
        self.fd = segment.open_fd(name, write=False)

    def __enter__(self) -> SharedObject:
        """The object itself; closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        os.close(self.fd)

    def read(self, offset: int, length: int) -> bytes:
        """Returns a copy of some bytes.

        Raises:
            SegmentMismatch: the object ends before.
        """
        data = os.pread(self.fd, length, offset)
        if len(data) < length:
            raise SegmentMismatch(
                f"{self.name} ends at byte {offset + len(data)}, before byte {offset + length}; its owner is just "
                "starting, or damaged"
            )
        return data

    def record(self, dtype: np.dtype[np.void], offset: int = 0) -> Record:
        """Returns a copy of one structure."""
        return np.frombuffer(self.read(offset, dtype.itemsize), dtype, 1)[0]  # type: ignore[no-any-return]

    def array(self, dtype: np.dtype[Any], count: int, offset: int) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Returns a copy of several structures in a row."""
        return np.frombuffer(self.read(offset, count * dtype.itemsize), dtype, count)

    def header(self, dtype: np.dtype[np.void], kind: int, session_id: int, what: str) -> Fields:
        """Returns the header, if the object is what its name says.

        Raises:
            SegmentMismatch: it is not, or another release made it.
        """
        header = _fields(self.record(dtype))
        if header["magic"] != layout.MAGIC or header["kind"] != kind:
            raise SegmentMismatch(f"{self.name} is no {what} of ipcbus; its owner is just starting, or damaged")
        if header["layout_id"] != layout.LAYOUT_ID:
            raise SegmentMismatch(
                f"{self.name} was made by layout {header['layout_id']:#010x} version {header['version']}, "
                f"this program has {layout.LAYOUT_ID:#010x} version {layout.VERSION}; run the same release of ipcbus"
            )
        if header["session_id"] != session_id:
            raise SegmentMismatch(
                f"{self.name} belongs to session {header['session_id']:08x}, not to {session_id:08x}; its owner "
                "is damaged, restart it"
            )
        if header["user_offset"] + header["user_bytes"] > _AREA_MAX:
            raise SegmentMismatch(f"the header of {self.name} contradicts itself; its owner is damaged, restart it")
        return header


def read_control(name: str, session_id: int, topics_max: int) -> ControlCopy:
    """Copies a control block.

    Raises:
        ringbuf.ring_errors.RingError: it cannot be read, or is not what it should be.
        OSError: the system refused.
    """
    with SharedObject(name) as shared:
        header = shared.header(layout.CONTROL_HEADER, layout.KIND_CONTROL, session_id, "control block")
        count = header["slots_max"]
        if not 0 < count <= layout.SLOTS_MAX or header["user_bytes"] < 8 * topics_max:
            raise SegmentMismatch(f"the header of {name} contradicts itself; its owner is damaged, restart it")
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
    """Returns a slot in use, all of it of the same owner; None when it is free."""
    for _ in range(_TRIES):
        # Most slots are free, so this is the one line of a snapshot that runs thousands of times.
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
    """By name, as numbers, bytes, and arrays."""
    return dict(zip(record.dtype.names or (), record.item(), strict=True))


def read_ring(name: str, session_id: int, topics_max: int) -> RingCopy:
    """Copies header and topic lines of a ring.

    Raises:
        ringbuf.ring_errors.RingError: it cannot be read, or is not what it should be.
        OSError: the system refused.
    """
    with SharedObject(name) as shared:
        header = shared.header(layout.RING_HEADER, layout.KIND_RING, session_id, "ring")
        if header["user_bytes"] < topics_max * TOPIC_LINE.itemsize:
            raise SegmentMismatch(f"the header of {name} contradicts itself; its owner is damaged, restart it")
        at, size = header["user_offset"], topics_max * TOPIC_LINE.itemsize
        if header["user_bytes"] < size + uplink_bytes(topics_max):
            return RingCopy(header, shared.array(TOPIC_LINE, topics_max, at))
        # In one go: most uplinks have never been used, and then that was all.
        data = shared.read(at, size + UPLINK_BOARD.itemsize)
        lines = np.frombuffer(data, TOPIC_LINE, topics_max)
        uplink = _read_uplink(shared, at + size, topics_max) if any(data[size : size + 8]) else None
        return RingCopy(header, lines, uplink)


def _read_uplink(shared: SharedObject, offset: int, topics_max: int) -> UplinkCopy:
    """What an uplink shows, all of it written at one time unless its source keeps writing, or died while it wrote."""
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
    """Copies what a context shows of a session that it receives over UDP.

    Raises:
        ringbuf.ring_errors.RingError: it cannot be read, or is not what it should be.
        OSError: the system refused.
    """
    control = read_control(control_name, session_id, 0)
    slot = control.slots.get(0)
    if slot is None:
        raise SegmentMismatch(f"nobody reads {ring_name}; its owner is just starting, or leaving")
    with SharedObject(ring_name) as shared:
        header = shared.header(layout.RING_HEADER, layout.KIND_RING, session_id, "ring")
        if header["user_bytes"] < RECEPTION_BOARD.itemsize:
            raise SegmentMismatch(f"the header of {ring_name} contradicts itself; its owner is damaged, restart it")
        for _ in range(_TRIES):
            board = _fields(shared.record(RECEPTION_BOARD, header["user_offset"]))
            if board["version"] % 2 == 0:
                break
    return ReceptionCopy(header, board, slot, bool(control.header["parked"] & 1))
