"""Clearing away what dead contexts left; safe while others run, and to be killed at any step.

The registry goes last: as long as it is there the rest can be found through its name, and whoever holds its lock is
the only one who clears.
"""

from __future__ import annotations

import contextlib
import os
import time

from ipcbus.resolution import names
from ringbuf import liveness, segment

ORPHAN_AGE_S = 10.0
"""Objects whose registry is missing are somebody's who is just starting, or leftovers when older than this."""


def sweep(domain: str | None) -> list[str]:
    """Removes the objects of dead contexts that belong to this user.

    Args:
        domain: only this one, or every domain when None.

    Returns:
        Names of the removed objects.
    """
    prefix = names.PREFIX if domain is None else names.domain_prefix(domain)
    groups: dict[str, list[str]] = {}
    for name in segment.names(prefix):
        if names.parse(name):
            groups.setdefault(name.rpartition(".")[0] + ".", []).append(name)
    removed: list[str] = []
    for group, members in groups.items():
        registry = group + names.REGISTRY
        if registry in members:
            removed += _sweep_context(registry, members)
        elif all(_is_orphan(name) for name in members):
            removed += [name for name in members if _remove(name)]
    return removed


def _sweep_context(registry: str, members: list[str]) -> list[str]:
    """Removes a context's objects if its owner is dead."""
    try:
        fd = os.open(segment.ROOT / registry, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        if os.fstat(fd).st_uid != os.geteuid() or liveness.held_by_other(fd, 0) or not liveness.take(fd, 0):
            return []
        if not same_file(fd, registry):
            return []
        ours = [name for name in members if name != registry]
        return [name for name in [*ours, registry] if _remove(name)]
    finally:
        os.close(fd)


def same_file(fd: int, name: str) -> bool:
    """Whether the name still means the file behind the descriptor."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(fd), os.stat(segment.ROOT / name, follow_symlinks=False))
    return False


def _is_orphan(name: str) -> bool:
    """Whether an object without a registry is old enough, ours, and not held by a live owner."""
    try:
        stat = os.stat(segment.ROOT / name, follow_symlinks=False)
        if stat.st_uid != os.geteuid() or time.time() - stat.st_ctime < ORPHAN_AGE_S:
            return False
        parsed = names.parse(name)
        if parsed is None or not parsed[2].startswith("c"):
            return True
        fd = os.open(segment.ROOT / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not liveness.held_by_other(fd, 0)
    finally:
        os.close(fd)


def _remove(name: str) -> bool:
    with contextlib.suppress(OSError):
        os.unlink(segment.ROOT / name)
        return True
    return False
