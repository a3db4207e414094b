"""Creates, opens and removes shared objects: whole or not at all, private by default.

An object is allocated in full before it is used, so a full /dev/shm is an error here and never a SIGBUS later.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import grp
import os
import resource
import stat
import sys
from pathlib import Path

from ringbuf.memory import Mapping
from ringbuf.ring_errors import NoDescriptors, RingError, SegmentFull, SegmentGone, SegmentRefused

if getattr(sys, "_is_gil_enabled", lambda: True)():
    import posix_ipc
else:
    # The package says nothing of free threads, so that importing it would turn the interpreter's lock on.
    posix_ipc = None

ROOT = Path("/dev/shm")
"""The directory of shared objects, and of the FIFOs that belong to them."""

NAME_MAX = 30
"""Longest name in characters; names of this length would fit other systems too."""


def create(name: str, size: int, *, group: str = "", mode: int = 0o600) -> int:
    """Creates a shared object with allocated bytes of zero.

    What was closed in this process may keep its memory until it is collected; where there is too little room, it is
    collected first.

    Args:
        name: at most `NAME_MAX` characters, without a slash.
        size: bytes.
        group: when not empty, the object is given to this group and the group may read and write it.
        mode: permissions; the umask of the process is ignored.

    Returns:
        A descriptor, open for reading and writing, closed on exec.

    Raises:
        FileExistsError: an object with this name exists.
        SegmentFull: /dev/shm has too little room.
        SegmentRefused: the system or the group does not allow it.
    """
    check_name(name)
    try:
        return _create(name, size, group, mode)
    except SegmentFull:
        if not gc.collect():
            raise
        return _create(name, size, group, mode)


def _create(name: str, size: int, group: str, mode: int) -> int:
    try:
        fd = _open_new(name)
    except FileExistsError as error:
        raise FileExistsError(errno.EEXIST, f"shared object {name} exists already") from error
    except PermissionError as error:
        raise SegmentRefused(f"no permission to create {name} in {ROOT}; make {ROOT} writable for this user") from error
    except OSError as error:
        refused = refusal(error, f"create {name}")
        if refused is None:
            raise
        raise refused from error
    try:
        allocate(fd, name, size)
        give_to(fd, name, group, mode)
    except BaseException:
        os.close(fd)
        remove(name)
        raise
    return fd


def _open_new(name: str) -> int:
    """Creates an empty object as shm_open(3) does; raises OSError."""
    if posix_ipc is None:
        return os.open(ROOT / name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        return int(posix_ipc.SharedMemory("/" + name, posix_ipc.O_CREX, mode=0o600).fd)
    except posix_ipc.ExistentialError as error:
        raise FileExistsError(errno.EEXIST, str(error)) from None
    except posix_ipc.PermissionsError as error:
        raise PermissionError(errno.EACCES, str(error)) from None


def _unlink(name: str) -> None:
    """Removes a name as shm_unlink(3) does; raises OSError."""
    if posix_ipc is None:
        os.unlink(ROOT / name)
        return
    try:
        posix_ipc.unlink_shared_memory("/" + name)
    except posix_ipc.ExistentialError as error:
        raise FileNotFoundError(errno.ENOENT, str(error)) from None
    except posix_ipc.PermissionsError as error:
        raise PermissionError(errno.EACCES, str(error)) from None


def allocate(fd: int, name: str, size: int) -> None:
    """Gives the object a size of `size` bytes, all of them allocated.

    Raises:
        SegmentFull: /dev/shm has too little room.
    """
    have = os.fstat(fd).st_size
    free = free_bytes()
    # Checked first: an allocation that fails half way would for a moment leave no byte for other processes.
    if free is None or size - have <= free:
        try:
            os.posix_fallocate(fd, 0, size)
            return
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise SegmentFull(f"cannot make {name} of {size} bytes: {_file_limit()}") from error
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
    raise SegmentFull(
        f"{name} needs {size - have} bytes of {ROOT}, {free_bytes()} are free; choose a smaller "
        "transport_*_transmission_window_size, reclaim what dead processes left (ipcbus doctor --reclaim), or give the "
        "host or container a larger one (docker run --shm-size)"
    )


def refusal(error: OSError, what: str) -> RingError | None:
    """Returns a typed error with a cure for an error of the system; None for other errors.

    Args:
        error: the error of the system.
        what: the action that failed, such as "create NAME".
    """
    # posix_ipc gives no number with EMFILE and ENFILE; open(2) does.
    if error.errno in (errno.EMFILE, errno.ENFILE, None):
        return NoDescriptors(f"cannot {what}: {no_descriptors()}")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        found = os.statvfs(ROOT)
        return SegmentFull(
            f"cannot {what}: {found.f_ffree} of {found.f_files} inodes of {ROOT} are free, and {free_bytes()} bytes; "
            "reclaim what dead processes left (ipcbus doctor --reclaim), or mount it with more "
            f"(mount -o remount,nr_inodes=100k {ROOT})"
        )
    if error.errno == errno.EFBIG:
        return SegmentFull(f"cannot {what}: {_file_limit()}")
    if error.errno == errno.EROFS:
        return SegmentRefused(
            f"cannot {what}: {ROOT} is mounted read-only; mount it writable: mount -o remount,rw {ROOT}"
        )
    return None


def _file_limit() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return (
        f"this process may make files and shared memory of at most {limit} bytes each; raise the limit (ulimit -f, "
        "LimitFSIZE= of the service), or ask for less: a smaller transmission window, or Queue(max_bytes=...)"
    )


def no_descriptors() -> str:
    """Returns why a file cannot be opened when the system refuses with EMFILE or ENFILE, and the cure."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"this process may open {limit} files at a time, or the system has no more; raise the limit (ulimit -n, "
        "LimitNOFILE= of the service, sysctl fs.file-max), or close contexts and sources"
    )


