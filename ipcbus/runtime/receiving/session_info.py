"""What a receiver is told of the sessions that carry its topics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from ipcbus.resolution.local.adverts import TRANSPORT_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipcbus.resolution.local.adverts import SessionAdvert, SourceAdvert
    from ipcbus.runtime.receiving.subscriptions import Subscription
    from ipcbus.transport.receiving_session import ReceivingSession


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What a receiver knows of a session that carries its topic.

    Attributes:
        source: source string.
        transport: name of the transport.
        owner_pid: process that sends.
        state: `joined`, `evicted`, `ended` (its owner shows no life; joined again when it does), or `refused`.
        counters: this context's counters on the session, by their names in the statistics, and `evictions`.
        reason: why it is not joined, or, where it is, why it is not its ring that is read, or
            what is damaged in its shared memory; else empty.
        layer: what brings its messages: `ring`, or `LBT-RU` or `LBT-RM`; empty when it is not joined.
    """

    source: str
    transport: str
    owner_pid: int
    state: str
    counters: dict[str, int]
    reason: str
    layer: str = ""


class SourceNotificationType(IntEnum):
    """Kind of a source notification."""

    CREATE = 1
    DELETE = 2


@dataclass(frozen=True, slots=True)
class SourceNotification:
    """A source of one of a receiver's topics has been met, or is gone.

    Attributes:
        type: CREATE comes before the source's first message or BOS, DELETE after its last message or EOS.
        topic: name of the topic.
        source: source string of the session.
        pid: process that sends.
    """

    type: SourceNotificationType
    topic: str
    source: str
    pid: int


def sessions_of(
    subscription: Subscription,
    joined: Iterable[ReceivingSession],
    left: Iterable[ReceivingSession],
    refused: Mapping[SessionAdvert, tuple[int, str]],
    offered: Iterable[SourceAdvert],
    pids: Mapping[int, int],
) -> list[SessionInfo]:
    """What is known of the sessions that carry a receiver's topics.

    Args:
        subscription: the receiver's.
        joined: all joined sessions.
        left: those that this context was evicted from, or that showed no life.
        refused: process and reason for those that could not be joined.
        offered: all sources.
        pids: the processes of the contexts.
    """
    found = [
        _info(session.advert, session.owner_pid, *_how_joined(session), session.datagram_source.layer)
        for session in joined
        if _carries(session, subscription)
    ]
    found += [
        _info(session.advert, session.owner_pid, *_why_left(session))
        for session in left
        if _carries(session, subscription)
    ]
    for advert in {source.session: None for source in offered if subscription.wants(source.topic)}:
        if own := subscription.refuses(advert):
            found.append(_info(advert, pids.get(advert.context_id, 0), "refused", {}, own))
        elif advert in refused:
            pid, reason = refused[advert]
            found.append(_info(advert, pid, "refused", {}, reason))
    return found


def _carries(session: ReceivingSession, subscription: Subscription) -> bool:
    return any(subscription.sink in controller.sinks for controller in session.topics())


def _how_joined(session: ReceivingSession) -> tuple[str, dict[str, int], str]:
    if session.datagram_source.reader.evicted:
        reason = "its source has evicted this context; the rest comes over UDP when the message in hand is taken"
        return "evicted", session.counters(), reason
    return "joined", session.counters(), session.damage() or session.reason


def _why_left(session: ReceivingSession) -> tuple[str, dict[str, int], str]:
    evictions = {"evictions": session.evictions}
    if session.over:
        silence = session.activity_timeout.timeout_ns / 1e9
        return "ended", evictions, f"its owner has shown no sign of life for {silence:g} s"
    return "evicted", evictions, "its source has evicted this context; it is joined again when all receivers have room"


def _info(
    advert: SessionAdvert, pid: int, state: str, counters: dict[str, int], reason: str, layer: str = ""
) -> SessionInfo:
    transport = TRANSPORT_NAMES.get(advert.transport, "?")
    return SessionInfo(advert.source_string, transport, pid, state, counters, reason, layer)
