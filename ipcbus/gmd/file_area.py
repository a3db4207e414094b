"""A sender's GMD area in files: a journal of segments, which only grow, and go when no message in them is needed.

`journal_layout` describes the bytes, `journal_recovery` how they are read. All that runs for each message is compiled
(`journal_appender`); this module starts segments, makes room, syncs, and opens and closes the area.

A new segment begins with the whole state and with copies of the messages that are left in segments with much garbage;
then these segments are removed. So one message that is acknowledged late does not keep its segment.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from ipcbus.errors import GmdAreaDamaged, GmdAreaFull, GmdError, StorageError, StorageFull
from ipcbus.gmd import area_opening, journal_records
from ipcbus.gmd.area_identity import gmd_errors, lock_area, was_removed
from ipcbus.gmd.journal_appender import JournalAppender
from ipcbus.gmd.journal_layout import END_BYTES
from ipcbus.gmd.journal_segments import SPARE, Checkpoint, Segment, name_of, serials
from ipcbus.gmd.segment_builder import SegmentBuilder
from ipcbus.gmd.sender_area import Recovered, SavedMessage

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.gmd.area_identity import AreaIdentity
    from ipcbus.gmd.journal_recovery import Recovery
    from ipcbus.storage.files import File, Files, Lock

DURABILITIES: Final = ("process", "group", "each")
"""`process`: what `save` returned survives the kill of the process. `group`: `sync` makes it survive a power loss.
`each`: it does when `save` returns."""

CAPACITY: Final = 1 << 25
"""Bytes of a segment."""

_CAPACITY_MIN: Final = 1 << 16
_RESERVE: Final = 1 << 16  # room in each segment that only notes and releases may take
_STEP_MIN, _STEP_MAX = 1 << 16, 1 << 22
_ZEROS: Final = bytes(1 << 18)  # larger pieces delay a sync for longer, and cost more on the whole
_FEW: Final = 8  # this number of small segments is fine


class FileArea(JournalAppender):
    """A `SenderArea` in files; see there. Made by `FileArea.open`."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        identity: AreaIdentity,
        lock: Lock,
        recovery: Recovery,
        *,
        durability: str,
        max_size: int,
        capacity: int,
    ) -> None:
        """Takes ownership of the lock."""
        super().__init__(
            identity.name,
            identity.topic,
            identity.incarnation,
            max_size,
            recovery.index,
            recovery.last_number,
            each=durability == "each",
        )
        self.folder = folder
        self.identity = identity
        self._files, self._lock, self._durability = files, lock, durability
        self._capacity = capacity or CAPACITY
        self._capacity_now = 0
        self._segments = recovery.segments
        self._spoiled = recovery.spoiled
        self._newest = recovery.newest
        self._unsynced = [segment for segment in self._segments.values() if segment.synced < segment.end]
        self._missing = recovery.missing
        self._recovered = Recovered(
            recovery.notes, recovery.index.unreleased(), recovery.index.modes(), recovery.missing
        )
        self._allocated = self._zeroed = self._synced_to = 0
        self._spare: File | None = None
        self._reading: tuple[int, File] | None = None
        self._retired: list[File] = []
        self._closed = False
        self._limit_garbage()
        self._kept = self.checkpoint = lambda: list(recovery.notes)

    @classmethod
    def open(
        cls,
        files: Files,
        folder: Path,
        identity: AreaIdentity,
        *,
        durability: str = "process",
        max_size: int = 0,
        capacity: int = 0,
        repair: bool = False,
        fresh: bool = False,
    ) -> FileArea:
        """Opens the area of a directory, or makes it.

        Args:
            files: the storage.
            folder: the directory; missing parents are made, too.
            identity: who the sender is; its incarnation is used if the area is new.
            durability: one of DURABILITIES.
            max_size: see `SenderArea`.
            capacity: bytes of a segment; 0 takes CAPACITY, or less if `max_size` is small.
            repair: keep all good records of a damaged area; `recovered` names the messages that are missing.
            fresh: give up everything that is in the area.

        Raises:
            GmdAreaLocked: another process uses the area.
            GmdAreaDamaged: the area is damaged, and `repair` is not set.
            GmdAreaFull: the disk has no room for the area.
            GmdError: the area cannot be made or read, or it belongs to another sender.
        """
        if durability not in DURABILITIES:
            raise GmdError(f"{folder}: durability {durability!r} is not one of {', '.join(DURABILITIES)}; choose one")
        if not capacity and max_size:
            capacity = min(max(max_size // 4, _CAPACITY_MIN), CAPACITY)
        with gmd_errors():
            files.make_dir(folder)
        lock = lock_area(files, folder)
        try:
            with gmd_errors():
                if fresh:
                    area_opening.remove_files(files, folder)
                opened = area_opening.read(files, folder, identity, repair=repair)
                area = cls(
                    files,
                    folder,
                    opened.identity,
                    lock,
                    opened.recovery,
                    durability=durability,
                    max_size=max_size,
                    capacity=capacity,
                )
                try:
                    if opened.is_new or opened.recovery.damage:
                        area._roll()
                    if opened.identity != opened.stored:
                        area_opening.write_identity(files, folder, opened)
                except BaseException:
                    area._close_files()
                    raise
                return area
        except BaseException:
            lock.release()
            raise

    # ------------------------------------------------------------------ SenderArea

    def recovered(self) -> Recovered:
        """See `SenderArea`."""
        return self._recovered

    def load(self, number: int) -> SavedMessage | None:
        """See `SenderArea`."""
        where = self.index.where(number)
        if where is None:
            return None
        serial, offset, length, _ = where
        with gmd_errors():
            data = self._file_of(serial).read_at(offset, length)
        stamp = journal_records.segment_stamp(self.incarnation, serial) ^ offset >> 3
        record = journal_records.read(data, 0, stamp)
        if record is None or record.number != number:
            raise GmdAreaDamaged(
                f"{self.folder / name_of(serial)}: the copy of message {number} at offset {offset} is damaged; close "
                f"the source and run 'ipcbus gmd repair', or delete the message (gmd_delete)"
            )
        return SavedMessage(number, record.mode, record.second, record.first, record.block, record.body)

    def read_block(self, serial: int, offset: int, length: int) -> bytes:
        """See `JournalAppender`."""
        with gmd_errors():
            return self._file_of(serial).read_at(offset, length)

    def sync(self) -> None:
        """See `SenderArea`."""
        if self.refusal is not None:
            raise GmdError(self.refusal)
        self.check()
        unsynced, file, worked = list(self._unsynced), self.begin_sync(), False
        try:
            for segment in unsynced:
                self._sync_older(segment)
            if file is not None:
                self._sync_file(file)
                if file is self.current:
                    self._synced_to = self.syncing_end
            worked = True
        finally:
            self.end_sync(worked)
            while self._retired:
                self._retired.pop().close()

    def check(self) -> None:
        """See `SenderArea`."""
        if self.refusal is None and was_removed(self.current, self._lock):
            reason = (
                f"{self.folder}: the GMD area failed: its files were removed while it was open, so that its messages "
                "would not survive this process; let the receivers acknowledge what is pending (gmd_num_pending), then "
                "close the source and make it again"
            )
            self.refuse(reason)
            raise GmdError(reason)

    def close(self) -> None:
        """See `SenderArea`."""
        if self._closed:
            return
        self._closed = True
        try:
            # On a full disk: what is not noted is sent again, and dropped by the receivers that have acknowledged it.
            with contextlib.suppress(GmdAreaFull):
                if self.refusal is None:
                    self.write_releases()  # into a new segment, if nothing else was written since the area was opened
                if self.current is not None and self.refusal is None:
                    self.note_closed()
                    if self._durability != "process":
                        self._sync_file(self.current)
        finally:
            self.refuse(f"{self.folder}: the GMD area is closed; make a new source")
            try:
                self._close_files()
            finally:
                self._lock.release()

    def _close_files(self) -> None:
        """Closes all files, and gives up the spare."""
        with contextlib.suppress(StorageError):
            for file in (self.current, self._reading and self._reading[1], *self._retired):
                if file is not None:
                    file.close()
            self._discard_spare()
        self._reading = None

    def _file_of(self, serial: int) -> File:
        """Returns a segment, open for reading."""
        if serial == self.serial and self.current is not None:
            return self.current
        if self._reading is None or self._reading[0] != serial:
            if self._reading is not None:
                self._reading[1].close()
                self._reading = None
            self._reading = (serial, self._files.open(self.folder / name_of(serial)))
        return self._reading[1]

    # ------------------------------------------------------------------ syncing

    def sync_save(self) -> None:
        """See `JournalAppender`."""
        self.sync()

    def _sync_older(self, segment: Segment) -> None:
        if segment in self._unsynced and segment.serial in self._segments:
            try:
                with contextlib.closing(self._files.open(self.folder / name_of(segment.serial))) as file:
                    self._sync_file(file)
            except StorageError as error:
                if segment.serial in self._segments:  # else it was removed in the meantime
                    raise GmdError(f"GMD area: {error}") from error
        segment.synced = segment.end
        with contextlib.suppress(ValueError):
            self._unsynced.remove(segment)

    def _sync_file(self, file: File) -> None:
        """Syncs a segment; when that fails, the area fails for good, as the system may have dropped the data."""
        try:
            file.sync()
        except StorageError as error:
            self._fail(error)

    def _fail(self, error: StorageError) -> None:
        """The area failed for good.

        Raises:
            GmdError: always.
        """
        reason = f"{self.folder}: the GMD area failed: {error}; close the source, check the disk, and make it again"
        self.refuse(reason)
        raise GmdError(reason) from error

    # ------------------------------------------------------------------ writing, where compiled code could not

    def write_slowly(self, data: bytes) -> None:
        """See `JournalAppender`."""
        if self.current is None:  # the roll that makes it failed
            raise GmdAreaFull(f"{self.folder}: the disk has no room for a segment; make room")
        try:
            self.current.write_at(self.end, data)
        except StorageError as error:
            self.cut_back()
            with gmd_errors():
                raise error

    def cut_back(self) -> None:
        """See `JournalAppender`."""
        if self.current is None:
            return
        self._allocated = self._zeroed = self.end
        self.set_room(0, 0)
        try:
            self.current.truncate(self.end)
        except StorageError as error:
            self._fail(error)
        with contextlib.suppress(StorageError):  # without the mark, the file ends where the last record does
            stamp = journal_records.segment_stamp(self.incarnation, self.serial)
            self.current.write_at(self.end, journal_records.end_mark(stamp, self.end))
        if self._durability != "process":
            self._sync_file(self.current)

    def cut_quietly(self) -> None:
        """See `JournalAppender`."""
        with contextlib.suppress(StorageError):
            if self.current is not None:
                self.current.truncate(self.end)

    # ------------------------------------------------------------------ room

    def make_room(self, need: int) -> None:
        """See `JournalAppender`."""
        self.check()
        with gmd_errors():
            if self.current is None or (self.end + need > self._capacity_now and self.appended):
                self._roll()
            if self._allocate(need):
                return
            if self._frees_room():
                self._roll(urgent=True)
                if self._allocate(need):
                    return
        raise GmdAreaFull(
            f"{self.folder}: the disk has no room for a message of {need} bytes; let receivers acknowledge messages, "
            "make room on the disk, or use another directory (ipc_gmd_directory)"
        )

    def make_note_room(self, need: int) -> None:
        """See `JournalAppender`."""
        with gmd_errors():
            if self.current is None:
                self._roll()
            elif self.end + need > self._capacity_now + _RESERVE:
                with contextlib.suppress(GmdAreaFull, StorageFull):
                    self._roll()
            if self._spare is None:  # notes must not take the room of the segment that ends them
                self._make_spare()
            if self.end + need > self._allocated and not self._grow(need, _STEP_MIN) and self._frees_room():
                with contextlib.suppress(GmdAreaFull, StorageFull):
                    self._roll(urgent=True)
        self.set_room(0, max(self._allocated, self.end + need))

    def _allocate(self, need: int) -> bool:
        """Reserves room for messages of this size, beside what is kept for notes; returns whether there is room."""
        if self._spare is None and not self._make_spare():
            return False
        if self.end + need + _RESERVE > self._allocated:
            step = min(max(self.end // 4, _STEP_MIN), _STEP_MAX)
            if not (self._grow(need + _RESERVE, step) or self._grow(need + _RESERVE, 0)):
                return False
        room = min(max(self._capacity_now, self.end + need), self._allocated - _RESERVE)
        if self._durability != "process":
            if not self._write_zeros(need, room):
                return False
            room = min(room, self._zeroed)
        self.set_room(room, self._allocated)
        return True

    def _write_zeros(self, need: int, room: int) -> bool:
        """Makes the file longer than its records: a sync takes longer if it must note a size or new blocks, too."""
        if self.current is None or self.end + need <= self._zeroed:
            return True
        begin = max(self._zeroed, self.end + END_BYTES)
        step = min(max(self.end // 4, _STEP_MIN), len(_ZEROS))
        end = max(min(begin + step, room), self.end + need)
        if end - begin <= step:  # else one long message fills it
            try:
                self.current.write_at(begin, _ZEROS[: end - begin])
            except StorageFull:
                return False
        self._zeroed = end
        return True

    def _grow(self, need: int, step: int) -> bool:
        """Reserves room in the segment; returns whether there is room."""
        if self.current is None:
            return False
        try:
            self.current.allocate(self.end, need + step)
        except StorageFull:
            return False
        self._allocated = max(self._allocated, self.end + need + step)
        return True

    def _frees_room(self) -> bool:
        """Returns whether an urgent new segment would free more than it and the next spare take.

        Only then the spare is used on a full disk; else the area could never drain.
        """
        live = dict(self.index.segment_bytes)
        live[self.serial] = live.get(self.serial, 0) + self.appended
        ends = {segment.serial: segment.end for segment in self._segments.values()}
        ends[self.serial] = self.end
        budget, freed = _RESERVE, 0
        for serial in sorted(ends, key=lambda each: live.get(each, 0)):
            budget -= max(live.get(serial, 0), 0)
            freed += ends[serial] if budget >= 0 else 0
        return freed > 4 * _RESERVE

    # ------------------------------------------------------------------ the spare: room for the next segment

    def _make_spare(self, *, of_reserve: bool = False) -> bool:
        """Makes the file that becomes the next segment; returns whether the disk has room for it.

        Args:
            of_reserve: give up what the newest segment has in reserve, as the next one takes its place.
        """
        try:
            self._discard_spare()
            if of_reserve:
                self._allocated = 0
                self.set_room(0, 0)
                with contextlib.closing(self._files.open(self.folder / name_of(self._newest), write=True)) as newest:
                    newest.truncate(newest.size())
            spare = self._files.open(self.folder / SPARE, write=True, create=True, exclusive=True)
            self._spare = spare
            if not of_reserve:
                spare.allocate(0, 2 * _RESERVE)
        except StorageFull:
            self._discard_spare()
        return self._spare is not None

    def _discard_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()
        self._files.remove(self.folder / SPARE)

    # ------------------------------------------------------------------ segments

    def _roll(self, *, urgent: bool = False) -> None:
        """Starts a new segment, and removes those that are not needed any more.

        Args:
            urgent: free as much as possible: the disk is full.

        Raises:
            GmdAreaFull: the disk has no room; nothing has changed.
            StorageError: the system refuses; nothing has changed.
            GmdError: the area failed for good.
        """
        serial, old, old_serial = self._newest + 1, self.current, self.serial
        if old is not None:
            self.index.add(old_serial, self.appended)
        try:
            victims = self._victims(urgent=urgent)
            needed = [segment for segment in self._older() if segment.serial not in victims]
            notes = self.checkpoint()
            missing = self._missing if self.checkpoint is self._kept else []
            state = Checkpoint(self.last_number, needed, self.index.unreleased(), missing)
            builder = SegmentBuilder(self.incarnation, serial, state, notes)
            for message in (each for victim in victims.values() for each in victim):
                builder.copy(message)
            content, capacity = builder.finish(self._files.boot_id(), self._capacity)
            file, allocated = self._write_segment(serial, content)
        except BaseException:
            if old is not None:
                self.index.add(old_serial, -self.appended)
            raise
        self._missing = missing
        self._newest, self._capacity_now = serial, capacity
        self.begin_segment(file, serial, len(content) - END_BYTES)
        self._allocated, self._zeroed = allocated, 0
        self.set_room(0, self._allocated)
        for number, offset, length, mode in builder.moves:
            self.index.place(number, serial, offset, length, mode)
        self._segments = {segment.serial: segment for segment in needed}
        self._spoiled.clear()
        if old is not None:
            if self._durability == "process" and old_serial in self._segments:
                self._unsynced.append(self._segments[old_serial])
            if self.syncing is old:
                self._retired.append(old)
            else:
                old.close()
        if self._durability != "process":
            self.all_durable()
        self._synced_to = self.end
        self._remove_unneeded()
        self._limit_garbage()

    def drop_garbage(self) -> None:
        """See `JournalAppender`."""
        with contextlib.suppress(GmdError, StorageError):
            self._roll()
        self._limit_garbage()  # also if it could not begin a segment now

    def _limit_garbage(self) -> None:
        older = sum(segment.end for segment in self._segments.values())
        left = older + self.end - 2 * self.index.bytes
        self.set_garbage(older, max(2 * self._capacity, left + self._capacity // 4))

    def _older(self) -> list[Segment]:
        """Returns the segments that have unreleased messages, with the one that is written now."""
        older = list(self._segments.values())
        if self.current is not None:
            synced = self._synced_to if self._durability == "process" else self.end
            older.append(Segment(self.serial, self.end, synced))
        return [segment for segment in older if self.index.segment_bytes.get(segment.serial, 0) > 0]

    def _victims(self, *, urgent: bool) -> dict[int, list[SavedMessage]]:
        """Returns the segments that are given up though they have unreleased messages, and these messages.

        Damaged segments come first, then those with the largest part of garbage, as long as there is more garbage than
        unreleased messages. So at most about half of all bytes are garbage, and a byte is copied about once.
        """
        live = self.index.segment_bytes
        older = self._older()
        victims: dict[int, list[SavedMessage]] = {}
        for segment in older:
            if segment.serial in self._spoiled:
                victims[segment.serial] = self._messages_in(segment.serial)
        total = sum(segment.end for segment in older)
        budget = _RESERVE if urgent else self._capacity
        for segment in sorted(older, key=lambda each: live[each.serial] / each.end):
            small = len(older) > _FEW and segment.end < self._capacity // _FEW
            enough = total <= 2 * self.index.bytes + 2 * self._capacity
            size = live[segment.serial]
            if size > budget or (not urgent and (size > segment.end * 3 // 4 or enough) and not small):
                continue
            if segment.serial not in victims:
                with contextlib.suppress(GmdError):  # what cannot be read stays where it is
                    victims[segment.serial] = self._messages_in(segment.serial)
                    budget -= size
                    total -= segment.end
        return victims

    def _messages_in(self, serial: int) -> list[SavedMessage]:
        """Returns the unreleased messages of a segment.

        Raises:
            GmdError: one of them cannot be read.
        """
        found = [self.load(number) for number in self.index.in_segment(serial)]
        return [message for message in found if message is not None]

    def _write_segment(self, serial: int, content: bytes) -> tuple[File, int]:
        """Makes a segment, and returns it with the bytes that are allocated for it.

        It has its name, and is synced, or it does not exist.
        """
        path, allocated = self.folder / name_of(serial), max(len(content), 2 * _RESERVE)
        if self._spare is None and not self._make_spare() and (self.current is None or self._frees_room()):
            self._make_spare(of_reserve=self._newest > 0)
        spare = self._spare
        if spare is None:
            raise GmdAreaFull(f"{path}: the disk has no room for a new segment; make room on the disk")
        try:
            try:
                spare.allocate(0, allocated)
            except StorageFull:
                allocated = len(content)
            spare.write_at(0, content)
        except StorageError:
            self._discard_spare()
            raise
        self._sync_file(spare)
        if self._durability != "process" and self.current is not None:
            self._sync_file(self.current)
        try:
            self._files.rename(self.folder / SPARE, path)
            self._files.sync_dir(self.folder)
        except StorageError as error:
            if path.name not in self._files.names(self.folder):
                self._discard_spare()
                raise
            self._fail(error)  # the next opening reads the new segment, so nothing may be appended to the old one
        self._spare = None
        spare.path = path
        return spare, allocated

    def _remove_unneeded(self) -> None:
        """Removes segments without unreleased messages; what cannot be removed now is removed later."""
        with contextlib.suppress(StorageError):
            if self._reading is not None and self._reading[0] not in self._segments:
                reading, self._reading = self._reading, None
                reading[1].close()
            for serial in serials(self._files.names(self.folder)):
                if serial != self._newest and serial not in self._segments:
                    self._files.remove(self.folder / name_of(serial))
            self._unsynced = [segment for segment in self._unsynced if segment.serial in self._segments]
