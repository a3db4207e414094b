"""Removes the objects of dead contexts in /dev/shm; safe while others run, and if it is killed at any step.

The registry is removed last: while it exists, the other objects can be found by its name, and only the process that
holds its lock removes them. Process ids are not trusted: an owner is dead if its lock can be taken.
"""

from __future__ import annotations

import contextlib
import os
import random
import stat
import time
from typing import TYPE_CHECKING

from ipcbus.resolution.local import object_names
from ringbuf import liveness, segment

if TYPE_CHECKING:
    from collections.abc import Iterable

ORPHAN_AGE_S = 10.0
"""Objects without a registry that are younger belong to a context that is just starting; older ones are leftovers."""

OTHERS_MAX = 256
"""Most contexts of other domains that a new context checks."""

OTHERS_S = 0.005
"""Most seconds that a new context spends on other domains."""

OTHERS_OFF = "IPCBUS_RECLAIM_OTHER_DOMAINS"
"""Environment variable: `0` has the effect of the option `reclaim_other_domains = 0`, for a whole tree of processes."""

_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def groups(found: Iterable[str]) -> dict[str, list[str]]:
    """Returns the names of ipcbus by context; the key is the prefix of all names of the context."""
    grouped: dict[str, list[str]] = {}
    for name in found:
        if object_names.parse(name):
            grouped.setdefault(name.rpartition(".")[0] + ".", []).append(name)
    return grouped


def sweep(domain: str) -> list[str]:
    """Removes the objects of dead contexts of one domain that belong to this user.

    Returns:
        Names of the removed objects.
    """
    removed: list[str] = []
    for prefix, members in groups(_names(object_names.domain_prefix(domain))).items():
        removed += reclaim(prefix, members)
    return removed


def sweep_others(domain: str) -> list[str]:
    """Removes objects of dead contexts of all domains except one, in a short time.

    A domain that is no longer used has no context that would do this. The function checks `OTHERS_MAX` contexts at
    most, and stops after `OTHERS_S`; it begins at a random context, so that many new contexts together check all.

    Returns:
        Names of the removed objects.
    """
    deadline = time.monotonic() + OTHERS_S
    own = object_names.domain_prefix(domain)
    others = [item for item in groups(_names(object_names.PREFIX)).items() if not item[0].startswith(own)]
    begin = random.randrange(len(others)) if len(others) > 1 else 0
    removed: list[str] = []
    for prefix, members in (others[begin:] + others[:begin])[:OTHERS_MAX]:
        removed += reclaim(prefix, members)
        if time.monotonic() > deadline:
            break
    return removed


def _names(prefix: str) -> list[str]:
    """Returns the names with a prefix; none if they cannot be listed, so that a later sweep finds them."""
    with contextlib.suppress(OSError):
        return segment.names(prefix)
    return []


def reclaim(prefix: str, members: list[str], *, of_others: bool = False) -> list[str]:
    """Removes the objects of one context if its owner is dead.

    Args:
        prefix: prefix of the names of all its objects.
        members: the names.
        of_others: whether to remove objects of another user, which only root may do.

    Returns:
        Names of the removed objects; objects of a context that lives or is just starting remain.
    """
    if prefix + object_names.REGISTRY in members:
        return _reclaim_context(prefix, of_others)
    uids = {_uid(name) for name in members}
    mine = uids == {os.geteuid()} or (of_others and len(uids) == 1)
    if not mine or not all(is_orphan(name) for name in members):
        return []
    return [name for name in members if _remove(name)]


def _reclaim_context(prefix: str, of_others: bool) -> list[str]:
    registry = prefix + object_names.REGISTRY
    try:
        fd = os.open(segment.ROOT / registry, os.O_RDWR | _OPEN)
    except OSError:
        return []
    try:
        uid = os.fstat(fd).st_uid
        if uid != os.geteuid() and not of_others:
            return []
        if liveness.held_by_other(fd, 0) or not liveness.take(fd, 0):
            return []
        if not same_file(fd, registry):
            return []
        # Listed now, when it makes no more. An object of another user is not its own, although its name fits.
        mine = [name for name in _names(prefix) if name != registry and _uid(name) == uid]
        return [name for name in [*mine, registry] if _remove(name)]
    except OSError:
        return []
    finally:
        os.close(fd)


def same_file(fd: int, name: str) -> bool:
    """Returns whether a name still belongs to the file of the descriptor."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(fd), os.stat(segment.ROOT / name, follow_symlinks=False))
    return False


def is_orphan(name: str) -> bool:
    """Returns whether an object without a registry is old enough, and not held by a live owner."""
    try:
        status = os.stat(segment.ROOT / name, follow_symlinks=False)
        if time.time() - status.st_ctime < ORPHAN_AGE_S:
            return False
        parsed = object_names.parse(name)
        if parsed is None or not parsed[2].startswith("c") or not stat.S_ISREG(status.st_mode):
            return True
        fd = os.open(segment.ROOT / name, os.O_RDONLY | _OPEN)
    except OSError:
        return False
    try:
        return not liveness.held_by_other(fd, 0)
    finally:
        os.close(fd)


def _uid(name: str) -> int | None:
    with contextlib.suppress(OSError):
        return os.stat(segment.ROOT / name, follow_symlinks=False).st_uid
    return None


def _remove(name: str) -> bool:
    with contextlib.suppress(OSError):
        os.unlink(segment.ROOT / name)
        return True
    return False
