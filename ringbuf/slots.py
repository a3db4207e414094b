"""The readers of a ring: claiming a slot, joining, leaving, and reclaiming the slots of dead readers.

A slot belongs to the process that holds the lock of its byte (`liveness`). It counts for the writer in state ACTIVE.
The lock is taken first and released last, so one of these is true at any moment, whichever process was killed:

    lock free, state FREE     the slot is free
    lock held, any state      the owner of the slot lives (or just claims, leaves or reclaims it)
    lock free, state not FREE the reader is dead: the process that takes the lock may reset the slot

There is one exception: the writer's side changes ACTIVE to EVICTED without the lock. From then on the slot does not
count, but it stays the reader's until the reader leaves or dies, and the reader may still show positions in it.

Joining needs no answer from the writer (SYNC join): the reader shows a tail as its position, and then reads the tail
again. Either all later scans of the writer see the reader, or the second tail is beyond every scan that did not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringbuf import layout, liveness
from ringbuf.ring import RingReader, nudge_writer
from ringbuf.ring_errors import SlotsFull
from ringbuf.shared_words import SharedWords

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringbuf.memory import Mapping

OWNER_BYTE = 0
"""The lock byte of the session's owner; slot i has byte i + 1."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The process and context that hold a slot, for statistics and diagnosis."""

    pid: int
    uid: int
    context_id: int
    context_name: str


def _no_checkpoint(step: str) -> None:
    """Does nothing after each step; tests kill the process here."""


