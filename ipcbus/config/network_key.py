"""The file with the keys that all contexts of a domain share (`network_key_file`)."""

from __future__ import annotations

import re
from typing import Final

from ipcbus.config import secret_file
from ipcbus.errors import ConfigError

KEYS_MAX: Final = 16
"""Most keys in a file."""
NUMBER_MAX: Final = 65_535
"""Highest number of a key."""
_FILE_MAX: Final = 4096
_LINE: Final = re.compile(rb"([0-9]{1,5})[ \t]+([0-9a-fA-F]{64})")


def read(path: str) -> dict[int, bytes]:
    """Returns the keys of 32 bytes by their numbers, in the order of the file.

    Args:
        path: the file. Each line has the number of a key, a space, and 64 hexadecimal digits; empty lines and lines
            that begin with # do not count.

    Raises:
        ConfigError: the file cannot be read, other users may read or change it, or what it holds is invalid.
    """
    return _keys(secret_file.read(path, _named(path), _FILE_MAX), path)


def _keys(content: bytes, path: str) -> dict[int, bytes]:
    keys: dict[int, bytes] = {}
    # The text of a line is in no error: it may be a key.
    for place, line in enumerate(content.split(b"\n"), 1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        found = _LINE.fullmatch(text)
        number = int(found[1]) if found is not None else 0
        if found is None or not 1 <= number <= NUMBER_MAX:
            raise ConfigError(
                f"{_named(path)}: line {place} is not a number from 1 to {NUMBER_MAX}, a space and a key of 64 "
                f"hexadecimal digits. {_cure(path)}"
            )
        if number in keys:
            raise ConfigError(f"{_named(path)}: line {place} has the number {number} again: give it another number")
        keys[number] = bytes.fromhex(found[2].decode())
    if not 1 <= len(keys) <= KEYS_MAX:
        raise ConfigError(f"{_named(path)} has {len(keys)} keys, but it must have 1 to {KEYS_MAX}. {_cure(path)}")
    return keys


def _cure(path: str) -> str:
    return (
        'Make a key with: (umask 077; python3 -c "import secrets; print(1, secrets.token_hex(32))" '
        f"> {path}), and copy the file to all hosts of the domain"
    )


def _named(path: str) -> str:
    return f"option network_key_file (scope context) = {path!r}"
