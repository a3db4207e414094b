"""Records with checksums, one after the other in a file, and the scan that finds the first damaged record.

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
"""Most bytes of one record; a greater length is damage."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scan:
    """The records of a file."""

    records: list[tuple[int, bytes]]
    """Offset and payload of each record before the first torn or damaged one."""
    good_end: int
    """Where the last of these records ends; cutting the file there repairs it, unless `good_follow`."""
    damage: str | None
    """The damage at `good_end`; None if the file ends there."""
    good_follow: bool
    """Whether good records follow the damage, so that it is not a torn tail and cutting would lose them."""


def frame(payload: Buffer) -> bytes:
    """Returns a record with this payload.

    Raises:
        ValueError: the payload is longer than `PAYLOAD_MAX`.
    """
    body = memoryview(payload).cast("B")
    if len(body) > PAYLOAD_MAX:
        raise ValueError(f"a record of {len(body)} bytes is longer than {PAYLOAD_MAX}; write it in parts")
    return _HEAD.pack(len(body), _checksum(body)) + body


def scan(data: Buffer) -> Scan:
    """Reads the records up to the first torn or damaged one."""
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
    """Returns the payloads of all good records up to zeros, also of those that follow a damaged payload."""
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
    """Returns the payload of the record at an offset, or a text that describes the damage."""
    if len(view) - at < _HEAD.size:
        return f"{len(view) - at} bytes are too few for a record"
    length, crc = _HEAD.unpack_from(view, at)
    if length > PAYLOAD_MAX or length > len(view) - at - _HEAD.size:
        return f"a record of {length} bytes does not fit into the {len(view) - at - _HEAD.size} bytes of the file"
    payload = view[at + _HEAD.size : at + _HEAD.size + length]
    if _checksum(payload) != crc:
        return f"the checksum of a record of {length} bytes is wrong"
    return payload


def _checksum(payload: memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(len(payload).to_bytes(4, "little")))