class SlotTable:
    """The slots of one control block, with one open descriptor."""

    def __init__(self, control: Mapping, fd: int, checkpoint: Callable[[str], None] = _no_checkpoint) -> None:
        """Makes the table of a control block that is mapped for writing.

        Args:
            control: the mapped control block.
            fd: its descriptor, open for writing; the open file description owns the locks.
            checkpoint: called with the name of each step after the step.
        """
        self._control = control
        self._fd = fd
        self._words = SharedWords(control)
        self._header, joined, self._slots = layout.control_view(control.view())
        self._joined_offset = int(self._header["user_offset"])
        self._joined_words = len(joined) // 8
        self._first = int(self._header["slots_offset"])
        self._checkpoint = checkpoint
        self._claimed: set[int] = set()
        self.slots_max = len(self._slots)

    def claim(self, identity: Identity, now_ns: int, *, only: int | None = None) -> int:
        """Takes a free slot, or the slot of a dead reader.

        Args:
            identity: written into the slot.
            now_ns: the time.
            only: the one slot to take; None for any.

        Returns:
            The index of the slot; its state is JOINING, and its lock is held.

        Raises:
            SlotsFull: live readers hold all slots.
        """
        for index in range(self.slots_max) if only is None else (only,):
            # The lock of a slot of this table could be taken again, as it belongs to the same open file.
            if index in self._claimed or not liveness.take(self._fd, index + 1):
                continue
            self._checkpoint("claim: lock taken")
            self._reset(index)
            if self._words.cas32(self._state(index), layout.SLOT_FREE, layout.SLOT_JOINING):
                self._claimed.add(index)
                self._checkpoint("claim: joining")
                self._write_identity(index, identity, now_ns)
                self._checkpoint("claim: introduced")
                return index
            liveness.release(self._fd, index + 1)
        raise SlotsFull(
            "all receiver slots of the session are taken by live contexts; raise "
            "transport_*_maximum_receivers_per_transport at the source, or close a receiving context"
        )

    def join(self, index: int, reader: RingReader, begin: int | None = None) -> int:
        """Makes a claimed slot active; from the returned position on the reader gets every record.

        Args:
            index: the slot.
            reader: its reader.
            begin: position of a record that another active reader has not read, and does not read during this call;
                None joins at the end.
        """
        at = self._state(index) + layout.field_offset(layout.SLOT, "position")
        if begin is not None:
            self._words.store64(at, begin)
            self._words.store32(self._state(index), layout.SLOT_ACTIVE)
            self._words.fence()  # SYNC join
            reader.start(begin)
            return begin
        shown = reader.tail
        self._words.store64(at, shown)
        self._checkpoint("join: position shown")
        self._words.store32(self._state(index), layout.SLOT_ACTIVE)
        self._checkpoint("join: active")
        self._words.fence()  # SYNC join
        position = reader.tail
        # The writer ignores a position two rings behind its own, and may be one ring past this tail by now.
        while position - shown > reader.capacity:
            shown = position
            self._words.store64(at, shown)
            self._words.fence()
            position = reader.tail
        self._words.store64(at, position)
        self._checkpoint("join: position final")
        reader.start(position)
        # The writer may wait for the position that was shown first.
        nudge_writer(self._control)
        return position

    def pause(self, index: int) -> bool:
        """Makes a claimed slot inactive until the next `join`; returns True when the writer waits for an event."""
        self._words.store32(self._state(index), layout.SLOT_JOINING)
        # The reader may continue before the last position that the writer has seen.
        self._slots[index]["generation"] += 1
        return nudge_writer(self._control)

    def leave(self, index: int) -> bool:
        """Gives a slot back; returns True when the writer waits for an event."""
        self._reset(index)
        self._checkpoint("leave: reset")
        self._claimed.discard(index)
        liveness.release(self._fd, index + 1)
        self._checkpoint("leave: lock released")
        return nudge_writer(self._control)

    def reclaim(self) -> list[int]:
        """Frees the slots of dead readers, never those of live ones.

        Returns:
            The indexes of the slots that were freed.
        """
        freed = []
        for index in range(self.slots_max):
            if self._words.load32(self._state(index)) == layout.SLOT_FREE:
                continue
            # Tested before it is taken, so that a live reader that claims the slot never fails because of this lock.
            if index in self._claimed or liveness.held_by_other(self._fd, index + 1):
                continue
            if not liveness.take(self._fd, index + 1):
                continue
            self._checkpoint("reclaim: lock taken")
            if self._reset(index):
                freed.append(index)
            self._checkpoint("reclaim: reset")
            liveness.release(self._fd, index + 1)
        if freed:
            nudge_writer(self._control)
        return freed

    def evict(self, index: int, generation: int) -> bool:
        """Evicts a reader that keeps the writer waiting; for the writer's side of a ring that evicts.

        Args:
            index: the slot of the reader.
            generation: the generation of the slot; it differs if another reader has the slot by now.

        Returns:
            Whether the reader was evicted: False when it has left, or was evicted before.
        """
        was = generation << 32 | layout.SLOT_ACTIVE
        if not self._words.cas64(self._state(index), was, generation << 32 | layout.SLOT_EVICTED):  # SYNC evict
            return False
        self._checkpoint("evict: state")
        nudge_writer(self._control)
        return True

    def generation(self, index: int) -> int:
        """Returns the number of readers that have had the slot so far."""
        return int(self._slots[index]["generation"])

    def may_have_got(self, index: int, end: int) -> bool:
        """Returns whether the reader that holds, or last held, a slot may have got a record.

        Args:
            index: the slot.
            end: the position up to which records are published.
        """
        slot, state = self._slots[index], self._words.load32(self._state(index))
        if state == layout.SLOT_JOINING:
            return False
        # The position first: a reader shows the number of its records before it.
        return state != layout.SLOT_ACTIVE or int(slot["position"]) < end or int(slot["msgs_rcved"]) > 0

    def holder(self, index: int) -> int | None:
        """Returns the generation of the reader that holds a slot, evicted or not; None when the slot is free."""
        if self._words.load32(self._state(index)) == layout.SLOT_FREE:
            return None
        return self._words.load32(self._state(index) + layout.field_offset(layout.SLOT, "generation"))

    def locks(self) -> list[tuple[int, int]]:
        """Returns descriptor and byte of the locks that the readers of other processes hold while they live."""
        free = self._words.equal32(self._first, layout.SLOT.itemsize, self.slots_max, layout.SLOT_FREE)
        taken = (index for index in range(self.slots_max) if not free >> index & 1)
        return [(self._fd, index + 1) for index in taken if index not in self._claimed]

    def offset(self, index: int) -> int:
        """Returns the offset of a slot in the control block, in bytes."""
        return self._state(index)

    def active_mask(self) -> int:
        """Returns a mask of the active slots: bit i for slot i."""
        return self._words.equal32(self._first, layout.SLOT.itemsize, self.slots_max, layout.SLOT_ACTIVE)

    def positions(self) -> dict[int, int]:
        """Returns the positions of the active readers by slot."""
        slots = self._slots
        return {i: int(slots[i]["position"]) for i in range(self.slots_max) if slots[i]["state"] == layout.SLOT_ACTIVE}

    def identity(self, index: int) -> Identity:
        """Returns the identity of the reader that holds, or last held, the slot."""
        slot = self._slots[index]
        name = bytes(slot["context_name"]).split(b"\0")[0].decode(errors="replace")
        return Identity(int(slot["pid"]), int(slot["uid"]), int(slot["context_id"]), name)

    def _state(self, index: int) -> int:
        return self._first + index * layout.SLOT.itemsize

    def _write_identity(self, index: int, identity: Identity, now_ns: int) -> None:
        at = self._state(index)
        # State and generation stay, as the writer reads the state meanwhile.
        np.frombuffer(self._control.view(at + 8, layout.SLOT.itemsize - 8), np.uint8)[:] = 0
        slot = self._slots[index]
        slot["generation"] += 1
        slot["pid"], slot["uid"], slot["context_id"] = identity.pid, identity.uid, identity.context_id
        slot["context_name"], slot["joined_ns"] = identity.context_name.encode()[:31], now_ns

    def _reset(self, index: int) -> bool:
        """Frees a slot whose lock is held here; it can be repeated if a process died in between."""
        if self._words.load32(self._state(index)) == layout.SLOT_FREE:
            return False
        keep = ~(1 << index) & 0xFFFFFFFFFFFFFFFF
        for word in range(self._joined_words):
            self._words.and64(self._joined_offset + 8 * word, keep)
        self._words.and64(layout.field_offset(layout.CONTROL_HEADER, "parked"), keep)
        self._words.and64(layout.field_offset(layout.CONTROL_HEADER, "channel_calls"), keep)
        self._checkpoint("reset: bits cleared")
        self._words.store32(self._state(index), layout.SLOT_FREE)  # SYNC state
        return True
