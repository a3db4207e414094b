"""Checksummed records, one after the other in a file, and the scan that finds out how far they are good.

u4 length of the payload | u4 crc32 of the length and the payload | payload
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

_HEAD: Final = struct.Struct("<II")

PAYLOAD_MAX: Final = 1 << 30
"""Bytes in one record; what claims to be longer is damage."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scan:
    """What a file of records holds."""

    records: list[tuple[int, bytes]]
    """Offset and payload of each record up to the first that is torn or bad."""
    good_end: int
    """Where the last of them ends: a file is mended by cutting it there, unless `good_follow`."""
    damage: str | None
    """What is wrong at `good_end`; None where the file ends there."""
    good_follow: bool
    """Whether good records follow the damage: then it is no torn tail, and cutting would lose them."""


def frame(payload: Buffer) -> bytes:
    """Returns a record.

    Raises:
        ValueError: the payload is longer than `PAYLOAD_MAX`.
    """
    body = memoryview(payload).cast("B")
    if len(body) > PAYLOAD_MAX:
        raise ValueError(f"a record of {len(body)} bytes is longer than {PAYLOAD_MAX}; write it in parts")
    return _HEAD.pack(len(body), _checksum(body)) + body


def scan(data: Buffer) -> Scan:
    """Reads records until one is torn or bad."""
    view = memoryview(data).cast("B")
    records: list[tuple[int, bytes]] = []
    at = 0
    while at < len(view):
        found = _record(view, at)
        if isinstance(found, str):
            return Scan(records, at, found, bool(salvage(view[at:])))
        records.append((at, bytes(found)))
        at += _HEAD.size + len(found)
    return Scan(records, at, None, False)


def salvage(data: Buffer) -> list[bytes]:
    """Returns the payloads of all good records, also those behind bad ones whose length is right; up to zeros."""
    view = memoryview(data).cast("B")
    found, at = [], 0
    while len(view) - at >= _HEAD.size and any(view[at : at + _HEAD.size]):
        payload = _record(view, at)
        if not isinstance(payload, str):
            found.append(bytes(payload))
        (length,) = struct.unpack_from("<I", view, at)
        at += _HEAD.size + length
    return found


def _record(view: memoryview, at: int) -> memoryview | str:
    """Returns the payload of the record at an offset, or what is wrong with it."""
    if len(view) - at < _HEAD.size:
        return f"{len(view) - at} bytes are no whole record"
    length, crc = _HEAD.unpack_from(view, at)
    if length > PAYLOAD_MAX or length > len(view) - at - _HEAD.size:
        return f"a record of {length} bytes does not fit into the {len(view) - at - _HEAD.size} that are there"
    payload = view[at + _HEAD.size : at + _HEAD.size + length]
    if _checksum(payload) != crc:
        return f"the checksum of a record of {length} bytes is wrong"
    return payload


def _checksum(payload: memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(len(payload).to_bytes(4, "little")))
