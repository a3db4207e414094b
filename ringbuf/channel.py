"""A ring and its control block together: the writer owns them, readers join them."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringbuf import clock, layout, liveness, segment
from ringbuf.ring import RingReader, RingWriter
from ringbuf.ring_errors import SegmentMismatch, SegmentRefused
from ringbuf.slots import OWNER_BYTE, Identity, SlotTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringbuf.memory import Mapping

CLOSED_BYTES_MAX = 1 << 28
"""Bytes of the rings of closed channels that wait for the interpreter's collector."""


class _ClosedChannels:
    """Collects closed channels when their rings have too many bytes together.

    The objects of a session refer to each other, so that its memory stays until the interpreter collects them. That may
    take long: the interpreter goes by the number of objects, not by their bytes.
    """

    def __init__(self) -> None:
        self._all: weakref.WeakSet[OwnedChannel | JoinedChannel] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._bytes_max = CLOSED_BYTES_MAX

    def add(self, channel: OwnedChannel | JoinedChannel) -> None:
        """Takes note of a channel that is closed."""
        with self._lock:
            self._all.add(channel)
            if self._bytes() <= self._bytes_max:
                return
        gc.collect()
        with self._lock:
            self._bytes_max = max(CLOSED_BYTES_MAX, 2 * self._bytes())  # the application refers to what is left

    def _bytes(self) -> int:
        return sum(each.ring.size for each in self._all)


_closed = _ClosedChannels()


@dataclass(frozen=True, slots=True)
class Shape:
    """The settings of a new ring.

    Attributes:
        session_id: 32-bit number that ties ring and control block together.
        window: bytes of data at least; the ring has the next power of two.
        record_max: longest record in bytes, its header included.
        source_paced: whether the writer never waits; see `ringbuf.ring`.
        evicts: whether readers may be evicted; not together with source_paced.
        control_extra: bytes for the layer above at the end of the control block, which are never cleared.
        checksums: whether each record has a checksum; `record_max` includes it.
        slots_max: most readers at a time, 1 to 64.
        ring_user: bytes for the layer above in the ring object.
        control_user: bytes for the layer above in the control block: 64-bit words in which bit i belongs to slot i.
        group: system group that may use the objects too; empty for none.
    """

    session_id: int
    window: int
    record_max: int
    source_paced: bool
    slots_max: int
    ring_user: int
    control_user: int
    group: str = ""
    evicts: bool = False
    checksums: bool = False
    control_extra: int = 0


def fill(ring: Mapping, control: Mapping, shape: Shape) -> None:
    """Writes the headers of a new ring and control block."""
    words = np.frombuffer(control.view(), layout.CONTROL_HEADER, 1)[0]
    words["layout_id"], words["kind"] = layout.LAYOUT_ID, layout.KIND_CONTROL
    words["total_bytes"], words["session_id"] = control.size, shape.session_id
    words["slots_max"], words["slots_offset"] = shape.slots_max, layout.slots_offset(shape.control_user)
    words["user_offset"], words["user_bytes"] = layout.CONTROL_HEADER.itemsize, shape.control_user
    words["version"] = layout.VERSION
    words["owner_parked"] = 1  # until the owner's context looks at the calls without being woken
    words["magic"] = layout.MAGIC
    header = np.frombuffer(ring.view(), layout.RING_HEADER, 1)[0]
    capacity, data = layout.ring_capacity(shape.window), layout.data_offset(shape.ring_user)
    header["layout_id"], header["kind"] = layout.LAYOUT_ID, layout.KIND_RING
    header["total_bytes"], header["capacity"], header["data_offset"] = ring.size, capacity, data
    header["user_offset"], header["user_bytes"] = layout.RING_HEADER.itemsize, shape.ring_user
    receiver_paced = layout.RECEIVER_PACED_EVICTS if shape.evicts else layout.RECEIVER_PACED
    header["pacing"] = layout.SOURCE_PACED if shape.source_paced else receiver_paced
    header["record_max"], header["session_id"] = shape.record_max, shape.session_id
    header["clock"], header["version"] = clock.kind(), layout.VERSION
    header["pid"], header["uid"], header["start_ns"] = os.getpid(), os.geteuid(), time.time_ns()
    header["checksums"] = shape.checksums
    header["magic"] = layout.MAGIC


def touch(channel: OwnedChannel | JoinedChannel, maximum: int) -> None:
    """Touches the pages of a ring of at most `maximum` bytes: its first pass is as fast as the others.

    A page that a process has not used takes 1 to 4 us at the first record in it.
    """
    end = channel.writer if isinstance(channel, OwnedChannel) else channel.reader
    if end.capacity <= maximum:
        channel.ring.touch()