def free_bytes() -> int | None:
    """Returns the free bytes of /dev/shm; None where it has no limit."""
    limits = os.statvfs(ROOT)
    return limits.f_bavail * limits.f_frsize if limits.f_blocks else None


def give_to(fd: int, name: str, group: str, mode: int) -> None:
    """Sets the group, a name or a number, and the permissions of an object.

    Raises:
        SegmentRefused: the group does not exist, or this user may not give the object to it.
    """
    if not group:
        os.fchmod(fd, mode)
        return
    try:
        os.fchown(fd, -1, int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid)
    except (KeyError, PermissionError, OverflowError) as error:
        raise SegmentRefused(
            f"{name} cannot be given to group {group!r} ({error}); name a group that exists and that this user is in"
        ) from error
    os.fchmod(fd, mode | 0o060)


def open_fd(name: str, *, write: bool) -> int:
    """Opens an existing object.

    Returns:
        A descriptor, closed on exec.

    Raises:
        SegmentGone: there is no such object.
        SegmentRefused: this user may not open it; the text names the owner.
    """
    check_name(name)
    # Not shm_open: it would wait for ever on a FIFO of this name.
    flags = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY)
    try:
        fd = os.open(os.path.join(ROOT, name), flags)
    except FileNotFoundError as error:
        raise SegmentGone(f"shared object {name} does not exist (any more)") from error
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        raise SegmentRefused(
            f"no permission to open {name} (owner uid {_owner(name)}, this process uid {os.geteuid()}); run both "
            "sides as one user, or set shared_memory_group to a group of both"
        ) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise SegmentRefused(f"{name} in {ROOT} is not a shared object; another program took its name: remove it")
    return fd


def map_fd(fd: int, *, write: bool, twice_from: int = 0, reserve: int = 0) -> Mapping:
    """Maps a whole object; see `Mapping` for the arguments.

    A mapping keeps its open file description, and with it the locks of that description (`liveness`), also in a child
    after a fork. So the object is opened again for the mapping, and locks end with the caller's descriptors.
    """
    access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    own = os.open(f"/proc/self/fd/{fd}", access | os.O_CLOEXEC)
    try:
        return Mapping(own, os.fstat(own).st_size, write, twice_from, reserve)
    finally:
        os.close(own)


def cut_short(mapping: Mapping) -> bool:
    """Returns whether another program truncated a mapped object; touches its last byte."""
    mapping.view(mapping.size - 1, 1)[0]
    return mapping.damaged


def remove(name: str) -> bool:
    """Removes a name; existing mappings stay. Returns whether the name existed."""
    check_name(name)
    try:
        _unlink(name)
    except FileNotFoundError:
        return False
    return True


def names(prefix: str) -> list[str]:
    """Returns the names of all objects and FIFOs that start with `prefix`, sorted."""
    with contextlib.suppress(FileNotFoundError), os.scandir(ROOT) as entries:
        return sorted(entry.name for entry in entries if entry.name.startswith(prefix))
    return []


def check_name(name: str) -> None:
    """Refuses names that are too long or lead out of the directory.

    Raises:
        ValueError: the name is not valid.
    """
    if not name or len(name) > NAME_MAX or "/" in name:
        raise ValueError(f"{name!r} is not a valid name of a shared object: give 1 to {NAME_MAX} characters, no slash")


def _owner(name: str) -> str:
    try:
        return str(os.stat(ROOT / name, follow_symlinks=False).st_uid)
    except OSError:
        return "unknown"
