"""Who reads a ring: claiming a slot, joining, leaving, and taking back what a dead reader left.

A slot belongs to whoever holds the lock of its byte (`liveness`), and counts for the writer from state ACTIVE on. The
lock comes first and goes last, so at any moment, whatever was killed, one of these holds:

    lock free, state FREE     nobody's
    lock held, state any      somebody's who lives (or is just arriving, leaving, or reclaiming)
    lock free, state not FREE a dead reader's: whoever takes the lock may reset it

The one exception is the writer's side, which without the lock makes EVICTED of ACTIVE, never of anything else: from
then on the slot does not count, but stays its reader's, who may still show positions there, until it leaves or dies.

Joining needs no answer from the writer (SYNC join): the reader shows itself at a tail it has read, and then reads the
tail again. Either the writer's scans see it from then on, or the second tail is past every scan that did not.
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
"""Lock byte of the session's owner; slot i has byte i + 1."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who takes a slot, for statistics and diagnosis."""

    pid: int
    uid: int
    context_id: int
    context_name: str


def _no_checkpoint(step: str) -> None:
    """What runs after each step; tests put a kill here."""


class SlotTable:
    """The slots of one control block, through one open descriptor of it."""

    def __init__(self, control: Mapping, fd: int, checkpoint: Callable[[str], None] = _no_checkpoint) -> None:
        """Over a control block mapped for writing.

        Args:
            control: the mapped control block.
            fd: descriptor of it, open for writing; its open file description owns the locks.
            checkpoint: called with the name of each step after it was made.
        """
        self._control = control
        self._fd = fd
        self._words = SharedWords(control)
        self._header, joined, self._slots = layout.control_view(control.view())
        self._joined_offset = int(self._header["user_offset"])
        self._joined_words = len(joined) // 8
        self._first = int(self._header["slots_offset"])
        self._checkpoint = checkpoint
        self._own: set[int] = set()
        self.slots_max = len(self._slots)

    def claim(self, who: Identity, now_ns: int, *, only: int | None = None) -> int:
        """Takes a free slot, or one that a dead reader left.

        Args:
            who: goes into the slot.
            now_ns: the time.
            only: this slot and no other.

        Returns:
            The slot's index; its state is JOINING, the lock is held.

        Raises:
            SlotsFull: all slots are held by live readers.
        """
        for index in range(self.slots_max) if only is None else (only,):
            # The lock of an own slot could be taken again: it belongs to the same open file.
            if index in self._own or not liveness.take(self._fd, index + 1):
                continue
            self._checkpoint("claim: lock taken")
            self._reset(index)
            if self._words.cas32(self._state(index), layout.SLOT_FREE, layout.SLOT_JOINING):
                self._own.add(index)
                self._checkpoint("claim: joining")
                self._introduce(index, who, now_ns)
                self._checkpoint("claim: introduced")
                return index
            liveness.release(self._fd, index + 1)
        raise SlotsFull(
            "all receiver slots of the session are taken by live contexts; raise "
            "transport_*_maximum_receivers_per_transport at the source, or close a receiving context"
        )

    def join(self, index: int, reader: RingReader, begin: int | None = None) -> int:
        """Makes a claimed slot count; from the returned position on the reader gets every record.

        Args:
            index: the slot.
            reader: its reader.
            begin: position of a record which another active reader has not read yet, and keeps until this returns;
                None joins at the end.
        """
        at = self._first + index * layout.SLOT.itemsize + 8
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
        # The writer ignores a position two rings behind it, and may be one ring past this tail by now.
        while position - shown > reader.capacity:
            shown = position
            self._words.store64(at, shown)
            self._words.fence()
            position = reader.tail
        self._words.store64(at, position)
        self._checkpoint("join: position final")
        reader.start(position)
        # A writer may have waited for the position that was shown first.
        nudge_writer(self._control)
        return position

    def pause(self, index: int) -> bool:
        """Makes an own slot count no more, and keeps it, for `join` later; True when the writer wants an event."""
        self._words.store32(self._state(index), layout.SLOT_JOINING)
        self._slots[index]["generation"] += 1  # it may go on from before what the writer has seen of it
        return nudge_writer(self._control)

    def leave(self, index: int) -> bool:
        """Gives a slot back; True when the writer wants an event."""
        self._reset(index)
        self._checkpoint("leave: reset")
        self._own.discard(index)
        liveness.release(self._fd, index + 1)
        self._checkpoint("leave: lock released")
        return nudge_writer(self._control)

    def reclaim(self) -> list[int]:
        """Takes back the slots of dead readers; never a live one's.

        Returns:
            Indexes of the slots that were freed.
        """
        freed = []
        for index in range(self.slots_max):
            if self._words.load32(self._state(index)) == layout.SLOT_FREE:
                continue
            # Asked before tried, so that a live reader in the middle of its claim never meets our lock.
            if index in self._own or liveness.held_by_other(self._fd, index + 1):
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
        """Stops counting a reader that holds the writer up; for the writer's side of a ring that evicts.

        Args:
            index: its slot.
            generation: the slot's, by which a reader that came meanwhile is told from the one that is meant.

        Returns:
            Whether it was evicted: False when it has left meanwhile, or was evicted before.
        """
        was = generation << 32 | layout.SLOT_ACTIVE
        if not self._words.cas64(self._state(index), was, generation << 32 | layout.SLOT_EVICTED):  # SYNC evict
            return False
        self._checkpoint("evict: state")
        nudge_writer(self._control)
        return True

    def generation(self, index: int) -> int:
        """Counts the readers that have had the slot."""
        return int(self._slots[index]["generation"])

    def active_mask(self) -> int:
        """Bit i is set for each slot whose reader gets the records."""
        states = self._slots["state"]
        return sum(1 << index for index in range(self.slots_max) if states[index] == layout.SLOT_ACTIVE)

    def positions(self) -> dict[int, int]:
        """Positions of the active readers, by slot."""
        slots = self._slots
        return {i: int(slots[i]["position"]) for i in range(self.slots_max) if slots[i]["state"] == layout.SLOT_ACTIVE}

    def identity(self, index: int) -> Identity:
        """Who holds, or last held, the slot."""
        slot = self._slots[index]
        name = bytes(slot["context_name"]).split(b"\0")[0].decode(errors="replace")
        return Identity(int(slot["pid"]), int(slot["uid"]), int(slot["context_id"]), name)

    def _state(self, index: int) -> int:
        return self._first + index * layout.SLOT.itemsize

    def _introduce(self, index: int, who: Identity, now_ns: int) -> None:
        at = self._state(index)
        # State and generation stay: the writer reads the state meanwhile.
        np.frombuffer(self._control.view(at + 8, layout.SLOT.itemsize - 8), np.uint8)[:] = 0
        slot = self._slots[index]
        slot["generation"] += 1
        slot["pid"], slot["uid"], slot["context_id"] = who.pid, who.uid, who.context_id
        slot["context_name"], slot["joined_ns"] = who.context_name.encode()[:31], now_ns

    def _reset(self, index: int) -> bool:
        """Frees a slot whose lock this side holds; safe to do again after a death in the middle."""
        if self._words.load32(self._state(index)) == layout.SLOT_FREE:
            return False
        keep = ~(1 << index) & 0xFFFFFFFFFFFFFFFF
        for word in range(self._joined_words):
            self._words.and64(self._joined_offset + 8 * word, keep)
        self._words.and64(layout.CONTROL_HEADER.fields["parked"][1], keep)  # type: ignore[index]
        self._checkpoint("reset: bits cleared")
        self._words.store32(self._state(index), layout.SLOT_FREE)  # SYNC state
        return True
