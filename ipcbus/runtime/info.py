"""What a receiver is told of the sessions that carry its topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.resolution.adverts import TRANSPORT_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipcbus.resolution.adverts import SessionAdvert, SourceAdvert
    from ipcbus.transport.receiving import ReceivingSession


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What a receiver knows of a session that carries its topic.

    Attributes:
        source: source string.
        transport: name of the transport.
        owner_pid: process that sends.
        state: `joined`, `evicted`, or `refused`.
        counters: this context's counters on the session, by their names in the statistics, and `evictions`.
        reason: why it is not joined; empty when it is.
    """

    source: str
    transport: str
    owner_pid: int
    state: str
    counters: dict[str, int]
    reason: str


def sessions_of(
    topic: str,
    joined: Iterable[ReceivingSession],
    evicted: Iterable[ReceivingSession],
    refused: Mapping[SessionAdvert, tuple[int, str]],
    offered: Iterable[SourceAdvert],
) -> list[SessionInfo]:
    """What is known of the sessions that carry a topic.

    Args:
        topic: its name.
        joined: all joined sessions.
        evicted: those from which this context was evicted.
        refused: process and reason for those that could not be joined.
        offered: all sources.
    """
    found = [
        _info(session.advert, session.owner_pid, "joined", session.counters(), "")
        for session in joined
        if _carries(session, topic)
    ]
    for session in evicted:
        if _carries(session, topic):
            reason = "its source has evicted this context; it is joined again when all receivers have room"
            found.append(_info(session.advert, session.owner_pid, "evicted", {"evictions": session.evictions}, reason))
    carrying = {source.session for source in offered if source.topic == topic}
    for advert, (pid, reason) in refused.items():
        if advert in carrying:
            found.append(_info(advert, pid, "refused", {}, reason))
    return found


def _carries(session: ReceivingSession, topic: str) -> bool:
    return any(controller.origin.topic == topic for controller in session.topics())


def _info(advert: SessionAdvert, pid: int, state: str, counters: dict[str, int], reason: str) -> SessionInfo:
    return SessionInfo(advert.source_string, TRANSPORT_NAMES[advert.transport], pid, state, counters, reason)
