"""Files that hold keys: only their owner may be able to read them."""

from __future__ import annotations

import os
import stat

from ipcbus.errors import ConfigError


def read(path: str, named: str, most: int) -> bytes:
    """Returns what a file with keys holds.

    Args:
        path: the file.
        named: the option that names it, for error texts.
        most: the largest number of bytes that it may have.

    Raises:
        ConfigError: the file cannot be read, is too long, or other users may read or change it.
    """
    try:
        # Without blocking, because the file may be a FIFO.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{named} cannot be read ({reason}): check the path and its owner") from error
    try:
        _refuse_strangers(os.fstat(fd), path, named)
        content = os.read(fd, most + 1)
    except OSError as error:
        raise ConfigError(f"{named} cannot be read ({error.strerror}): check the file") from error
    finally:
        os.close(fd)
    if len(content) > most:
        raise ConfigError(f"{named} has more than {most} bytes: name the file that holds the keys")
    return content


def _refuse_strangers(status: os.stat_result, path: str, named: str) -> None:
    """Refuses a file that another user may read or write, because its key is not secret."""
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{named} is not a regular file: name the file that holds the key")
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"{named} belongs to user {status.st_uid}, and this user may know and change the key: use a "
            f"file of your own (user {os.geteuid()})"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise ConfigError(
            f"{named} has mode {mode:04o}, so that other users may use the key: make a new key if one of them "
            f"may have read it, and let only its owner read the file: chmod 600 {path}"
        )


def state(path: str) -> tuple[int, ...]:
    """Returns what changes with a file; empty where the file is missing."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
