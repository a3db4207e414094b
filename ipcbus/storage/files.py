"""The one way to the disk: every open, write, sync, rename and lock of what has to survive a crash.

Code above takes a `Files` and never calls the system itself, so that tests can hand it a disk that fails (it loses
power, tears what was not synced, has no room) at any operation.

What a crash leaves: a process that is killed leaves all that it had written, as the system keeps it in memory. Power
loss leaves what was synced; of the rest it may keep, lose or tear anything. `Files.boot_id` tells the two apart.
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
from ipcbus.storage import locks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from ipcbus.storage.locks import FileLock

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FLAGS: Final = (
    os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK
)  # the last: never wait for a FIFO's other end
_PIECES_MAX: Final = 512  # of one writev; IOV_MAX is 1024
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def is_name(text: str) -> bool:
    """Whether somebody's name for something can be that of its file: 1 to 100 letters, digits, `.`, `_` and `-`."""
    return _NAME.fullmatch(text) is not None


class FileMissing(StorageError):
    """There is no file of that name.

    Cure: that of whoever asked for it; inside the package this is an answer, not a failure.
    """


class File(Protocol):
    """An open file."""

    path: Path

    def append(self, *pieces: Buffer) -> int:
        """Writes all of the pieces at the end; returns the offset where they begin.

        Raises:
            StorageFull: no room; the file is as long as before.
            StorageError: the system refuses; the file is as long as before, or, when not even that can be had, the
                next append overwrites what came too much.
        """

    def write_at(self, offset: int, data: Buffer) -> None:
        """Writes at an offset; longer files stay as long as they are."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from an offset; fewer only where the file ends."""

    def size(self) -> int:
        """Bytes it has now."""

    def truncate(self, size: int) -> None:
        """Cuts it; what is cut off must never have been shown to a reader that may have it mapped."""

    def sync(self) -> None:
        """Returns when all that was written will survive a power loss."""

    def close(self) -> None:
        """Closes it; again does nothing."""


class Lock(Protocol):
    """A lock that is held until it is released, or its process ends, however that ends."""

    def release(self) -> None:
        """Gives it back; again does nothing."""


class Files(Protocol):
    """Where files are."""

    def open(self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False) -> File:
        """Opens a plain file.

        Args:
            path: which; never followed where it is a symbolic link.
            write: for writing too.
            create: make it where there is none; needs `write`.
            exclusive: with `create`, one that is there is an error.

        Raises:
            FileMissing: there is none.
            StorageError: the system refuses, or it is no plain file.
        """

    def replace(self, path: Path, data: Buffer, *, sync: bool = True) -> None:
        """Gives a file new content at once: who opens it finds the old or the new, whole, also after a power loss."""

    def create(self, path: Path, data: Buffer) -> bool:
        """Makes a file with its content at once and synced; False when there is one already, which stays."""

    def rename(self, old: Path, new: Path) -> None:
        """Renames a file over whatever is there; `sync_dir` of the directory makes it last."""

    def link(self, old: Path, new: Path) -> bool:
        """Gives a file a second name; False when that is taken."""

    def remove(self, path: Path) -> None:
        """Removes a file; nothing where there is none."""

    def make_dir(self, path: Path) -> None:
        """Makes a directory, and those above it, of mode 0700, so that they last; nothing where it is there."""

    def sync_dir(self, path: Path) -> None:
        """Returns when the names in a directory will survive a power loss."""

    def names(self, path: Path) -> list[str]:
        """Names in a directory, sorted; none where it is missing, or no directory.

        Raises:
            StorageError: it is a symbolic link, or the system refuses.
        """

    def lock(self, path: Path) -> Lock | None:
        """Takes the lock of a file, made if needed, with pid and host written into it; None when it is taken."""

    def holder(self, path: Path) -> str | None:
        """What the holder of a lock wrote of himself; None when nobody holds it."""

    def boot_id(self) -> bytes:
        """16 bytes: the same as long as no power loss can have happened on this host."""


