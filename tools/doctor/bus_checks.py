"""Checks of the bus for `ipcbus doctor`: leftovers, contexts of other layouts, sessions that cannot be read."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from ipcbus import stats
from ipcbus.resolution.local import object_names, stale_objects
from ipcbus.stats.processes import user_name
from ipcbus_tools.doctor.diagnosis import Leftover, OtherLayout, Unreadable
from ipcbus_tools.doctor.host_checks import LiveProcess

if TYPE_CHECKING:
    from ipcbus.resolution.local.stale_objects import Found

_RECLAIM = "ipcbus doctor --reclaim"
_SAME_RELEASE = "run the same version of ipcbus in all processes of the domain; restart the older ones"
_DAMAGED = "restart its process"


def find_objects(domains: tuple[str, ...]) -> tuple[Found, ...]:
    """Returns the objects of ipcbus in /dev/shm, by context; of these domains only, if there are any.

    Raises:
        OSError: /dev/shm cannot be read.
    """
    if not domains:
        return stale_objects.look()
    return tuple(found for domain in dict.fromkeys(domains) for found in stale_objects.look(domain))


def live_processes(found: tuple[Found, ...]) -> tuple[LiveProcess, ...]:
    """Returns the processes that have live contexts."""
    owners: dict[int, list[Found]] = {}
    for each in found:
        if each.owner == stale_objects.ALIVE and each.pid:
            owners.setdefault(each.pid, []).append(each)
    return tuple(LiveProcess(pid, owned[0].uid, sum(each.busy_wait for each in owned)) for pid, owned in owners.items())


def dead_leftovers(found: tuple[Found, ...], *, reclaim: bool) -> tuple[tuple[Leftover, ...], int, int]:
    """Returns what dead contexts left behind; with `reclaim`, removes it where that is safe and allowed.

    Returns:
        The leftovers, the largest first; the number of removed objects, and their bytes.
    """
    rows, objects, size = [], 0, 0
    for each in sorted((each for each in found if each.owner == stale_objects.DEAD), key=lambda each: -each.size):
        removed = each.reclaim(of_others=os.geteuid() == 0) if reclaim else []
        reclaimed = reclaim and len(removed) == len(each.members)
        objects += len(removed)
        size += each.size if reclaimed else 0
        reason = _why_not_reclaimed(each, len(removed)) if reclaim and not reclaimed else ""
        rows.append(
            Leftover(
                **_owner(each),
                objects=len(each.members),
                bytes=each.size,
                age_seconds=round(max(0.0, time.time() - each.since_s), 3),
                reclaimed=reclaimed,
                reason=reason,
                cure="" if reclaimed else _cure_of_leftover(each),
            )
        )
    return tuple(rows), objects, size


def _owner(found: Found) -> dict[str, Any]:
    """Returns the fields that every finding about a context has."""
    return {"domain": found.domain, "context_id": found.context_id, "uid": found.uid, "user": user_name(found.uid)}


def _may_act_for(found: Found) -> bool:
    return os.geteuid() in (0, found.uid)


def _why_not_reclaimed(found: Found, removed: int) -> str:
    if not _may_act_for(found):
        return f"it belongs to user {user_name(found.uid)}"
    if removed:
        return f"{removed} of {len(found.members)} objects were removed; the system refuses to remove the others"
    return "the system refuses to remove it, or another process is removing it now"


def _cure_of_leftover(found: Found) -> str:
    return _RECLAIM if _may_act_for(found) else f"{_RECLAIM} as user {user_name(found.uid)} or as root"


def other_layouts(found: tuple[Found, ...]) -> tuple[OtherLayout, ...]:
    """Returns the live contexts whose shared memory has another layout."""
    return tuple(
        OtherLayout(
            **_owner(each),
            pid=each.pid,
            release=each.release,
            layout_id=each.layout_id,
            sessions=each.sessions,
            cure=_SAME_RELEASE,
        )
        for each in found
        if each.owner == stale_objects.ALIVE and each.other_layout
    )


def unreadable(found: tuple[Found, ...]) -> tuple[Unreadable, ...]:
    """Returns the contexts and sessions that run, or may run, and cannot be read, with the reasons."""
    rows = []
    # Live contexts of this layout are read as every reader of statistics reads them.
    known = {(each.tag, each.context_id): each for each in found if each.owner == stale_objects.ALIVE}
    for domain in sorted({each.domain for each in known.values()}):
        snapshot = stats.take_snapshot(domain)
        for context in snapshot.contexts:
            each = known.get((object_names.domain_tag(domain), context.context_id))
            if each is None or each.other_layout or not context.alive:
                continue
            if context.reason:
                rows.append(_row(each, "", context.reason))
            rows += [_row(each, session.source, session.reason) for session in context.sessions if session.reason]
    rows += [_row(each, "", each.reason) for each in found if each.owner == stale_objects.UNKNOWN]
    return tuple(rows)


def _row(found: Found, source: str, text: str) -> Unreadable:
    reason, _, cure = text.rpartition("; ") if "; " in text else (text, "", "")
    if not cure:
        cure = _DAMAGED if _may_act_for(found) else f"ask as user {user_name(found.uid)} or as root"
    return Unreadable(**_owner(found), source=source, pid=found.pid, reason=reason, cure=cure)
