"""The named receivers of a source, and which messages each of them has yet to acknowledge.

Each name has sets of numbers. The last range of a set may be without end: it ends at `NUMBER_MAX`, so that a new
message belongs to it without a call. Each change is noted in the area before it is made here; `replay` makes it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.errors import GmdError
from ipcbus.gmd import sender_notes
from ipcbus.gmd.delivery_modes import SOME
from ipcbus.gmd.sender_notes import Note
from ipcbus.wire.control_messages import NUMBER_MAX
from ipcbus.wire.number_ranges import NumberRanges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from ipcbus.gmd.delivery_terms import DeliveryTerms

    Ranges: TypeAlias = Sequence[tuple[int, int]]


class ExpectedName:
    """One name, with the messages that it was and is expected to acknowledge."""

    def __init__(self, name_id: int, name: str, disconnect_mode: int) -> None:
        """Begins without messages."""
        self.id, self.name, self.disconnect_mode = name_id, name, disconnect_mode
        self.expected = NumberRanges()
        """The messages that it was expected to acknowledge, without those that are long done."""
        self.owed = NumberRanges()
        """Those of them that it has not acknowledged, and that have not failed."""
        self.failed: dict[int, NumberRanges] = {}
        """Those of them that failed, for each error number."""
        self.is_connected = False
        self.gone_ns = 0
        """Since when it is not connected."""

    @property
    def is_active(self) -> bool:
        """Whether it is expected to acknowledge messages to come."""
        return bool(self.expected) and self.expected.highest == NUMBER_MAX

    def failed_within(self, first: int, last: int) -> list[tuple[int, int]]:
        """Returns the failed ones of a range of messages, as ranges."""
        return sorted(part for ranges in self.failed.values() for part in ranges.within(first, last))

    def remove_failed(self, first: int, last: int) -> None:
        """Removes messages from the failed ones."""
        for error, ranges in list(self.failed.items()):
            ranges.remove(first, last)
            if not ranges:
                del self.failed[error]

    def acknowledged(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields those of a range of messages that it has acknowledged."""
        for begin, end in self.expected.within(first, last):
            for low, high in self.owed.without(begin, end):
                yield from without(low, high, self.failed.values())


def without(first: int, last: int, sets: Iterable[NumberRanges]) -> list[tuple[int, int]]:
    """Returns the numbers of first..last that are in none of these sets, as ranges."""
    left = [(first, last)]
    for each in sets:
        left = [part for begin, end in left for part in each.without(begin, end)]
    return left