@contextlib.contextmanager
def told(path: Path, doing: str, cure: str = "check the path, its permissions and its disk") -> Iterator[None]:
    """Turns what the system answers into our errors.

    Raises:
        FileMissing: there is no file of that name.
        StorageFull: no room.
        StorageError: anything else.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise FileMissing(f"{path}: cannot {doing}: there is no such file or directory; {cure}") from error
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(
                f"{path}: cannot {doing}: {error.strerror}; make room on that disk, keep less (retain_bytes), or use "
                "another disk"
            ) from error
        raise StorageError(f"{path}: cannot {doing}: {error.strerror or error}; {cure}") from error


class DiskFile:
    """A file of the operating system; made by `Disk.open`."""

    def __init__(self, path: Path, fd: int) -> None:
        """Takes the descriptor over."""
        self.path = path
        self._fd = fd
        self._end = os.fstat(fd).st_size

    def append(self, *pieces: Buffer) -> int:
        """See `File`."""
        left = [view for piece in pieces if (view := memoryview(piece).cast("B"))]
        length = sum(map(len, left))
        start = at = self._end
        with told(self.path, f"append {length} bytes"):
            try:
                while left:
                    written = os.pwritev(self._fd, left[:_PIECES_MAX], at)
                    at += written
                    left = _after(left, written)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, start)
                raise
        self._end = at
        return start

    def write_at(self, offset: int, data: Buffer) -> None:
        """See `File`."""
        view = memoryview(data).cast("B")
        with told(self.path, f"write {len(view)} bytes"):
            done = 0
            while done < len(view):
                done += os.pwrite(self._fd, view[done:], offset + done)
        self._end = max(self._end, offset + len(view))

    def read_at(self, offset: int, length: int) -> bytes:
        """See `File`."""
        with told(self.path, f"read {length} bytes at {offset}"):
            # Files are hostile: what claims to be long must not take memory that its file does not fill.
            length = min(length, max(0, os.fstat(self._fd).st_size - offset))
            data = os.pread(self._fd, length, offset)
            while len(data) < length:  # the end, or a signal, or more than one call gives
                more = os.pread(self._fd, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        return data

    def size(self) -> int:
        """See `File`."""
        with told(self.path, "look at it"):
            return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        """See `File`."""
        with told(self.path, f"cut it to {size} bytes"):
            self._end = size  # also where the system refuses: what is beyond then is overwritten
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """See `File`."""
        with told(self.path, "sync it"):
            os.fdatasync(self._fd)

    def close(self) -> None:
        """See `File`."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with told(self.path, "close it"):
                os.close(fd)


class Whole:
    """What of `Files` is made of its other operations: files that are there whole or not at all."""

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
    """A file of the same directory with that content, gone afterwards unless it was renamed."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with contextlib.closing(files.open(made, write=True, create=True, exclusive=True)) as file:
            file.append(data)
            if sync:
                file.sync()
        yield made
    finally:
        files.remove(made)


class Disk(Whole):
    """The files of the operating system, private to their user."""

    def open(self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False) -> DiskFile:
        """See `Files`."""
        flags = _FLAGS | (os.O_RDWR if write else os.O_RDONLY)
        flags |= (os.O_CREAT if create else 0) | (os.O_EXCL if exclusive else 0)
        with told(path, "open it"):
            fd = os.open(path, flags, 0o600)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise OSError(errno.EINVAL, "it is no plain file")
                return DiskFile(path, fd)
            except BaseException:
                os.close(fd)
                raise

    def rename(self, old: Path, new: Path) -> None:
        """See `Files`."""
        with told(old, f"rename it to {new}"):
            os.replace(old, new)

    def link(self, old: Path, new: Path) -> bool:
        """See `Files`."""
        with told(old, f"give it the name {new} too"):
            try:
                os.link(old, new, follow_symlinks=False)
            except FileExistsError:
                return False
        return True

    def remove(self, path: Path) -> None:
        """See `Files`."""
        with told(path, "remove it"), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def make_dir(self, path: Path) -> None:
        """See `Files`."""
        with told(path, "make the directory"):
            _refuse_link(path)
            missing = [each for each in (path, *path.parents) if not each.is_dir()]
        for each in reversed(missing):
            with told(each, "make the directory"):
                try:
                    os.mkdir(each, 0o700)
                except FileExistsError:
                    if not each.is_dir():  # else somebody else was quicker
                        raise
            self.sync_dir(each.parent)

    def sync_dir(self, path: Path) -> None:
        """See `Files`."""
        with told(path, "sync the directory"):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def names(self, path: Path) -> list[str]:
        """See `Files`."""
        with told(path, "list it"):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise
                _refuse_link(path)  # as empty it would be taken for new
                return []
            try:
                return sorted(os.listdir(fd))
            finally:
                os.close(fd)

    def lock(self, path: Path) -> FileLock | None:
        """See `Files`."""
        with told(path, "lock it"):
            return locks.take(os.open(path, _FLAGS | os.O_RDWR | os.O_CREAT, 0o600))

    def holder(self, path: Path) -> str | None:
        """See `Files`."""
        try:
            with told(path, "look who holds it"):
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
            return secrets.token_bytes(16)  # cannot tell: then a power loss is what has to be assumed


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise StorageError(
            f"{path}: is a symbolic link, files are kept in plain directories; put its target here, mount it here, or "
            "remove it"
        )


def _after(pieces: list[memoryview], written: int) -> list[memoryview]:
    """What is left of the pieces when so many bytes of them are written."""
    for number, piece in enumerate(pieces):
        if written < len(piece):
            return [piece[written:], *pieces[number + 1 :]]
        written -= len(piece)
    return []