class OwnedChannel:
    """The writer's side: creates both objects, holds the owner's lock, and removes the objects at the end."""

    def __init__(self, ring_name: str, control_name: str, shape: Shape) -> None:
        """Creates ring and control block.

        Raises:
            FileExistsError: an object with one of the names exists.
            ringbuf.ring_errors.SegmentFull: /dev/shm has too little room; no object is left behind.
            ringbuf.ring_errors.SegmentRefused: the system or the group does not allow it.
        """
        self.ring_name, self.control_name = ring_name, control_name
        capacity = layout.ring_capacity(shape.window)
        data = layout.data_offset(shape.ring_user)
        control_size = layout.control_bytes(shape.slots_max, shape.control_user, shape.control_extra)
        self.fd = segment.create(control_name, control_size, group=shape.group)
        made = [control_name]
        try:
            liveness.take(self.fd, OWNER_BYTE)
            ring_fd = segment.create(ring_name, data + capacity, group=shape.group)
            made.append(ring_name)
            try:
                self.ring = segment.map_fd(ring_fd, write=True, twice_from=data)
            finally:
                os.close(ring_fd)
            self.control = segment.map_fd(self.fd, write=True)
            fill(self.ring, self.control, shape)
            self.writer = RingWriter(self.ring, self.control)
            self.slots = SlotTable(self.control, self.fd)
        except BaseException:
            for name in made:
                segment.remove(name)
            self.abandon()
            raise

    def close(self) -> None:
        """Marks the end and removes the names; readers that joined can still read up to the end."""
        self.writer.close()
        segment.remove(self.ring_name)
        segment.remove(self.control_name)
        self.abandon()
        _closed.add(self)

    def abandon(self) -> None:
        """Closes the descriptor and with it the lock; for a child after a fork, which owns nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class JoinedChannel:
    """A reader's side: maps the ring read-only and holds a slot of the control block."""

    def __init__(
        self,
        ring_name: str,
        control_name: str,
        identity: Identity,
        *,
        owner_uid: int | None = None,
        sample_every: int = 16,
        checkpoint: Callable[[str], None] | None = None,
    ) -> None:
        """Opens both objects, claims a slot and joins at the end of the ring.

        Args:
            ring_name: name of the ring object.
            control_name: name of the control block.
            identity: written into the slot.
            owner_uid: when given, objects of another user are refused.
            sample_every: one record in this number is timed for the latency histogram.
            checkpoint: for tests; see `SlotTable`.

        Raises:
            ringbuf.ring_errors.SegmentGone: the session has ended.
            ringbuf.ring_errors.SegmentRefused: this user may not open it, or another user owns it.
            ringbuf.ring_errors.SegmentMismatch: a program with another layout created it.
            ringbuf.ring_errors.SlotsFull: no slot is free.
        """
        ring_fd = segment.open_fd(ring_name, write=False)
        try:
            self.ring = _map_ring(ring_fd, ring_name, owner_uid)
        finally:
            os.close(ring_fd)
        self.fd = segment.open_fd(control_name, write=True)
        try:
            _check_owner(self.fd, control_name, owner_uid)
            if (size := os.fstat(self.fd).st_size) < layout.PAGE:
                raise SegmentMismatch(
                    f"{control_name} has {size} bytes, which is too small for a control block; restart its source"
                )
            self.control = segment.map_fd(self.fd, write=True)
            # Checks both headers before a slot is touched.
            RingReader(self.ring, self.control, 0)
            table = (
                SlotTable(self.control, self.fd) if checkpoint is None else SlotTable(self.control, self.fd, checkpoint)
            )
            self.slots = table
            self.index = table.claim(identity, time.time_ns())
            self.reader = RingReader(self.ring, self.control, self.index, sample_every)
            self.joined_at = table.join(self.index, self.reader)
        except BaseException:
            os.close(self.fd)
            raise

    def owner_lock(self) -> tuple[int, int]:
        """Returns the lock that the session's owner holds: its descriptor, and the byte."""
        return self.fd, OWNER_BYTE

    def owner_lives(self) -> bool:
        """Returns whether the session's owner still holds its lock."""
        return liveness.held_by_other(self.fd, OWNER_BYTE)

    def leave(self) -> bool:
        """Gives the slot back and closes; returns True when the writer waits for an event."""
        if self.fd < 0:
            return False
        self.reader.show()
        wants_event = self.slots.leave(self.index)
        self.abandon()
        _closed.add(self)
        return wants_event

    def abandon(self) -> None:
        """Closes the descriptor and with it the lock; for a child after a fork, which owns nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _check_owner(fd: int, name: str, owner_uid: int | None) -> None:
    uid = os.fstat(fd).st_uid
    if owner_uid is not None and uid != owner_uid:
        raise SegmentRefused(
            f"{name} belongs to uid {uid}, but its session belongs to uid {owner_uid}: another program made an object "
            "with this name; remove the object and restart the source"
        )


def _map_ring(fd: int, name: str, owner_uid: int | None) -> Mapping:
    """Maps a ring read-only with its data twice in a row."""
    _check_owner(fd, name, owner_uid)
    size = os.fstat(fd).st_size
    if size < layout.PAGE:
        raise SegmentMismatch(
            f"{name} has {size} bytes, which is too small for a ring: its source is just starting, or the object was "
            "cut short; try again, then restart its source"
        )
    head = np.frombuffer(os.pread(fd, layout.RING_HEADER.itemsize, 0), layout.RING_HEADER, 1)[0]
    data = int(head["data_offset"])
    if head["layout_id"] != layout.LAYOUT_ID or head["magic"] != layout.MAGIC:
        raise layout.other_layout(name, int(head["layout_id"]), int(head["version"]))
    if data % layout.PAGE or not 0 < data < size:
        raise SegmentMismatch(
            f"the header of {name} is damaged: its data cannot begin at byte {data} of {size}; restart its source"
        )
    return segment.map_fd(fd, write=False, twice_from=data)
