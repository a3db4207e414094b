"""A receiver's GMD area in files: one small file, to which each change is appended, and which is replaced when it grew.

The directory contains::

    lock                 locked by the one process that writes the area, with its pid
    area                 whose area it is (`area_identity`)
    acknowledged         the records, checksummed as `ipcbus.storage.records` describes
    spare                allocated ahead, to replace `acknowledged` when the disk is full

The first record of `acknowledged` is its head: format and `Files.boot_id`, in JSON. Each other record has the whole
state of one stream, numbers as little-endian u64::

    incarnation | floor | first, last of each range above the floor | sender in UTF-8, at the end
    8 bytes     | 8     | 16 bytes each, u4 count before them       |

The last record of a stream counts; floor 2^64 - 1 means that the stream is forgotten. A file that ends in a part of a
record was written by a process that was killed in between; this part is dropped. So is, after a power loss, the part
from the first bad record on, as long as no good record follows it: the messages of lost records are delivered again.
Everything else is damage.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ipcbus.errors import GmdAreaDamaged, GmdAreaFull, GmdError, StorageError, StorageFull
from ipcbus.gmd import area_identity as identities
from ipcbus.gmd.acknowledgement_appender import FORGOTTEN, AcknowledgementAppender, pack_state
from ipcbus.gmd.area_identity import gmd_errors, lock_area, was_removed
from ipcbus.gmd.journal_segments import SPARE
from ipcbus.gmd.receiver_area import Acknowledged
from ipcbus.storage import records
from ipcbus.storage.files import FileMissing

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.gmd.area_identity import AreaIdentity
    from ipcbus.storage.files import File, Files, Lock

NAME: Final = "acknowledged"
_FORMAT: Final = 1
_CURE: Final = (
    "restore it from a backup, or run 'ipcbus gmd repair': then messages whose acknowledgements are lost are delivered "
    "again"
)
_HEAD: Final = struct.Struct("<QQI")
_GROWTH_MIN: Final = 1 << 22
"""The file is replaced when it has this number of bytes more than twice what it needs."""
_RESERVE: Final = 1 << 14
"""Bytes that are kept on the disk for the next records: a full disk drains when messages are acknowledged.

