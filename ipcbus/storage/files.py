"""All disk operations on files that must survive a crash: open, write, sync, rename and lock.

Code above uses a `Files` and never calls the system itself, so that tests can replace it with a disk that fails at any
operation: it loses power, tears unsynced data, or has no room.

After the kill of a process, its files contain all that it had written, because the system keeps the data in memory.
After a power loss, they contain what was synced; other data may be whole, torn or lost. `Files.boot_id` shows which of
the two happened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ipcbus.errors import StorageError, StorageFull
from ipcbus.storage import file_calls, locks
from ringbuf.segment import no_descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from ipcbus.storage.locks import FileLock

_FLAGS: Final = (
    os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK
)  # O_NONBLOCK: opening a FIFO must not wait for its other end
_PIECES_MAX: Final = 512  # most pieces of one writev; IOV_MAX is 1024
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def is_name(text: str) -> bool:
    """Returns whether a text is valid as the name of a file: 1 to 100 letters, digits, `.`, `_` and `-`."""
    return _NAME.fullmatch(text) is not None


class FileMissing(StorageError):
    """There is no file of this name.

    Cure: the caller handles it; inside the package this is an answer, not a failure.
    """


class File(Protocol):
    """An open file."""

    path: Path

    @property
    def descriptor(self) -> int:
        """For compiled code that writes at offsets itself; -1: it must call `write_at`."""

    def append(self, *pieces: Buffer) -> int:
        """Writes all pieces at the end of the file, and returns the offset of the first one.

        Raises:
            StorageFull: the disk has no room; the file keeps its size.
            StorageError: the system refuses; the file keeps its size, or, if cutting it fails, the next append
                overwrites the partial data.
        """

    def write_at(self, offset: int, data: Buffer) -> None:
        """Writes data at an offset, and extends the file if it ends before the end of the data."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Returns `length` bytes from an offset, or fewer if the file ends before."""

    def size(self) -> int:
        """Returns the size of the file in bytes."""

    def allocate(self, offset: int, length: int) -> None:
        """Reserves room on the disk, so that writes there find it; the size of the file stays, and `truncate` ends it.

        File systems that cannot do it do nothing.

        Raises:
            StorageFull: the disk has no room.
            StorageError: the system refuses.
        """

    def truncate(self, size: int) -> None:
        """Cuts the file; no reader that may have mapped it can have seen the part that is cut off."""

    def sync(self) -> None:
        """Waits until all written data will survive a power loss."""

    def has_name(self) -> bool:
        """Returns whether the open file still has a name; False when it, or its directory, was removed."""

    def close(self) -> None:
        """Closes the file; a second call does nothing."""


class Lock(Protocol):
    """A lock that lasts until it is released or its process ends."""

    def has_name(self) -> bool:
        """See `File`; without its name, another process can make a file of that name and lock that."""

    def release(self) -> None:
        """Releases the lock; a second call does nothing."""


class Files(Protocol):
    """A file system."""

    def open(self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False) -> File:
        """Opens a regular file.

        Args:
            path: the file; a symbolic link is not followed.
            write: open it for writing, too.
            create: make a missing file; needs `write`.
            exclusive: with `create`, raise an error if the file exists.

        Raises:
            FileMissing: there is no such file.
            StorageError: the system refuses, or the path is not a regular file.
        """

    def replace(self, path: Path, data: Buffer, *, sync: bool = True) -> None:
        """Replaces the content of a file atomically: the file has its old or its new content, also after a crash."""

    def create(self, path: Path, data: Buffer) -> bool:
        """Makes a file with its content atomically, and syncs it; returns False, and changes nothing, if it exists."""

    def rename(self, old: Path, new: Path) -> None:
        """Renames a file, and replaces the file `new`; `sync_dir` of the directory makes the change durable."""

    def link(self, old: Path, new: Path) -> bool:
        """Gives a file a second name; returns False if that name exists."""

    def remove(self, path: Path) -> None:
        """Removes a file, if it exists."""

    def make_dir(self, path: Path) -> None:
        """Makes a directory and its parents with mode 0700 where they are missing, and syncs their names."""

    def sync_dir(self, path: Path) -> None:
        """Waits until the names in a directory will survive a power loss."""

    def names(self, path: Path) -> list[str]:
        """Returns the sorted names in a directory; none if the path is missing or not a directory.

        Raises:
            StorageError: the path is a symbolic link, or the system refuses.
        """

    def lock(self, path: Path) -> Lock | None:
        """Takes the lock of a file, which it makes if needed; returns None if another holder has the lock.

        The file contains pid and host of the holder.
        """

    def holder(self, path: Path) -> str | None:
        """Returns the text that the holder of a lock wrote into the file; None if the lock is free."""

    def boot_id(self) -> bytes:
        """Returns 16 bytes that change with each boot, and so with each power loss of this host."""


