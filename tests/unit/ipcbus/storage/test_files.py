from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus.errors import StorageError, StorageFull
from ipcbus.storage.files import Disk, FileMissing
from tests.rings.children import Children, Flag

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ipcbus.storage.files import DiskFile

DISK = Disk()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DiskFile]:
    """A new file."""
    opened = DISK.open(tmp_path / "file", write=True, create=True)
    yield opened
    opened.close()


def test_what_is_written_is_read(file: DiskFile, tmp_path: Path) -> None:
    assert file.append(b"abc", b"", memoryview(b"def")) == 0
    assert file.append(b"ghi") == 6
    file.write_at(1, b"XY")
    file.sync()
    assert (file.read_at(0, 100), file.read_at(4, 2), file.read_at(9, 1), file.size()) == (b"aXYdefghi", b"ef", b"", 9)
    file.truncate(4)
    assert file.append(b"!") == 4
    file.write_at(7, b"end")
    assert file.append(b".") == 10
    file.close()
    file.close()
    assert (tmp_path / "file").read_bytes() == b"aXYd!\0\0end."
    again = DISK.open(tmp_path / "file", write=True)
    assert again.append(b"more") == 11
    again.close()


def test_thousands_of_pieces_are_one_append(file: DiskFile) -> None:
    pieces = [bytes([number % 251]) * (number % 7) for number in range(3000)]
    file.append(*pieces)
    assert file.read_at(0, file.size()) == b"".join(pieces)


def test_writes_that_do_less_than_asked_go_on(file: DiskFile, monkeypatch: pytest.MonkeyPatch) -> None:
    pwritev, pwrite, pread = os.pwritev, os.pwrite, os.pread
    monkeypatch.setattr(os, "pwritev", lambda fd, views, at: pwritev(fd, [views[0][:3]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:2], at))
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 5), at))
    file.append(b"0123456", b"789", b"abcdefghij")
    file.write_at(1, b"ABCDE")
    assert file.read_at(0, 100) == b"0ABCDE6789abcdefghij"