The spare file has as many, beside room for the state: what it replaces has them, too, for the next spare file.
"""

_BLOCK: Final = 1 << 12
"""The room on the disk is asked for in multiples of this, which most file systems use."""

Stream = tuple[str, int]
State = tuple[int, Sequence[tuple[int, int]]]


class FileReceiverArea(AcknowledgementAppender):
    """A `ReceiverArea` in files; see there. Made by `FileReceiverArea.open`."""

    def __init__(
        self, files: Files, folder: Path, lock: Lock, states: dict[Stream, State], *, each: bool, good_end: int
    ) -> None:
        """Takes ownership of the lock, and writes the file new; goes on with the old one where the disk is full.

        Args:
            files: the storage.
            folder: the directory.
            lock: the lock of the area.
            states: what the file has.
            each: whether each record is synced.
            good_end: where the good records of the file end; 0 if it cannot be used further.
        """
        super().__init__(states, each=each)
        self.folder = folder
        self._files, self._lock = files, lock
        self._file: File | None = None
        self._size_max = 0
        self._reserved = 0
        """Where the room ends that the file has on the disk."""
        self._spare_bytes = 0
        try:
            self.make_room()
        except GmdAreaFull:
            if not good_end:
                raise
            with gmd_errors():
                file = files.open(folder / NAME, write=True)
                file.truncate(good_end)
            self._size_max = good_end + _RESERVE
            self._go_on(file, good_end, good_end)

    @classmethod
    def open(
        cls, files: Files, folder: Path, identity: AreaIdentity, *, durability: str = "process", repair: bool = False
    ) -> FileReceiverArea:
        """Opens the area of a directory, or makes it.

        Args:
            files: the storage.
            folder: the directory; missing parents are made, too.
            identity: who the receiver is.
            durability: as for a sender's area; `each` syncs each record.
            repair: keep what is good of a damaged area. Messages whose acknowledgements are lost are delivered again.

        Raises:
            GmdAreaLocked: another process uses the area.
            GmdAreaDamaged: the area is damaged, and `repair` is not set.
            GmdError: the area cannot be made or read, or it belongs to another receiver.
        """
        with gmd_errors():
            files.make_dir(folder)
        lock = lock_area(files, folder)
        try:
            with gmd_errors():
                stored = identities.stored_identity(files, folder, identity, repair=repair)
                same = stored is None or (stored.name, stored.domain) == (identity.name, identity.domain)
                if stored is not None and not same:
                    raise GmdError(
                        f"{folder}: the area belongs to receiver {stored.name} in domain {stored.domain}, not to "
                        f"{identity.name} in domain {identity.domain}; use another directory (ipc_gmd_directory) for "
                        "each domain"
                    )
                streams, good_end = _read(files, folder, repair=repair, must_be_there=stored is not None)
                area = cls(files, folder, lock, streams, each=durability == "each", good_end=good_end)
                if stored is None:
                    files.replace(folder / identities.NAME, identity.pack())
                return area
        except BaseException:
            lock.release()
            raise

    def known(self, sender: str, incarnation: int) -> Acknowledged:
        """See `ReceiverArea`."""
        floor, ranges = self.states.get((sender, incarnation), (0, ()))
        return Acknowledged(floor, list(ranges))

    def streams(self) -> list[Stream]:
        """See `ReceiverArea`."""
        return list(self.states)

    def sync(self) -> None:
        """See `ReceiverArea`."""
        if self.refusal is not None:
            raise GmdError(self.refusal)
        if self._file is not None:
            try:
                self._file.sync()
            except StorageError as error:
                self._fail(error)

    def check(self) -> None:
        """See `ReceiverArea`."""
        if self.refusal is None and was_removed(self._file, self._lock):
            self.refuse(
                f"{self.folder}: the GMD area failed: its files were removed while it was open, so that "
                "acknowledgements are not recorded any more; close the receiver and make it again: messages may come "
                "twice then"
            )
            raise GmdError(self.refusal)

    def close(self) -> None:
        """See `ReceiverArea`."""
        if self._file is not None:
            file, self._file = self._file, None
            self.refuse(f"{self.folder}: the GMD area is closed; make a new receiver")
            self.begin_file(-1, 0, 0)
            try:
                with contextlib.suppress(StorageError):
                    file.close()
            finally:
                self._lock.release()

    def make_room(self) -> None:
        """See `AcknowledgementAppender`."""
        is_long = self._file is None or self.end > self._size_max
        data = self._compact()
        if self._file is not None and not is_long:
            has_room = self._go_on(self._file, self.end, self._reserved, len(data))
            if has_room or self._spare_bytes - len(data) < self._reserved - self.end + _RESERVE // 4:
                return  # the spare file would not have more room
        path = self.folder / NAME
        with gmd_errors():
            try:
                reserved = self._replace(path, data)
                file = self._files.open(path, write=True)
            except StorageError as error:
                if self._file is None:
                    raise
                if not isinstance(error, StorageFull) or not self._file.has_name():
                    self._fail(error)  # the file may be the old one or the new one
                self._size_max = self.end + _RESERVE
                self._go_on(self._file, self.end, self._reserved, len(data))
                return
        if self._file is not None:
            self._file.close()
        self._size_max = 2 * len(data) + _GROWTH_MIN
        self._go_on(file, len(data), reserved, len(data))

    def _compact(self) -> bytes:
        """Returns the shortest file that says what is known."""
        head = json.dumps({"format": _FORMAT, "boot": self._files.boot_id().hex()}).encode()
        states = (pack_state(*stream, *state) for stream, state in self.states.items())
        return b"".join(map(records.frame, (head, *states)))

    def _replace(self, path: Path, data: bytes) -> int:
        """Replaces the file; by the spare one where the disk has no room for another one.

        Returns:
            Where the room ends that the new file has on the disk.
        """
        try:
            self._files.replace(path, data)
        except StorageFull as error:
            spare = self.folder / SPARE
            reserved, self._spare_bytes = self._spare_bytes or _RESERVE, 0  # an earlier process may have made it
            try:
                with contextlib.closing(self._files.open(spare, write=True)) as file:
                    file.write_at(0, data)
                    if file.size() > len(data):  # of an earlier try that failed; to cut gives its room back
                        file.truncate(len(data))
                    file.sync()
            except StorageError:
                raise error from None
            self._files.rename(spare, path)
            self._files.sync_dir(self.folder)
            return reserved
        return len(data)

    def _go_on(self, file: File, end: int, reserved: int, state_bytes: int = 0) -> bool:
        """Appends to a file from now on; returns whether the disk has room for that, and for a spare file.

        Args:
            file: the file.
            end: where its records end.
            reserved: where the room ends that it has on the disk.
            state_bytes: the length of `_compact`; the spare file has room for twice that, too.
        """
        size = -(-(_RESERVE + 2 * state_bytes) // _BLOCK) * _BLOCK
        before, self._file = self._reserved, file
        # Of what the file had that this one has replaced, there is as much, whatever others take meanwhile.
        has_room = self._make_spare(size) or self._make_spare(before)
        self._reserved = max(reserved, end + _RESERVE, size)
        try:
            file.allocate(0, self._reserved)
        except StorageError as error:
            self._reserved = reserved
            has_room &= not isinstance(error, StorageFull)
        # It is asked for more while half of the reserve is left.
        self.begin_file(file.descriptor, end, min(self._reserved - _RESERVE // 2, self._size_max))
        return has_room

    def _make_spare(self, size: int) -> bool:
        """Makes the spare file, of this size at least; returns False if the disk is full."""
        if self._spare_bytes < size:
            try:
                with contextlib.closing(self._files.open(self.folder / SPARE, write=True, create=True)) as file:
                    file.allocate(0, size)
            except StorageError as error:
                return not isinstance(error, StorageFull)
            self._spare_bytes = size
        return True

    def write_slowly(self, data: bytes) -> None:
        """See `AcknowledgementAppender`."""
        if self._file is None:
            raise GmdError(f"{self.folder}: the GMD area is closed; make a new receiver")
        try:
            self._file.write_at(self.end, data)
        except StorageError as error:
            try:
                self._file.truncate(self.end)
            except StorageError as second:
                self._fail(second)
            with gmd_errors():
                raise error

    def _fail(self, error: StorageError) -> None:
        """The area failed for good.

        Raises:
            GmdError: always.
        """
        self.refuse(f"{self.folder}: the GMD area failed: {error}; close the receiver, check the disk, make it again")
        raise GmdError(self.refusal) from error


def read_streams(files: Files, folder: Path, *, repair: bool = False) -> dict[Stream, State]:
    """Returns what a receiver has acknowledged of each stream; changes nothing.

    Raises:
        GmdAreaDamaged: the file is damaged or missing, and `repair` is not set.
        StorageError: the system refuses.
    """
    return _read(files, folder, repair=repair, must_be_there=True)[0]


def _read(files: Files, folder: Path, *, repair: bool, must_be_there: bool) -> tuple[dict[Stream, State], int]:
    """Returns as `read_streams`, and where the good records end; 0 if nothing may be appended there."""
    path = folder / NAME
    try:
        with contextlib.closing(files.open(path)) as file:
            data = file.read_at(0, file.size())
    except FileMissing:
        if must_be_there and not repair:
            raise GmdAreaDamaged(f"{path}: the file is missing; {_CURE}") from None
        return {}, 0
    scan = records.scan(data)
    found: dict[Stream, State] = {}
    try:
        if not scan.records:
            raise ValueError("its head is damaged")
        head = json.loads(scan.records[0][1])
        if head["format"] != _FORMAT:
            raise GmdError(
                f"{path}: this version reads format {_FORMAT}, not {head['format']}; use the version of "
                "ipcbus that wrote the area"
            )
        if scan.damage and not _is_torn(data[scan.good_end :], lost_power=head["boot"] != files.boot_id().hex()):
            raise ValueError(f"{scan.damage}, at offset {scan.good_end}")
    except (ValueError, KeyError, TypeError) as error:
        if not repair:
            raise GmdAreaDamaged(f"{path}: the file is damaged ({error}); {_CURE}") from error
    good = [payload for _, payload in scan.records[1:]]
    if repair:
        good += records.salvage(data[scan.good_end :])
    for payload in good:
        state = _unpacked(payload)
        if state is not None:
            found.pop(state[0], None)
            if state[1][0] != FORGOTTEN:
                found[state[0]] = state[1]
    return found, 0 if repair else scan.good_end


def _is_torn(rest: bytes, *, lost_power: bool) -> bool:
    """Returns whether the end of the file is what a kill, or a power loss, leaves of a record."""
    if lost_power:
        return not records.salvage(rest)
    return len(rest) < 8 or int.from_bytes(rest[:4], "little") + 8 > len(rest)


def _unpacked(payload: bytes) -> tuple[Stream, State] | None:
    """Returns the state of a stream; None if it cannot be right."""
    if len(payload) < _HEAD.size:
        return None
    incarnation, floor, count = _HEAD.unpack_from(payload)
    if len(payload) < _HEAD.size + 16 * count:
        return None
    numbers = struct.unpack_from(f"<{2 * count}Q", payload, _HEAD.size)
    sender = payload[_HEAD.size + 16 * count :].decode(errors="replace")
    return (sender, incarnation), (floor, tuple(zip(numbers[::2], numbers[1::2], strict=True)))