@contextlib.contextmanager
def typed_errors(path: Path, doing: str, cure: str = "check the path, its permissions and its disk") -> Iterator[None]:
    """Turns errors of the system into errors of this package.

    Raises:
        FileMissing: there is no such file or directory.
        StorageFull: the disk has no room.
        StorageError: the system refuses for another reason.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise FileMissing(f"{path}: cannot {doing}: there is no such file or directory; {cure}") from error
    except OSError as error:
        if error.errno in locks.FULL:
            raise StorageFull(
                f"{path}: cannot {doing}: {error.strerror}; make room on this disk, or use another disk"
            ) from error
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise StorageError(f"{path}: cannot {doing}: {no_descriptors()}") from error
        raise StorageError(f"{path}: cannot {doing}: {error.strerror or error}; {cure}") from error


class DiskFile:
    """A file of the operating system; made by `Disk.open`."""

    def __init__(self, path: Path, fd: int) -> None:
        """Takes ownership of the descriptor."""
        self.path = path
        self._fd = fd
        self._end = os.fstat(fd).st_size

    @property
    def descriptor(self) -> int:
        """See `File`."""
        return self._fd

    def append(self, *pieces: Buffer) -> int:
        """See `File`."""
        remaining = [view for piece in pieces if (view := memoryview(piece).cast("B"))]
        length = sum(map(len, remaining))
        start = at = self._end
        with typed_errors(self.path, f"append {length} bytes"):
            try:
                while remaining:
                    written = os.pwritev(self._fd, remaining[:_PIECES_MAX], at)
                    at += written
                    remaining = _without_prefix(remaining, written)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, start)
                raise
        self._end = at
        return start

    def write_at(self, offset: int, data: Buffer) -> None:
        """See `File`."""
        view = memoryview(data).cast("B")
        with typed_errors(self.path, f"write {len(view)} bytes"):
            done = 0
            while done < len(view):
                done += os.pwrite(self._fd, view[done:], offset + done)
        self._end = max(self._end, offset + len(view))

    def read_at(self, offset: int, length: int) -> bytes:
        """See `File`."""
        with typed_errors(self.path, f"read {length} bytes at {offset}"):
            # A damaged file may claim any length; the size of the file limits the memory that is used.
            length = min(length, max(0, os.fstat(self._fd).st_size - offset))
            data = os.pread(self._fd, length, offset)
            while len(data) < length:  # at the end, after a signal, or when one call returns less
                more = os.pread(self._fd, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        return data

    def size(self) -> int:
        """See `File`."""
        with typed_errors(self.path, "look at it"):
            return os.fstat(self._fd).st_size

    def allocate(self, offset: int, length: int) -> None:
        """See `File`."""
        with typed_errors(self.path, f"allocate {length} bytes"):
            try:
                file_calls.allocate(self._fd, offset, length)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                    raise

    def truncate(self, size: int) -> None:
        """See `File`."""
        with typed_errors(self.path, f"cut it to {size} bytes"):
            self._end = size  # also if the system refuses: the next append overwrites the rest then
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """See `File`."""
        with typed_errors(self.path, "sync it"):
            os.fdatasync(self._fd)

    def has_name(self) -> bool:
        """See `File`."""
        return file_calls.links(self._fd) > 0

    def close(self) -> None:
        """See `File`."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with typed_errors(self.path, "close it"):
                os.close(fd)


