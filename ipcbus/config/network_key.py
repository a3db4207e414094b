"""The file with the key that all contexts of a domain share (`network_key_file`)."""

from __future__ import annotations

import os
import stat
from typing import Final

from ipcbus.errors import ConfigError

KEY_MIN: Final = 16
"""Shortest key in bytes."""
KEY_MAX: Final = 4096
"""Longest key in bytes."""


def read(path: str) -> bytes:
    """Returns the key: the bytes of the file, without a newline at its end.

    Args:
        path: the file.

    Raises:
        ConfigError: the file cannot be read, other users may read or change it, or its length is invalid.
    """
    try:
        # Without blocking, because the file may be a FIFO.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{_named(path)} cannot be read ({reason}): check the path and its owner") from error
    try:
        _refuse_strangers(os.fstat(fd), path)
        key = os.read(fd, KEY_MAX + 2).removesuffix(b"\n")
    except OSError as error:
        raise ConfigError(f"{_named(path)} cannot be read ({error.strerror}): check the file") from error
    finally:
        os.close(fd)
    if not KEY_MIN <= len(key) <= KEY_MAX:
        raise ConfigError(
            f"{_named(path)} has {len(key)} bytes, but a key must have {KEY_MIN} to {KEY_MAX}. Make one with: "
            f"(umask 077; head -c 32 /dev/urandom > {path}), and copy it to all hosts of the domain"
        )
    return key


def _refuse_strangers(status: os.stat_result, path: str) -> None:
    """Refuses a file that another user may read or write, because its key is not secret."""
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{_named(path)} is not a regular file: name the file that holds the key")
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"{_named(path)} belongs to user {status.st_uid}, and this user may know and change the key: use a "
            f"file of your own (user {os.geteuid()})"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise ConfigError(
            f"{_named(path)} has mode {mode:04o}, so that other users may use the key: make a new key if one of them "
            f"may have read it, and let only its owner read the file: chmod 600 {path}"
        )


def _named(path: str) -> str:
    return f"option network_key_file (scope context) = {path!r}"
