"""Reads snapshots that another release of ipcbus has written."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

from ipcbus.stats import counters
from ipcbus.stats.udp_model import RING

if TYPE_CHECKING:
    from ipcbus.stats.snapshot_model import ContextStats
    from ipcbus.stats.udp_model import Counters


def complete(context: ContextStats) -> ContextStats:
    """Returns a context with all counters of this release; those that the other release did not write are 0."""

    def full(of: str, known: Counters) -> Counters:
        names = (row.name for row in counters.counters_of(of))
        return MappingProxyType({**dict.fromkeys(names, 0), **known}) if known else known

    sessions = tuple(
        dataclasses.replace(
            session,
            counters=full(counters.SESSION, session.counters),
            sources=tuple(
                dataclasses.replace(source, counters=full(counters.SOURCE, source.counters))
                for source in session.sources
            ),
            receivers=tuple(
                dataclasses.replace(
                    slot,
                    counters=full(counters.SLOT, slot.counters or ({"lost": 0} if slot.layer == RING else {})),
                    reception=slot.reception
                    and dataclasses.replace(slot.reception, counters=full(counters.RECEPTION, slot.reception.counters)),
                )
                for slot in session.receivers
            ),
            uplink=session.uplink
            and dataclasses.replace(session.uplink, counters=full(counters.UPLINK, session.uplink.counters)),
        )
        for session in context.sessions
    )
    receivers = tuple(
        dataclasses.replace(each, counters=full(counters.RECEIVER, each.counters or {"lost": 0}))
        for each in context.receivers
    )
    recorders = tuple(
        dataclasses.replace(each, counters=full(counters.RECORDER, each.counters)) for each in context.recorders
    )
    counted = full(counters.CONTEXT, context.counters)
    return dataclasses.replace(context, sessions=sessions, receivers=receivers, recorders=recorders, counters=counted)