class AtomicFiles:
    """The atomic operations of `Files`, made of its other operations."""

    def replace(self: Files, path: Path, data: Buffer, *, sync: bool = True) -> None:
        """See `Files`."""
        with _beside(self, path, data, sync=sync) as made:
            self.rename(made, path)
        if sync:
            self.sync_dir(path.parent)

    def create(self: Files, path: Path, data: Buffer) -> bool:
        """See `Files`."""
        with _beside(self, path, data, sync=True) as made:
            is_new = self.link(made, path)
        self.sync_dir(path.parent)
        return is_new


@contextlib.contextmanager
def _beside(files: Files, path: Path, data: Buffer, *, sync: bool) -> Iterator[Path]:
    """Makes a temporary file with this content beside `path`, and removes it at the end unless it was renamed."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with contextlib.closing(files.open(made, write=True, create=True, exclusive=True)) as file:
            file.append(data)
            if sync:
                file.sync()
        yield made
    finally:
        files.remove(made)


class Disk(AtomicFiles):
    """The files of the operating system, private to their user."""

    def open(self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False) -> DiskFile:
        """See `Files`."""
        flags = _FLAGS | (os.O_RDWR if write else os.O_RDONLY)
        flags |= (os.O_CREAT if create else 0) | (os.O_EXCL if exclusive else 0)
        with typed_errors(path, "open it"):
            fd = os.open(path, flags, 0o600)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise OSError(errno.EINVAL, "it is not a regular file")
                return DiskFile(path, fd)
            except BaseException:
                os.close(fd)
                raise

    def rename(self, old: Path, new: Path) -> None:
        """See `Files`."""
        with typed_errors(old, f"rename it to {new}"):
            os.replace(old, new)

    def link(self, old: Path, new: Path) -> bool:
        """See `Files`."""
        with typed_errors(old, f"give it the name {new} too"):
            try:
                os.link(old, new, follow_symlinks=False)
            except FileExistsError:
                return False
        return True

    def remove(self, path: Path) -> None:
        """See `Files`."""
        with typed_errors(path, "remove it"), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def make_dir(self, path: Path) -> None:
        """See `Files`."""
        with typed_errors(path, "make the directory"):
            _refuse_link(path)
            missing = [each for each in (path, *path.parents) if not each.is_dir()]
        for each in reversed(missing):
            with typed_errors(each, "make the directory"):
                try:
                    os.mkdir(each, 0o700)
                except FileExistsError:
                    if not each.is_dir():  # a directory was made by another process in the meantime
                        raise
            self.sync_dir(each.parent)

    def sync_dir(self, path: Path) -> None:
        """See `Files`."""
        with typed_errors(path, "sync the directory"):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def names(self, path: Path) -> list[str]:
        """See `Files`."""
        with typed_errors(path, "list it"):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise
                _refuse_link(path)  # an empty result would make it look new
                return []
            try:
                return sorted(os.listdir(fd))
            finally:
                os.close(fd)

    def lock(self, path: Path) -> FileLock | None:
        """See `Files`."""
        with typed_errors(path, "lock it"):
            return locks.take(os.open(path, _FLAGS | os.O_RDWR | os.O_CREAT, 0o600))

    def holder(self, path: Path) -> str | None:
        """See `Files`."""
        try:
            with typed_errors(path, "look who holds it"):
                fd = os.open(path, _FLAGS | os.O_RDONLY)
                try:
                    return locks.holder(fd)
                finally:
                    os.close(fd)
        except FileMissing:
            return None

    def boot_id(self) -> bytes:
        """See `Files`."""
        try:
            return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
        except (OSError, ValueError):
            return secrets.token_bytes(16)  # unknown, so a power loss must be assumed


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise StorageError(
            f"{path} is a symbolic link, but archives and GMD areas need real directories; move its target "
            "here, mount it here, or remove the link"
        )


def _without_prefix(pieces: list[memoryview], written: int) -> list[memoryview]:
    """Returns the pieces without their first `written` bytes."""
    for number, piece in enumerate(pieces):
        if written < len(piece):
            return [piece[written:], *pieces[number + 1 :]]
        written -= len(piece)
    return []
