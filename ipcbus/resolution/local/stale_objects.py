"""The objects in /dev/shm by context: their owner, whether the owner lives, and their size; for `ipcbus doctor`.

Nothing is changed. Only headers are read, and none of their values is trusted. A context of another layout is known by
its lock and by the first words of its registry, which every layout has in one place.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass

import numpy as np

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.adverts import text
from ipcbus.resolution.local.stale_cleanup import ORPHAN_AGE_S, groups, is_orphan, reclaim
from ipcbus.wire import wire_layout
from ringbuf import liveness, segment
from ringbuf.layout import MAGIC

ALIVE = "alive"
DEAD = "dead"
STARTING = "starting"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Found:
    """All objects of one context.

    Attributes:
        prefix: prefix of their names.
        members: their names.
        tag: tag of the domain in the names.
        domain: the name of the domain, or the tag if no registry contains the name.
        context_id: id of the context.
        uid: user that owns the objects.
        size: bytes of memory that the objects use.
        since_s: when the first object was made, in seconds since the epoch.
        owner: `ALIVE`, `DEAD`, `STARTING` (objects without a registry, a few seconds old), or `UNKNOWN`.
        reason: why the state of the owner is unknown, else empty.
        pid: process of the owner in its registry; 0 without a registry.
        release: version of ipcbus that made the registry; empty without a registry.
        layout_id: layout of that version; 0 without a registry.
        busy_wait: how many threads of the context spin while they wait.
    """

    prefix: str
    members: tuple[str, ...]
    tag: str
    domain: str
    context_id: int
    uid: int
    size: int
    since_s: float
    owner: str
    reason: str = ""
    pid: int = 0
    release: str = ""
    layout_id: int = 0
    busy_wait: int = 0

    @property
    def other_layout(self) -> bool:
        """Whether a program with another layout made the objects, so that contexts of this program cannot join."""
        return self.layout_id not in (0, wire_layout.LAYOUT_ID)

    @property
    def sessions(self) -> int:
        """The number of rings."""
        return sum(name.rpartition(".")[2].startswith("r") for name in self.members)

    def reclaim(self, *, of_others: bool = False) -> list[str]:
        """Removes the objects if the owner is dead now; see `stale_cleanup.reclaim`."""
        return reclaim(self.prefix, list(self.members), of_others=of_others)


def look(domain: str | None = None) -> tuple[Found, ...]:
    """Returns all objects of ipcbus in /dev/shm, by context.

    Args:
        domain: the only domain to search; None means all domains.

    Raises:
        OSError: the directory cannot be read.
    """
    prefix = object_names.PREFIX if domain is None else object_names.domain_prefix(domain)
    with os.scandir(segment.ROOT) as entries:
        listed = sorted(entry.name for entry in entries if entry.name.startswith(prefix))
    found = (_context(prefix, members) for prefix, members in groups(listed).items())
    return tuple(each for each in found if each is not None)


def _context(prefix: str, members: list[str]) -> Found | None:
    stats = {}
    for name in members:
        try:
            stats[name] = os.stat(segment.ROOT / name, follow_symlinks=False)
        except OSError:
            continue  # removed meanwhile
    parsed = object_names.parse(members[0])
    if not stats or parsed is None:
        return None
    registry = prefix + object_names.REGISTRY
    owner, reason, header = DEAD, "", None
    if registry in stats:
        owner, reason, header = _owner(registry)
    elif not all(is_orphan(name) for name in stats):
        young = time.time() - max(each.st_ctime for each in stats.values()) < ORPHAN_AGE_S
        owner, reason = (STARTING, "") if young else (UNKNOWN, "it has no registry, but one of its objects is in use")
    named = text(bytes(header["domain"])) if header is not None else ""
    known = header is not None and int(header["magic"]) == MAGIC
    return Found(
        prefix=prefix,
        members=tuple(stats),
        tag=parsed[0],
        domain=named if named and _tag(named) == parsed[0] else parsed[0],
        context_id=parsed[1],
        uid=stats[registry].st_uid if registry in stats else next(iter(stats.values())).st_uid,
        size=sum(each.st_blocks * 512 for each in stats.values()),
        since_s=min(each.st_ctime for each in stats.values()),
        owner=owner,
        reason=reason,
        pid=int(header["pid"]) if header is not None and known else 0,
        release=text(bytes(header["release"])) if header is not None and known else "",
        layout_id=int(header["layout_id"]) if header is not None and known else 0,
        busy_wait=int(header["busy_wait"])
        if header is not None and header["layout_id"] == wire_layout.LAYOUT_ID
        else 0,
    )


def _owner(registry: str) -> tuple[str, str, np.void | None]:
    """Returns whether the owner lives, why that is unknown, and the header of the registry."""
    try:
        fd = os.open(segment.ROOT / registry, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        return UNKNOWN, f"its registry cannot be opened: {error.strerror}", None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return UNKNOWN, "its registry is not a regular file; another program took the name", None
        owner = ALIVE if liveness.held_by_other(fd, 0) else DEAD
        data = os.pread(fd, wire_layout.REGISTRY_HEADER.itemsize, 0)
    except OSError as error:
        return UNKNOWN, f"its registry cannot be read: {error.strerror}", None
    finally:
        os.close(fd)
    if len(data) < wire_layout.REGISTRY_HEADER.itemsize:
        return owner, "", None
    return owner, "", np.frombuffer(data, wire_layout.REGISTRY_HEADER, 1)[0]


def _tag(domain: str) -> str:
    try:
        return object_names.domain_tag(domain)
    except UnicodeEncodeError:
        return ""
