"""A disk in memory that fails: it is cut off at any operation, forgets and tears what was not synced, has no room."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ipcbus.errors import StorageError, StorageFull
from ipcbus.storage.files import AtomicFiles, FileMissing

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from typing_extensions import Buffer


SECTOR = 512


class CutOff(BaseException):
    """The process is no more; whatever it does after that does nothing."""


@dataclasses.dataclass(slots=True)
class _Change:
    """What was done to a file's bytes: data at an offset, or, without data, a new size."""

    at: int
    data: bytes | None = None


@dataclasses.dataclass(slots=True)
class _Inode:
    """A file, whatever its names: as everybody sees it, and as it was synced."""

    data: bytearray = dataclasses.field(default_factory=bytearray)
    synced: bytes = b""
    allocated: int = 0
    changes: list[_Change] = dataclasses.field(default_factory=list)

    def change(self, change: _Change) -> None:
        _apply(self.data, change)
        self.changes.append(change)

    def sync(self) -> None:
        if self.changes:
            self.synced = bytes(self.data)
            self.changes.clear()

    def survivor(self, rng: random.Random, mood: float) -> _Inode:
        """What a power loss leaves: each change since the last sync is kept, lost or torn."""
        data = bytearray(self.synced)
        for change in self.changes:
            if rng.random() < mood:
                _apply(data, change)
            elif change.data and rng.random() < 0.5:
                start = rng.randrange(len(change.data))
                end = rng.randint(start, len(change.data))
                _apply(data, _Change(change.at + start, change.data[start:end]))
            elif change.data and rng.random() < 0.5:
                for piece in _sectors(change):
                    if rng.random() < 0.5:
                        _apply(data, piece)
        return _Inode(data, bytes(data))


def _sectors(change: _Change) -> Iterator[_Change]:
    """A write in the pieces that a disk writes as a whole."""
    at, left = change.at, change.data or b""
    while left:
        size = SECTOR - at % SECTOR
        yield _Change(at, left[:size])
        at, left = at + size, left[size:]


def _apply(data: bytearray, change: _Change) -> None:
    if change.data is None:
        data[change.at :] = bytes(max(0, change.at - len(data)))
        return
    if change.at > len(data):
        data.extend(bytes(change.at - len(data)))
    data[change.at : change.at + len(change.data)] = change.data


class _Op(Protocol):
    def __call__(self, part: float) -> None:
        """Does it, or of a write that much of it."""


