"""The sessions that carry a receiver's topics, as the application sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipcbus.delivery.message_types import NamedNumber
from ipcbus.resolution.local.adverts import TRANSPORT_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipcbus.delivery.recovering_controller import RecoveringController
    from ipcbus.resolution.local.adverts import SessionAdvert, SourceAdvert
    from ipcbus.runtime.receiving.subscriptions import Subscription
    from ipcbus.transport.receiving_session import ReceivingSession


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session that carries a topic of a receiver.

    Attributes:
        source: the source string of the session.
        transport: the name of the transport.
        owner_pid: process id of the source.
        state: `joined`, `joining` (the source has not registered the receiver; what it sends until then does not come),
            `evicted`, `ended` (the owner shows no life; the receiver joins again when it does), or `refused`.
        counters: this context's counters on the session, by their names in the statistics, and `evictions`.
        reason: why the session is not joined, why its source has not registered the receiver, why a joined session does
            not use its ring, or what is damaged in its shared memory; otherwise empty.
        layer: `ring`, `LBT-RU`, `LBT-RM` or `LBT-TCP`, by which the messages come; empty if the session is neither
            joined nor about to be.
    """

    source: str
    transport: str
    owner_pid: int
    state: str
    counters: dict[str, int]
    reason: str
    layer: str = ""


class SourceNotificationType(NamedNumber):
    """The kind of a source notification.

    Attributes:
        CREATE: comes before the first message or BOS of a source.
        DELETE: comes after the last message or EOS of a source.
    """

    CREATE = 1
    DELETE = 2


@dataclass(frozen=True, slots=True)
class SourceNotification:
    """A notification that a receiver has found a source of its topic, or that a source is gone.

    Attributes:
        type: the kind of the notification.
        topic: the name of the topic.
        source: the source string of the session.
        pid: process id of the source.
    """

    type: SourceNotificationType
    topic: str
    source: str
    pid: int


CUT_SHORT: Final = (
    "another program has cut the shared memory of %s (pid %d) short; the session has ended for its receivers, and "
    "messages that were published and not received are reported lost"
)
DAMAGED: Final = (
    "the ring of %s (pid %d) is damaged: messages that could not be read are reported lost, and later messages are "
    "received. Another program writes into this memory, or the memory of this machine fails"
)


def sources_of(subscription: Subscription, joined: Iterable[ReceivingSession]) -> int:
    """Returns the number of sources of which a receiver gets every message that is sent from now on."""
    return sum(
        session.datagram_source.receives(each.topic_number)
        for session in joined
        for each in _topics_of(session, subscription)
        if subscription.wants(each.origin.topic)
    )


def sessions_of(
    subscription: Subscription,
    joined: Iterable[ReceivingSession],
    detached: Iterable[ReceivingSession],
    refused: Mapping[SessionAdvert, tuple[int, str]],
    offered: Iterable[SourceAdvert],
    pids: Mapping[int, int],
) -> list[SessionInfo]:
    """Returns the sessions that carry a receiver's topics, joined or not.

    Args:
        subscription: the subscription of the receiver.
        joined: all joined sessions.
        detached: sessions that evicted this context or show no life.
        refused: process id and reason of sessions that could not be joined.
        offered: all sources.
        pids: the process ids of the contexts, by context id.
    """
    found = [
        _info(session.advert, session.owner_pid, *_how_joined(session, subscription), session.datagram_source.layer)
        for session in joined
        if _topics_of(session, subscription)
    ]
    found += [
        _info(session.advert, session.owner_pid, *_why_detached(session))
        for session in detached
        if _topics_of(session, subscription)
    ]
    for advert in {source.session: None for source in offered if subscription.wants(source.topic)}:
        if own := subscription.refuses(advert):
            found.append(_info(advert, pids.get(advert.context_id, 0), "refused", {}, own))
        elif advert in refused:
            pid, reason = refused[advert]
            found.append(_info(advert, pid, "refused", {}, reason))
    return found


def _topics_of(session: ReceivingSession, subscription: Subscription) -> list[RecoveringController]:
    """Returns the controllers of the topics that the receiver gets from a session."""
    return [each for each in session.topics() if subscription.sink in session.delivery.sinks(each.topic_number)]


def _how_joined(session: ReceivingSession, subscription: Subscription) -> tuple[str, dict[str, int], str]:
    if session.datagram_source.reader.evicted:
        reason = "its source has evicted this context; the rest comes over UDP when the message in hand is taken"
        return "evicted", session.counters(), reason
    source = session.datagram_source
    if not all(source.receives(each.topic_number) for each in _topics_of(session, subscription)):
        return "joining", session.counters(), source.refusal or session.reason
    return "joined", session.counters(), session.damage() or source.refusal or session.reason


def _why_detached(session: ReceivingSession) -> tuple[str, dict[str, int], str]:
    evictions = {"evictions": session.evictions}
    if session.over:
        silence = session.activity_timeout.timeout_ns / 1e9
        return "ended", evictions, f"its owner has shown no sign of life for {silence:g} s"
    return "evicted", evictions, "its source has evicted this context; it joins again when all its receivers have room"


def _info(
    advert: SessionAdvert, pid: int, state: str, counters: dict[str, int], reason: str, layer: str = ""
) -> SessionInfo:
    transport = TRANSPORT_NAMES.get(advert.transport, "?")
    return SessionInfo(advert.source_string, transport, pid, state, counters, reason, layer)
