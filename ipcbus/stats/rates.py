"""Rates: the growth of counters between two snapshots of a domain.

The rate of an object in both snapshots is its growth; that of an object that began in between is its whole count. An
object that existed before, but could not be read then, has no rates. The keys of objects change at a restart: a session
is known by its context and its start, a topic by its number on the session, a reader by the generation of its slot.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

from ipcbus.stats import counters
from ipcbus.stats.snapshot_model import NO_RATES, SlotStats, SourceStats
from ipcbus.stats.udp_sessions import lag_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipcbus.stats.recorder_model import RecorderStats
    from ipcbus.stats.snapshot_model import (
        ContextStats,
        Counters,
        DomainSnapshot,
        Rates,
        ReceiverStats,
        ReceptionStats,
        SessionStats,
        UplinkStats,
    )

_MOST_OF_THE_TIME = 0.5
"""A source that waits for more than this share of the time counts as waiting without a pause."""

_BITS = counters.bits()
_GROWING = {of: tuple(row.name for row in counters.counters_of(of) if row.grows) for of in counters.STRUCT_OF}
_STILL = {of: MappingProxyType(dict.fromkeys(names, 0.0)) for of, names in _GROWING.items()}


def rates(before: DomainSnapshot | None, after: DomainSnapshot) -> DomainSnapshot:
    """Returns the later snapshot with rates, shares of the time, and the latency between the two snapshots.

    Args:
        before: an earlier snapshot of the same domain; without it the later snapshot is returned unchanged.
        after: the later snapshot.
    """
    if before is None or after.read_ns <= before.read_ns:
        return after
    known = {(context.context_id, context.start_ns): context for context in before.contexts}
    unread = any(context.reason and context.alive for context in before.contexts)
    # A context that began after this time did not exist before, even if a registry could not be read then.
    limit = after.taken_ns - (after.read_ns - before.read_ns)
    contexts = tuple(
        _context(known.get((context.context_id, context.start_ns)), context, before, limit, unread)
        for context in after.contexts
    )
    return dataclasses.replace(after, contexts=contexts, seconds=(after.read_ns - before.read_ns) / 1e9)


def growth(of: str, before: Counters, after: Counters) -> dict[str, int]:
    """Returns the growth of counters, wrap-around included; without the counters that have started again.

    Args:
        of: kind of object that they belong to.
        before: earlier values (default 0).
        after: later values.
    """
    grown = {}
    for name in _GROWING[of]:
        if name in after:
            grew = after[name] - before.get(name, 0)
            if grew < 0:
                # A counter wraps around to 0 at the end of its word; one that is far lower has started again.
                bits = _BITS[of, name]
                grew %= 1 << bits
                if grew >= 1 << (bits - 1):
                    continue
            grown[name] = grew
    return grown


def per_second(of: str, before: Counters, after: Counters, seconds: float) -> Rates:
    """Returns the growth of counters a second."""
    if seconds <= 0:
        return NO_RATES
    if before == after:
        # Most counters do not change.
        return _STILL[of]
    return MappingProxyType({name: grew / seconds for name, grew in growth(of, before, after).items()})


def _context(
    before: ContextStats | None, after: ContextStats, earlier: DomainSnapshot, limit: int, unread: bool
) -> ContextStats:
    if before is None and unread and after.start_ns <= limit:
        return after
    since = before.read_ns if before else earlier.read_ns
    seconds = (after.read_ns - since) / 1e9
    return dataclasses.replace(
        after,
        per_second=per_second("context", before.counters if before else {}, after.counters, seconds),
        sessions=tuple(_sessions(before, after, earlier)),
        receivers=tuple(_receivers(before.receivers if before else (), after.receivers, after.read_ns - since)),
        recorders=tuple(_recorders(before.recorders if before else (), after.recorders, after.read_ns - since)),
    )


def _sessions(before: ContextStats | None, after: ContextStats, earlier: DomainSnapshot) -> Iterable[SessionStats]:
    known = {session.source: session for session in before.sessions} if before else {}
    for session in after.sessions:
        was = known.get(session.source)
        if was is not None and was.counters and was.start_ns != session.start_ns:
            was = None  # another session that has the same source string now
        yield _session(was, session, earlier.read_ns)


def _session(before: SessionStats | None, after: SessionStats, earlier_ns: int) -> SessionStats:
    since = before.read_ns if before else earlier_ns
    elapsed = after.read_ns - since
    slots = {slot.key: slot for slot in before.receivers} if before else {}
    if not after.counters or (before is not None and not before.counters):
        if not after.receivers:
            return after
        # Receivers over UDP are known even if their session is not.
        receivers = tuple(_slot(slots.get(slot.key), slot, elapsed, {}) for slot in after.receivers)
        return dataclasses.replace(after, receivers=receivers)
    found = per_second("session", before.counters if before else {}, after.counters, elapsed / 1e9)
    sources = {source.number: source for source in before.sources} if before else {}
    found_session = dataclasses.replace(
        after,
        per_second=found,
        blocked=_blocked(before, after, elapsed),
        receivers=tuple(_slot(slots.get(slot.key), slot, elapsed, found) for slot in after.receivers),
        uplink=after.uplink and _uplink(before.uplink if before else None, after.uplink, elapsed),
        sources=tuple(_source(sources.get(source.number), source, elapsed) for source in after.sources),
    )
    return dataclasses.replace(found_session, held_up_for_ns=_held_up_for(before, found_session, elapsed))


def _held_up_for(before: SessionStats | None, after: SessionStats, elapsed: int) -> int:
    """Returns for how long one reader, or the data rate, has kept the source waiting most of the time, in ns."""
    cause, share = _cause(after), after.blocked or 0.0
    if cause is None:
        return 0
    if before is not None and _cause(before) == cause and share > _MOST_OF_THE_TIME:
        return max(after.blocked_for_ns, before.held_up_for_ns + elapsed)
    return max(after.blocked_for_ns, round(share * elapsed))


def _cause(session: SessionStats) -> object | None:
    """Returns the key of the reader that keeps the source waiting, or "data rate"; None if the source does not wait."""
    reader = session.held_up_by
    return "data rate" if session.held_up_by_rate else reader.key if reader else None


def _uplink(before: UplinkStats | None, after: UplinkStats, elapsed: int) -> UplinkStats:
    if not after.counters or elapsed <= 0:
        return after
    earlier: Counters = before.counters if before else {}
    found = per_second("uplink", earlier, after.counters, elapsed / 1e9)
    waited = after.counters["rate_limited_ns"] + after.limited_for_ns - earlier.get("rate_limited_ns", 0)
    waited -= before.limited_for_ns if before else 0
    return dataclasses.replace(after, per_second=found, limited=min(1.0, max(0, waited) / elapsed))


def _reception(before: ReceptionStats | None, after: ReceptionStats | None, elapsed: int) -> ReceptionStats | None:
    if after is None:
        return None
    found = per_second("reception", before.counters if before else {}, after.counters, elapsed / 1e9)
    return dataclasses.replace(after, per_second=found)


def _blocked(before: SessionStats | None, after: SessionStats, elapsed: int) -> float | None:
    """Returns the share of the time in which sends waited; a send that still waits counts until now."""
    earlier = before.counters["blocked_ns"] + before.blocked_for_ns if before else 0
    waited = after.counters["blocked_ns"] + after.blocked_for_ns - earlier
    return min(1.0, max(0, waited) / elapsed) if elapsed > 0 else None


def _slot(before: SlotStats | None, after: SlotStats, elapsed: int, session: Mapping[str, float]) -> SlotStats:
    messages, sent_bytes = session.get("lbm_msgs_sent", 0), session.get("bytes_sent", 0)
    return dataclasses.replace(
        after,
        per_second=per_second("slot", before.counters if before else {}, after.counters, elapsed / 1e9),
        recent=after.latency.since(before.latency) if before else after.latency,
        lag_messages=lag_messages(after.lag, messages, sent_bytes) if sent_bytes else after.lag_messages,
        reception=_reception(before.reception if before else None, after.reception, elapsed)
        if after.reception
        else None,
    )


def _source(before: SourceStats | None, after: SourceStats, elapsed: int) -> SourceStats:
    if not after.counters or (before is not None and not before.counters):
        return after
    found = per_second("source", before.counters if before else {}, after.counters, elapsed / 1e9)
    return SourceStats(after.topic, after.number, after.receivers, after.counters, found)


def _receivers(
    before: tuple[ReceiverStats, ...], after: tuple[ReceiverStats, ...], elapsed: int
) -> Iterable[ReceiverStats]:
    known = {(receiver.topic, receiver.wildcard, receiver.since_ns): receiver for receiver in before}
    for receiver in after:
        was = known.get((receiver.topic, receiver.wildcard, receiver.since_ns))
        found = per_second("receiver", was.counters if was else {}, receiver.counters, elapsed / 1e9)
        yield dataclasses.replace(receiver, per_second=found)


def _recorders(
    before: tuple[RecorderStats, ...], after: tuple[RecorderStats, ...], elapsed: int
) -> Iterable[RecorderStats]:
    known = {(recorder.log, recorder.since_ns): recorder for recorder in before}
    for recorder in after:
        was = known.get((recorder.log, recorder.since_ns))
        found = per_second("recorder", was.counters if was else {}, recorder.counters, elapsed / 1e9)
        yield dataclasses.replace(recorder, per_second=found)