class FaultyFile:
    """An open file of a `FaultyDisk`."""

    descriptor = -1

    def __init__(self, disk: FaultyDisk, path: Path, inode: _Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._end = len(inode.data)

    def append(self, *pieces: Buffer) -> int:
        data = b"".join(bytes(memoryview(piece).cast("B")) for piece in pieces)
        self._write(self._end, data)
        start, self._end = self._end, self._end + len(data)
        return start

    def write_at(self, offset: int, data: Buffer) -> None:
        self._write(offset, bytes(memoryview(data).cast("B")))
        self._end = max(self._end, offset + memoryview(data).nbytes)

    def _write(self, at: int, data: bytes) -> None:
        if self._disk.fails("write"):
            part = data[: len(data) // 2]
            self._disk.do(lambda _: self._inode.change(_Change(at, part)))
            raise self._disk.error(self.path)
        self._disk.take(max(0, at + len(data) - max(len(self._inode.data), self._inode.allocated)), self.path)
        self._disk.do(lambda part: self._inode.change(_Change(at, data[: int(part * len(data))])))

    def allocate(self, offset: int, length: int) -> None:
        self._disk.may_fail("allocate", self.path)
        more = max(0, offset + length - max(len(self._inode.data), self._inode.allocated))
        self._disk.take(more, self.path)
        self._inode.allocated = max(self._inode.allocated, offset + length)

    def read_at(self, offset: int, length: int) -> bytes:
        self._disk.may_fail("read", self.path)
        self._disk.check()
        return bytes(memoryview(self._inode.data)[offset : offset + length])

    def size(self) -> int:
        self._disk.check()
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._disk.may_fail("truncate", self.path)
        self._end = self._inode.allocated = size
        self._disk.do(lambda part: self._inode.change(_Change(size)) if part else None)

    def sync(self) -> None:
        self._disk.may_fail("sync", self.path)
        if self._disk.sync_fails:
            raise StorageError(f"{self.path}: cannot sync it: input/output error")
        self._disk.do(lambda part: self._inode.sync() if part else None)

    def has_name(self) -> bool:
        return any(inode is self._inode for inode in self._disk._names.values())

    def close(self) -> None:
        pass


class FaultyLock:
    """A lock of a `FaultyDisk`."""

    def __init__(self, disk: FaultyDisk, path: Path) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locks.discard(str(self._path))

    def has_name(self) -> bool:
        return True  # a simulated lock is no file


class FaultyDisk(AtomicFiles):
    """Files in memory.

    Attributes:
        operations: how many were done that change something.
        cut_at: the number of the operation at which the process is cut off, that one being done whole, in part or not.
        room: how many bytes there may be in all files; a name takes one.
        sync_fails: whether every sync fails.
        calls: how many calls were made that may fail.
        fail_at: the number of the call that fails, with `failure`: a full disk, or another error.
    """

    def __init__(self, rng: random.Random, *, cut_at: int | None = None) -> None:
        self.operations = 0
        self.cut_at = cut_at
        self.room: int | None = None
        self.sync_fails = False
        self.calls = 0
        self.fail_at = 0
        self.failure: type[StorageError] = StorageError
        self.failed = ""
        self.locks: set[str] = set()
        self.cut_off = False
        self._rng = rng
        self._boot = rng.randbytes(16)
        self._dirs: set[str] = {"/"}
        self._names: dict[str, _Inode] = {}
        self._synced: dict[str, _Inode] = {}
        self._journal: list[tuple[str, _Inode | None]] = []

    # ------------------------------------------------------------------------------------ what tests do

    def check(self) -> None:
        """The process goes on only until it is cut off."""
        if self.cut_off:
            raise CutOff

    def do(self, op: _Op) -> None:
        """Counts and does an operation."""
        self.check()
        self.operations += 1
        if self.operations == self.cut_at:
            self.cut_off = True
            op(self._rng.choice((0.0, 1.0, self._rng.random())))
            raise CutOff
        op(1.0)

    def fails(self, kind: str) -> bool:
        """Counts a call that may fail, and says whether this one does."""
        self.check()
        self.calls += 1
        if self.calls == self.fail_at:
            self.failed = kind
        return self.calls == self.fail_at

    def may_fail(self, kind: str, path: Path) -> None:
        """Counts a call; raises an error if it is to fail."""
        if self.fails(kind):
            raise self.error(path)

    def error(self, path: Path) -> StorageError:
        """What the system says."""
        return self.failure(f"{path}: cannot {self.failed}: injected")

    def take(self, size: int, path: Path) -> None:
        """Takes room for so many bytes more."""
        self.check()
        if self.room is not None and size and self.used() + size > self.room:
            raise StorageFull(f"{path}: no room for {size} bytes")

    def used(self) -> int:
        """Bytes in all files, and a byte for each name."""
        return sum(1 + max(len(inode.data), inode.allocated) for inode in self._names.values())

    def killed(self) -> FaultyDisk:
        """What the next process finds when this one was killed: everything that was done."""
        other = FaultyDisk(self._rng)
        other._boot, other._dirs = self._boot, set(self._dirs)
        copies = {
            id(inode): dataclasses.replace(inode, data=bytearray(inode.data), changes=list(inode.changes))
            for inode in (*self._names.values(), *self._synced.values())
        }
        other._names = {path: copies[id(inode)] for path, inode in self._names.items()}
        other._synced = {path: copies[id(inode)] for path, inode in self._synced.items()}
        other._journal = [(path, inode and copies.setdefault(id(inode), inode)) for path, inode in self._journal]
        return other

    def lost_power(self) -> FaultyDisk:
        """What is left after a power loss: what was synced, and of the rest anything."""
        other = FaultyDisk(self._rng)
        other._dirs = set(self._dirs)
        mood = self._rng.choice((0.0, 1.0, 0.5, 0.9))
        last = {folder: self._rng.randint(0, len(self._journal)) for folder in sorted(self._dirs)}
        names = dict(self._synced)
        for number, (path, inode) in enumerate(self._journal):
            # The names of one directory are written in order.
            if number < last[_folder(path)]:
                _rename(names, path, inode)
        left = {id(inode): inode.survivor(self._rng, mood) for inode in names.values()}
        other._names = {path: left[id(inode)] for path, inode in names.items()}
        other._synced = dict(other._names)
        return other

    def content(self) -> dict[Path, bytes]:
        """All files and their bytes."""
        return {Path(path): bytes(inode.data) for path, inode in self._names.items()}

    def spoil(self, path: Path, data: bytes | None) -> None:
        """Gives a file other bytes, or takes it away, as no program does it."""
        if data is None:
            self._names.pop(str(path))
        else:
            self._names[str(path)] = _Inode(bytearray(data), data)

    # ------------------------------------------------------------------------------------ what Files do

    def open(self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False) -> FaultyFile:
        self.may_fail("open", path)
        if str(path) not in self._names:
            if not (write and create) or str(path.parent) not in self._dirs:
                raise FileMissing(f"{path}: cannot open it: there is none")
            self.take(1, path)
            self.do(lambda part: self._name(str(path), _Inode()) if part else None)
        elif exclusive:
            raise StorageError(f"{path}: cannot open it: it exists")
        return FaultyFile(self, path, self._names[str(path)])

    def rename(self, old: Path, new: Path) -> None:
        self.may_fail("rename", old)
        if str(old) not in self._names:
            raise FileMissing(f"{old}: cannot rename it: there is none")
        inode = self._names[str(old)]

        def renamed(part: float) -> None:
            if part:
                self._name(str(new), inode)
                self._name(str(old), None)

        self.do(renamed)

    def link(self, old: Path, new: Path) -> bool:
        if str(new) in self._names:
            return False
        self.take(1, new)
        self.do(lambda part: self._name(str(new), self._names[str(old)]) if part else None)
        return True

    def remove(self, path: Path) -> None:
        self.may_fail("remove", path)
        if str(path) in self._names:
            self.do(lambda part: self._name(str(path), None) if part else None)

    def make_dir(self, path: Path) -> None:
        self.check()
        self._dirs |= {str(path), *map(str, path.parents)}

    def sync_dir(self, path: Path) -> None:
        self.may_fail("sync the directory", path)

        def synced(part: float) -> None:
            if part:
                for name, inode in self._journal:
                    if _folder(name) == str(path):
                        _rename(self._synced, name, inode)
                self._journal = [each for each in self._journal if _folder(each[0]) != str(path)]

        self.do(synced)

    def names(self, path: Path) -> list[str]:
        self.may_fail("list", path)
        prefix = f"{path}/"
        ends = (each[len(prefix) :] for each in (*self._names, *self._dirs) if each.startswith(prefix))
        return sorted(name for name in ends if "/" not in name)

    def lock(self, path: Path) -> FaultyLock | None:
        self.may_fail("lock", path)
        if str(path) in self.locks:
            return None
        self.locks.add(str(path))
        return FaultyLock(self, path)

    def holder(self, path: Path) -> str | None:
        return "pid 1 on host" if str(path) in self.locks else None

    def boot_id(self) -> bytes:
        return self._boot

    def _name(self, path: str, inode: _Inode | None) -> None:
        _rename(self._names, path, inode)
        self._journal.append((path, inode))


def _rename(names: dict[str, _Inode], path: str, inode: _Inode | None) -> None:
    """Lets a name mean a file, or nothing."""
    if inode is None:
        names.pop(path, None)
    else:
        names[path] = inode


def _folder(path: str) -> str:
    """The directory of a name."""
    return path[: path.rindex("/")]
