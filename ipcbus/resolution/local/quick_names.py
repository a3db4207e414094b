"""Reads the names in registries quickly: without numpy, whose import takes too long for the completion in a shell.

`wire.wire_layout` describes the layout of a registry; a test compares the offsets here with that description.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipcbus.resolution.local import object_names
from ipcbus.resolution.source_string import Endpoint, source_string
from ringbuf import liveness, segment
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER: Final = struct.Struct("<Q4xI56x64s16s48xI372x")
"""Magic number, kind, domain, release, number of entries."""
ENTRY: Final = struct.Struct("<5I44x256s64x")
"""State, transport, session id, transport id, local number, name."""
MAGIC: Final = 0x3153554243504922
KIND: Final = 3
SESSION: Final = 1
SOURCE: Final = 2
RECEIVER: Final = 3
OWNER_BYTE: Final = 0

_BYTES_MAX: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class QuickNames:
    """The names in the registry of a living context.

    Attributes:
        domain: its domain.
        sessions: topics of its sessions, by source string.
        received: topics that it receives by name.
    """

    domain: str
    sessions: dict[str, list[str]]
    received: list[str]


def look(release: str, domain: str | None = None) -> Iterator[QuickNames]:
    """Yields the names of all living contexts of a release that this user may read, of one domain or of all."""
    prefix = object_names.PREFIX if domain is None else object_names.domain_prefix(domain)
    for name in object_names.of_kind(segment.names(prefix), object_names.REGISTRY):
        try:
            fd = segment.open_fd(name, write=False)
        except (OSError, RingError):
            continue
        try:
            found = _read(fd, release) if liveness.held_by_other(fd, OWNER_BYTE) else None
        except OSError:
            continue
        finally:
            os.close(fd)
        if found is not None and domain in (None, found.domain):
            yield found


def _read(fd: int, expected: str) -> QuickNames | None:
    """Returns the names in a registry; None if another release of ipcbus wrote it, or if it is not ready."""
    header = os.pread(fd, HEADER.size, 0)
    if len(header) < HEADER.size:
        return None
    magic, kind, domain, release, entries = HEADER.unpack(header)
    if (magic, kind) != (MAGIC, KIND) or release.rstrip(b"\0") != expected.encode()[:15]:
        return None
    data = os.pread(fd, min(entries * ENTRY.size, _BYTES_MAX), HEADER.size)
    rows = list(ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]))
    sessions = {
        local: source_string(transport, session_id, transport_id, Endpoint.of(_text(name)))
        for state, transport, session_id, transport_id, local, name in rows
        if state == SESSION
    }
    topics: dict[str, list[str]] = {source: [] for source in sessions.values()}
    for state, _, _, _, local, name in rows:
        if state == SOURCE and local in sessions:
            topics[sessions[local]].append(_text(name))
    received = [_text(row[-1]) for row in rows if row[0] == RECEIVER]
    return QuickNames(_text(domain), topics, received)


def _text(field: bytes) -> str:
    return field.split(b"\0")[0].decode(errors="replace")
