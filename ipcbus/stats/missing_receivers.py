"""Contexts that receive a topic of a session, and have not joined the session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipcbus.stats.snapshot_model import ContextStats, DomainSnapshot, SessionStats


@dataclass(frozen=True, slots=True)
class Absent:
    """A context that receives a topic of a session by name, and has no slot there.

    Attributes:
        context: the context.
        topics: the topics of the session that it receives.
        reason: why it has not joined, as far as shared memory shows.
    """

    context: ContextStats
    topics: tuple[str, ...]
    reason: str


def absent(found: DomainSnapshot, session: SessionStats) -> tuple[Absent, ...]:
    """Returns the contexts that a session does not reach.

    Wildcard receivers do not count: matching the pattern of another user could take for ever.
    """
    if not session.counters or not session.alive or session.closed:
        return ()
    offered = {source.topic for source in session.sources}
    joined = {slot.context_id for slot in session.receivers}
    missing = []
    for context in found.contexts:
        if context.alive and context.context_id not in joined:
            names = {receiver.topic for receiver in context.receivers if not receiver.wildcard}
            wanted = tuple(sorted(names & offered))
            if wanted:
                missing.append(Absent(context, wanted, _reason(session, context)))
    return tuple(missing)


def _reason(session: SessionStats, context: ContextStats) -> str:
    if context.stopped:
        return "its process is stopped"
    if session.uplink is None and context.uid != session.uid and context.uid != 0:
        return f"another user: only {session.user} may read the ring, see shared_memory_group"
    if session.uplink is None and len(session.receivers) >= session.slots_max:
        return f"all {session.slots_max} slots are in use"
    return "not joined yet"
