"""Reads snapshots that another release of ipcbus has written."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ipcbus.stats import counters
from ipcbus.stats.udp_model import NO_COUNTERS, RING

if TYPE_CHECKING:
    from ipcbus.stats.snapshot_model import ContextStats
    from ipcbus.stats.udp_model import Counters


def complete(context: ContextStats) -> ContextStats:
    """Returns a context with all counters of this release; those that the other release did not write are 0."""
    sessions = tuple(
        _full(
            counters.SESSION,
            session,
            sources=tuple(_full(counters.SOURCE, source) for source in session.sources),
            receivers=tuple(
                _full(
                    counters.SLOT,
                    slot,
                    {"lost": 0} if slot.layer == RING else {},
                    reception=slot.reception and _full(counters.RECEPTION, slot.reception),
                )
                for slot in session.receivers
            ),
            uplink=session.uplink and _full(counters.UPLINK, session.uplink),
        )
        for session in context.sessions
    )
    receivers = tuple(_full(counters.RECEIVER, each, {"lost": 0}) for each in context.receivers)
    recorders = tuple(_full(counters.RECORDER, each) for each in context.recorders)
    found: ContextStats = _full(counters.CONTEXT, context, sessions=sessions, receivers=receivers, recorders=recorders)
    return found


def _full(of: str, owner: Any, otherwise: Counters = NO_COUNTERS, **changes: Any) -> Any:  # noqa: ANN401 - any object
    """Returns an object with all its counters, if it has any or there are some otherwise."""
    known = owner.counters or otherwise
    names = (row.name for row in counters.counters_of(of))
    found = MappingProxyType({**dict.fromkeys(names, 0), **known}) if known else known
    return dataclasses.replace(owner, counters=found, **changes)
