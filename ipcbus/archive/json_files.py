"""Small JSON files with a checksum: `archive.json`, cursors, and the list of what a log lost.

The text is canonical (keys sorted, no spaces, ASCII), and its key `crc32` is the CRC-32 of the text without that key,
as 8 hexadecimal digits. Files of releases that wrote no checksum are read as they are.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from ipcbus.errors import ArchiveDamaged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ipcbus.embedding import Files

CHECKSUM: Final = "crc32"
"""The key of the checksum."""


WHOLE_MAX: Final = (1 << 63) - 1
"""The largest number in such a file."""


def is_whole(value: object) -> TypeGuard[int]:
    """Returns whether a value is a whole number from 0 to `WHOLE_MAX`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= WHOLE_MAX


def _text(found: Mapping[str, object]) -> bytes:
    return json.dumps(found, sort_keys=True, separators=(",", ":")).encode()


def pack(found: Mapping[str, object]) -> bytes:
    """Returns the bytes of a file that holds these keys and values, and their checksum."""
    return _text({**found, CHECKSUM: f"{zlib.crc32(_text(found)):08x}"})


def unpack(data: bytes, *, older: bool = True) -> dict[str, Any]:
    """Returns the keys and values in the bytes of a file, without the checksum.

    Args:
        data: the bytes.
        older: accept a file without a checksum, as older releases wrote it.

    Raises:
        ValueError: the bytes are not a JSON object, or contradict their checksum.
    """
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, dict):
        raise ValueError("not an object")
    if CHECKSUM in found or not older:
        found.pop(CHECKSUM, None)
        if pack(found) != data:
            raise ValueError("the checksum is wrong")
    return found


def is_canonical(data: bytes) -> bool:
    """Returns whether bytes have the form that this release or an older one writes, with or without a checksum."""
    try:
        return data == _text(json.loads(data))
    except (ValueError, RecursionError):
        return False


def corrected(data: bytes) -> bytes | None:
    """Returns the bytes as they were before one bit of them flipped; None where more than one bit is wrong.

    In a text this short no two single flips lead to the same CRC-32, so there is only one answer.
    """
    changed = bytearray(data)
    for at in range(8 * len(data)):
        changed[at // 8] ^= 1 << at % 8
        if CHECKSUM.encode() in changed:
            with contextlib.suppress(ValueError):
                unpack(bytes(changed))
                return bytes(changed)
        changed[at // 8] ^= 1 << at % 8
    return None


def read_bytes(files: Files, path: Path, size_max: int) -> bytes:
    """Returns the bytes of a small file.

    Raises:
        ArchiveDamaged: the file is longer than `size_max`.
        FileMissing: the file does not exist.
        StorageError: the system refuses.
    """
    with contextlib.closing(files.open(path)) as file:
        data = file.read_at(0, size_max + 1)
    if len(data) > size_max:
        raise ArchiveDamaged(f"{path}: is longer than {size_max} bytes; restore it from a copy")
    return data


def read(files: Files, path: Path, size_max: int, *, older: bool = True) -> dict[str, Any]:
    """Returns the keys and values in a file, as `unpack` gives them.

    Raises:
        ArchiveDamaged: the file is not a JSON object of at most `size_max` bytes, or its checksum is wrong.
        FileMissing: the file does not exist.
        StorageError: the system refuses.
    """
    try:
        return unpack(read_bytes(files, path, size_max), older=older)
    except ValueError as error:
        raise ArchiveDamaged(
            f"{path}: is not the JSON object that was written ({error}); restore it from a copy"
        ) from error