@pytest.mark.parametrize("full", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_leaves_the_file_as_it_was(file: DiskFile, monkeypatch: pytest.MonkeyPatch, full: int) -> None:
    file.append(b"first")
    pwritev = os.pwritev
    left = 4

    def writing(fd: int, views: list[memoryview], at: int) -> int:
        nonlocal left
        if not left:
            raise OSError(full, os.strerror(full))
        done = pwritev(fd, [views[0][:left]], at)
        left -= done
        return done

    monkeypatch.setattr(os, "pwritev", writing)
    with pytest.raises(StorageFull, match="make room"):
        file.append(b"second")
    assert (file.size(), file.read_at(0, 100)) == (5, b"first")
    monkeypatch.undo()
    assert file.append(b"third") == 5


def limited(path: Path) -> list[Any]:
    """Appends where the system lets no file grow beyond 10 kB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    opened = DISK.open(path, write=True, create=True)
    opened.append(bytes(8000))
    try:
        opened.append(bytes(8000))
    except StorageFull as error:
        return [str(error), opened.size(), opened.append(bytes(2000))]
    return []


def test_the_system_refuses_more(tmp_path: Path) -> None:
    with Children() as children:
        text, size, at = children.run(limited, tmp_path / "file").result()
    assert "cannot append 8000 bytes" in text
    assert (size, at) == (8000, 8000)


def test_what_the_system_refuses_is_typed(file: DiskFile, tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match="none"):
        DISK.open(tmp_path / "none")
    with pytest.raises(StorageError, match="exists"):
        DISK.open(tmp_path / "file", write=True, create=True, exclusive=True)
    reading = DISK.open(tmp_path / "file")
    with pytest.raises(StorageError, match="cannot append"):
        reading.append(b"x")
    with pytest.raises(StorageError, match="cannot write"):
        reading.write_at(0, b"x")
    reading.close()
    file.close()
    with pytest.raises(StorageError, match="cannot read"):
        file.read_at(0, 1)
    with pytest.raises(FileMissing, match="rename"):
        DISK.rename(tmp_path / "none", tmp_path / "other")
    DISK.remove(tmp_path / "none")


def test_too_many_open_files_are_told_with_the_cure(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    errors = []
    try:
        for call in (DISK.names, DISK.sync_dir, DISK.lock, DISK.open):
            with pytest.raises(StorageError) as failure:
                call(tmp_path)
            errors.append(str(failure.value))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert all("0 files" in text and "ulimit -n" in text and "permissions" not in text for text in errors), errors


def test_only_plain_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "target").write_text("x")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", ".", "/dev/null"):
        for write in (False, True):
            with pytest.raises(StorageError):
                DISK.open(tmp_path / name, write=write)
    with pytest.raises(StorageError):
        DISK.lock(tmp_path / "link")
    assert (tmp_path / "target").read_text() == "x"


def test_files_and_directories_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        DISK.make_dir(tmp_path / "a" / "b")
        DISK.replace(tmp_path / "a" / "file", b"x")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/file")] == [0o700, 0o700, 0o600]
    DISK.make_dir(tmp_path / "a" / "b")
    with pytest.raises(StorageError):
        DISK.make_dir(tmp_path / "a" / "file")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(StorageError, match="symbolic link"):
        DISK.make_dir(tmp_path / "link")
    assert DISK.names(tmp_path / "a") == ["b", "file"]
    with pytest.raises(StorageError, match="symbolic link"):
        DISK.names(tmp_path / "link")
    assert DISK.names(tmp_path / "none") == DISK.names(tmp_path / "a" / "file") == []


def test_replacing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    DISK.replace(path, b"old")
    assert not DISK.create(path, b"other")
    assert path.read_bytes() == b"old"
    reading = DISK.open(path)
    DISK.replace(path, b"new", sync=False)
    assert (reading.read_at(0, 9), path.read_bytes()) == (b"old", b"new")
    reading.close()
    monkeypatch.setattr(os, "replace", lambda *_: os.stat(tmp_path / "none"))
    with pytest.raises(StorageError):
        DISK.replace(path, b"newer")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"new", ["file"])
    monkeypatch.undo()
    assert DISK.create(tmp_path / "second", b"x")
    assert sorted(os.listdir(tmp_path)) == ["file", "second"]


def create(path: Path, mine: bytes, ready: Flag, go: Flag) -> bool:
    """Tries to be the first."""
    ready.raise_it()
    go.wait()
    return DISK.create(path, mine)


def test_one_of_many_makes_the_file(tmp_path: Path) -> None:
    with Children() as children, Flag() as ready, Flag() as go:
        racing = [children.run(create, tmp_path / "file", bytes([n]), ready, go) for n in range(4)]
        for _ in racing:
            children.until(ready)
        for _ in racing:
            go.raise_it()
        first = [child.result() for child in racing]
    assert sorted(first) == [False, False, False, True]
    assert (tmp_path / "file").read_bytes() == bytes([first.index(True)])
    assert os.listdir(tmp_path) == ["file"]


def hold(path: Path, taken: Flag, until: Flag) -> bool:
    """Takes a lock and keeps it."""
    lock = DISK.lock(path)
    taken.raise_it()
    until.wait()
    return lock is not None


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert DISK.holder(path) is None
    with Children() as children, Flag() as taken, Flag() as never:
        child = children.run(hold, path, taken, never)
        children.until(taken)
        assert DISK.lock(path) is None
        assert (DISK.holder(path) or "").startswith(f"pid {child.pid} on ")
        child.kill()
        assert DISK.holder(path) is None
    lock = DISK.lock(path)
    assert lock is not None
    assert DISK.lock(path) is None
    lock.release()
    lock.release()
    assert DISK.holder(path) is None


def stay(runs: Flag, until: Flag) -> None:
    """Does nothing for a while."""
    runs.raise_it()
    until.wait()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = DISK.lock(tmp_path / "lock")
    assert lock is not None
    with Children() as children, Flag() as runs, Flag() as until:
        children.run(stay, runs, until)
        children.until(runs)
        lock.release()
        assert DISK.holder(tmp_path / "lock") is None
        until.raise_it()


def test_the_holder_is_text_that_does_nothing_to_a_terminal(tmp_path: Path) -> None:
    lock = DISK.lock(tmp_path / "lock")
    assert lock is not None
    (tmp_path / "lock").write_bytes(b"\x1b[2Jpid 1\xff\n" + bytes(10_000))
    assert DISK.holder(tmp_path / "lock") == "[2Jpid 1\N{REPLACEMENT CHARACTER}"
    (tmp_path / "lock").write_bytes(b"")
    assert DISK.holder(tmp_path / "lock") == "an unknown process"
    lock.release()


def test_the_boot_id_stays() -> None:
    assert DISK.boot_id() == Disk().boot_id()
    assert len(DISK.boot_id()) == 16


def test_allocated_room_is_behind_the_end(file: DiskFile) -> None:
    file.append(b"abc")
    file.allocate(3, 1 << 20)
    assert file.size() == 3
    assert os.fstat(file.descriptor).st_blocks * 512 >= 1 << 20
    assert file.append(b"def") == 3
    file.truncate(6)
    assert os.fstat(file.descriptor).st_blocks * 512 < 1 << 20
    with pytest.raises(StorageError, match="cannot allocate -1 bytes"):
        file.allocate(0, -1)