class ExpectedNames:
    """All names of a source."""

    def __init__(self, note: Callable[[bytes], None]) -> None:
        """Begins without names: each message waits for the first one.

        Args:
            note: appends a note to the area.
        """
        self._append = note
        self.unassigned = ExpectedName(0, "", 0)
        """Stands for the messages for which no receiver is expected."""
        self.by_name: dict[str, ExpectedName] = {}
        self._by_id: dict[int, ExpectedName] = {}
        self._next_id = 1
        self.not_noted = 0
        """Changes that the area refused to note; after a restart they are unknown."""
        self._begin()

    def _begin(self) -> None:
        self.unassigned = ExpectedName(0, "", 0)
        self._by_id = {0: self.unassigned}
        self.by_name = {}
        self.unassigned.owed.add(1, NUMBER_MAX)

    def __iter__(self) -> Iterator[ExpectedName]:
        """Gives all names."""
        return iter(self.by_name.values())

    @property
    def all(self) -> Iterable[ExpectedName]:
        """All names, and `unassigned`."""
        return self._by_id.values()

    @property
    def any_active(self) -> bool:
        """Whether a receiver is expected to acknowledge messages to come."""
        return any(each.is_active for each in self)

    # ------------------------------------------------------------------ changes

    def register(self, name: str, disconnect_mode: int, next_number: int) -> ExpectedName:
        """Makes a name active: from `next_number` on, and for all messages that wait for the first name.

        Raises:
            GmdError: the area cannot note it; nothing has changed.
        """
        found = self.by_name.get(name)
        if found is None or found.disconnect_mode != disconnect_mode:
            name_id = self._next_id if found is None else found.id
            self._change(Note(sender_notes.NAME, name_id, 0, (), name, disconnect_mode), must=True)
            found = self.by_name[name]
        ranges = self.unassigned.owed.within(1, next_number - 1)
        if not found.is_active:
            ranges.append((next_number, NUMBER_MAX))
        self.expect(found, ranges, must=True)
        return found

    def expect(self, name: ExpectedName, ranges: Ranges, *, must: bool = False) -> None:
        """Expects a name to acknowledge messages, also those that failed for it; see `register` for errors."""
        self._change_ranges(sender_notes.EXPECT, name, ranges, must=must)

    def acknowledge(self, name: ExpectedName, ranges: Ranges) -> None:
        """Takes note that a name has acknowledged messages."""
        self._change_ranges(sender_notes.ACK, name, ranges)

    def fail(self, name: ExpectedName, ranges: Ranges, error: int) -> None:
        """Takes note that messages failed for a name."""
        self._change_ranges(sender_notes.FAIL, name, ranges, error)

    def skip(self, name: ExpectedName, ranges: Ranges) -> None:
        """Expects a name no longer to acknowledge messages that another name may acknowledge."""
        self._change_ranges(sender_notes.SKIP, name, ranges)

    def close(self, name: ExpectedName, number: int) -> None:
        """Expects a name no longer to acknowledge messages from a number on."""
        if name.is_active:
            self._change(Note(sender_notes.CLOSE, name.id, 0, ((number, number),)))

    def forget(self, name: ExpectedName, waiting: Ranges) -> None:
        """Forgets a name that is not active; its messages that are `waiting` wait for the next name that registers."""
        self.expect(self.unassigned, waiting)
        self._change(Note(sender_notes.FORGET, name.id))

    def release(self, first: int, last: int) -> None:
        """Takes note that messages are done; the area knows that without a note."""
        for each in self._by_id.values():
            each.owed.remove(first, last)
            if each.failed:
                each.remove_failed(first, last)

    def begin_again_at(self, number: int) -> None:
        """Forgets what was noted of this number and those after it: the area has not given them."""
        for each in self._by_id.values():
            is_open = bool(each.owed) and each.owed.highest == NUMBER_MAX
            each.remove_failed(number, NUMBER_MAX)
            each.owed.remove(number, NUMBER_MAX)
            if is_open:
                each.owed.add(number, NUMBER_MAX)

    def drop_below(self, number: int) -> None:
        """Forgets what was acknowledged below a number."""
        for each in self:
            each.expected.drop_below(number)

    def _change(self, note: Note, *, must: bool = False) -> None:
        try:
            self._append(sender_notes.encode(note))
        except GmdError:
            if must:
                raise
            self.not_noted += 1
        self._apply(note)

    def _change_ranges(
        self, kind: int, name: ExpectedName, ranges: Ranges, error: int = 0, *, must: bool = False
    ) -> None:
        for at in range(0, len(ranges), sender_notes.RANGES_MAX):
            part = tuple(ranges[at : at + sender_notes.RANGES_MAX])
            self._change(Note(kind, name.id, error, part), must=must)

    # ------------------------------------------------------------------ notes

    def replay(self, note: Note) -> None:
        """Makes a change again that is noted in the area; unknown names are skipped."""
        if note.kind == sender_notes.BEGIN:
            self._begin()
            self.unassigned.owed.clear()
        elif note.kind == sender_notes.NAME or note.name_id in self._by_id:
            self._apply(note)

    def _apply(self, note: Note) -> None:
        if note.kind == sender_notes.NAME:
            self._apply_name(note)
            return
        name = self._by_id[note.name_id]
        if note.kind == sender_notes.ACK:
            for first, last in note.ranges:
                name.owed.remove(first, last)
                if name.failed:
                    name.remove_failed(first, last)
        elif note.kind == sender_notes.EXPECT:
            self._apply_expect(name, note.ranges)
        elif note.kind == sender_notes.FAIL:
            for first, last in note.ranges:
                name.owed.remove(first, last)
                name.remove_failed(first, last)
                name.failed.setdefault(note.error, NumberRanges()).add(first, last)
        elif note.kind == sender_notes.SKIP:
            for first, last in note.ranges:
                name.owed.remove(first, last)
                name.expected.remove(first, last)
        elif note.kind == sender_notes.CLOSE:
            self._apply_close(name, note.ranges[0][0])
        elif note.kind == sender_notes.FORGET and note.name_id:
            del self._by_id[note.name_id], self.by_name[name.name]
            name.owed.clear()
            name.failed.clear()  # events of its failures may wait

    def _apply_name(self, note: Note) -> None:
        known = self._by_id.get(note.name_id)
        if known is not None:
            known.disconnect_mode = note.disconnect_mode
            return
        name = ExpectedName(note.name_id, note.name, note.disconnect_mode)
        self._by_id[name.id] = self.by_name[name.name] = name
        self._next_id = max(self._next_id, name.id + 1)

    def _apply_expect(self, name: ExpectedName, ranges: Ranges) -> None:
        for first, last in ranges:
            if name is not self.unassigned:
                self.unassigned.owed.remove(first, last)
                self.unassigned.remove_failed(first, last)
                name.expected.add(first, last)
            name.remove_failed(first, last)
            name.owed.add(first, last)

    def _apply_close(self, name: ExpectedName, number: int) -> None:
        name.expected.remove(number, NUMBER_MAX)
        name.owed.remove(number, NUMBER_MAX)
        if not self.any_active:
            self.unassigned.owed.add(number, NUMBER_MAX)

    def checkpoint(self) -> Iterator[bytes]:
        """Yields notes that make everything again."""
        yield sender_notes.encode(Note(sender_notes.BEGIN))
        for each in self._by_id.values():
            if each is not self.unassigned:
                note = Note(sender_notes.NAME, each.id, 0, (), each.name, each.disconnect_mode)
                yield sender_notes.encode(note)
                yield from sender_notes.encode_ranges(sender_notes.EXPECT, each.id, each.expected)
                done = each.acknowledged(0, NUMBER_MAX)
                yield from sender_notes.encode_ranges(sender_notes.ACK, each.id, done)
            for error, ranges in each.failed.items():
                yield from sender_notes.encode_ranges(sender_notes.FAIL, each.id, ranges, error)
        yield from sender_notes.encode_ranges(sender_notes.EXPECT, 0, self.unassigned.owed)

    # ------------------------------------------------------------------ questions

    def done(self, first: int, last: int, terms: DeliveryTerms) -> Iterator[tuple[int, int]]:
        """Yields those of a range of messages whose delivery is complete."""
        sets = [each.owed for each in self._by_id.values()]
        sets += [ranges for each in self._by_id.values() for ranges in each.failed.values()]
        for begin, end, mode, _ in terms.runs(first, last):
            found = without(begin, end, sets)
            if mode == SOME:
                acknowledged = (part for each in self for part in each.acknowledged(begin, end))
                yield from NumberRanges([*found, *acknowledged])
            else:
                yield from found
