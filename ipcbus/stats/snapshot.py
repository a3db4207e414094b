"""Takes snapshots of a domain from shared memory, without a slot and without any effect on its contexts.

An object that vanishes, is damaged, or may not be read does not end a snapshot with an error: the context or session
says why its numbers are missing.
"""

from __future__ import annotations

import dataclasses
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.adverts import TRANSPORT_NAMES, ContextAdvert, SessionAdvert, SourceAdvert, text
from ipcbus.resolution.local.registry import PeerRegistry
from ipcbus.stats import counters, udp_sessions
from ipcbus.stats.histogram import Histogram
from ipcbus.stats.processes import Processes, user_name
from ipcbus.stats.recorder_model import RecorderStats
from ipcbus.stats.shared_copies import ControlCopy, RingCopy, read_control, read_ring, read_ring_header
from ipcbus.stats.snapshot_model import (
    NO_COUNTERS,
    ContextStats,
    DomainSnapshot,
    ReceiverStats,
    SessionStats,
    SlotStats,
    SourceStats,
)
from ipcbus.stats.udp_sessions import UdpReceptions, lag_messages
from ipcbus.wire.wire_layout import TOPIC_MASK, UPLINK
from ringbuf import layout, segment
from ringbuf.ring_errors import RingError, SegmentGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ipcbus.resolution.local.adverts import RecorderAdvert
    from ipcbus.stats.snapshot_model import UplinkStats
    from ipcbus.stats.udp_sessions import Reception

_STATES = {layout.SLOT_JOINING: "joining", layout.SLOT_ACTIVE: "active", layout.SLOT_EVICTED: "evicted"}
_PACINGS = {False: "receiver_paced", True: "source_paced"}
_AGE_MAX = (1 << 63) - 1
"""Highest age, for damaged registries."""
_DEAD = "its process has ended; another context of the domain will remove its shared memory"


def take_snapshot(domain: str = "default", processes: Processes | None = None) -> DomainSnapshot:
    """Returns a snapshot of one domain.

    Args:
        domain: name of the domain.
        processes: a cache of command lines; pass the same object to all snapshots that a program takes.

    Raises:
        ConfigError: the name of the domain is invalid.
    """
    object_names.check_domain(domain)
    return _snapshot(object_names.domain_tag(domain), domain, processes or Processes())


def take_snapshots() -> tuple[DomainSnapshot, ...]:
    """Returns the snapshots of all domains of this host, by name."""
    processes = Processes()
    return tuple(sorted((_snapshot(tag, None, processes) for tag in _tags()), key=lambda taken: taken.domain))


def domains() -> tuple[str, ...]:
    """Returns the names of all domains of this host."""
    return tuple(sorted({_named(tag, (_read_registry(name)[0] for name in _registries(tag))) for tag in _tags()}))


def _tags() -> set[str]:
    parsed = (object_names.parse(name) for name in segment.names(object_names.PREFIX))
    return {found[0] for found in parsed if found and found[2] == object_names.REGISTRY}


def _registries(tag: str) -> list[str]:
    found = segment.names(f"{object_names.PREFIX}{tag}.")
    return [name for name in found if name.endswith("." + object_names.REGISTRY) and object_names.parse(name)]


def _named(tag: str, contexts: Iterable[ContextAdvert | None]) -> str:
    """Returns the name of the domain with a tag, or the tag if no registry contains the name."""
    known = (each.domain for each in contexts if each is not None and object_names.domain_tag(each.domain) == tag)
    return next(known, tag)


def _snapshot(tag: str, domain: str | None, processes: Processes) -> DomainSnapshot:
    taken, now = time.time_ns(), time.monotonic_ns()
    # Registries are read first, so that a receiver's numbers are never ahead of those of its sessions.
    read = [(name, *_read_registry(name), time.monotonic_ns()) for name in _registries(tag)]
    receptions = UdpReceptions()
    for name, contents, alive, _, _ in read:
        if contents is not None and alive and contents.receptions:
            receptions.read(name.removesuffix(object_names.REGISTRY), contents)
    contexts = [_context(*found, receptions, processes) for found in read]
    remote = receptions.remote_sessions(contexts, processes)
    contexts = [context for context in contexts if context.pid or context.context_id not in remote]
    contexts.sort(key=lambda context: (context.start_ns, context.context_id))
    contexts += [udp_sessions.remote_context(*found, now) for found in sorted(remote.items())]
    processes.forget_unused()
    return DomainSnapshot(
        domain if domain is not None else _named(tag, (found[1] for found in read)),
        taken,
        now,
        tuple(contexts),
    )


def _read_registry(name: str) -> tuple[ContextAdvert | None, bool, str]:
    """Returns the contents, whether the owner lives, and why there are no contents."""
    try:
        registry = PeerRegistry(name)
    except (RingError, OSError, ValueError) as error:
        return None, not isinstance(error, SegmentGone), str(error)
    try:
        alive = registry.alive()
        contents = registry.read()
        if contents is None:
            return None, alive, f"{name} was in the middle of a change for too long; look again"
        # The owner of the file is right, even if the header names another user.
        return dataclasses.replace(contents[1], uid=registry.uid), alive, "" if alive else _DEAD
    except (RingError, OSError, ValueError) as error:
        return None, False, str(error)
    finally:
        registry.close()


def _context(
    name: str,
    contents: ContextAdvert | None,
    alive: bool,
    reason: str,
    read_ns: int,
    receptions: UdpReceptions,
    processes: Processes,
) -> ContextStats:
    if contents is None:
        parsed = object_names.parse(name)
        context_id = parsed[1] if parsed else 0
        return ContextStats(context_id, "", 0, 0, "", "", 0, "", alive, (), (), reason, read_ns)
    prefix = name.removesuffix(object_names.REGISTRY)
    command = processes.command(contents.pid, contents.start_ns) if alive else ""
    stopped = alive and processes.stopped(contents.pid, contents.start_ns)
    sources: dict[SessionAdvert, list[SourceAdvert]] = {advert: [] for advert in contents.sessions}
    for source in contents.sources:
        sources[source.session].append(source)
    rows = counters.counters_of("receiver")
    return ContextStats(
        context_id=contents.context_id,
        name=contents.name,
        pid=contents.pid,
        uid=contents.uid,
        user=user_name(contents.uid),
        command=command,
        start_ns=contents.start_ns,
        release=contents.release,
        alive=alive,
        stopped=stopped,
        sessions=tuple(
            _session(
                *(prefix, contents, advert, tuple(sources[advert]), _Owner(alive, stopped, command)),
                receptions.take(advert.context_id, advert.session_id),
                processes,
            )
            for advert in contents.sessions
        ),
        receivers=tuple(
            ReceiverStats(
                receiver.topic,
                receiver.wildcard,
                receiver.since_ns,
                MappingProxyType({row.name: getattr(receiver, row.name) for row in rows}),
            )
            for receiver in contents.receivers
        ),
        recorders=tuple(_recorder(recorder, alive, stopped, read_ns) for recorder in contents.recorders),
        counters=MappingProxyType(counters.values(counters.CONTEXT, contents.counters)),
        reason=reason,
        read_ns=read_ns,
    )


def _recorder(shown: RecorderAdvert, alive: bool, stopped: bool, read_ns: int) -> RecorderStats:
    silent = max(0, read_ns - shown.shown_ns)
    # Messages that the recorder has not written grow older even if it shows nothing.
    behind = min(shown.behind_ns + (silent if shown.values["buffered_bytes"] else 0), _AGE_MAX)
    counted = MappingProxyType(counters.values(counters.RECORDER, shown.values, {"behind_ns": behind}))
    failing = bool(shown.values["failing"])
    return RecorderStats(shown.log, shown.since_ns, alive, stopped, failing, silent, counted)


class _Owner(NamedTuple):
    alive: bool
    stopped: bool
    command: str


def _session(
    prefix: str,
    contents: ContextAdvert,
    advert: SessionAdvert,
    sources: tuple[SourceAdvert, ...],
    owner: _Owner,
    receptions: list[Reception],
    processes: Processes,
) -> SessionStats:
    """Returns a session; if its objects cannot be read, the values of the registry and the reason."""
    ring, control, before, reason = _read(prefix, advert)
    read_ns = time.monotonic_ns()
    header: Mapping[str, int] = ring.header if ring and control else {}
    slots = _slots(advert, sources, control, header, before, processes) if control and header else ()
    active = sum(1 << slot.slot for slot in slots if slot.state == "active")
    shown = ring.uplink if ring and control else None
    uplink = udp_sessions.uplink_stats(advert, shown, _uplink_lag(control, before), read_ns)
    if uplink is not None:
        slots += udp_sessions.readers(sources, shown, receptions, uplink.layer, processes)
    joined = {"num_clients": active.bit_count() + (uplink.counters.get("num_clients", 0) if uplink else 0)}
    since = header.get("blocked_since", 0)
    return SessionStats(
        source=advert.source_string,
        transport=TRANSPORT_NAMES.get(advert.transport, "?"),
        context_id=contents.context_id,
        context_name=contents.name,
        pid=contents.pid,
        uid=contents.uid,
        user=user_name(contents.uid),
        command=owner.command,
        alive=owner.alive,
        stopped=owner.stopped,
        start_ns=header.get("start_ns", 0),
        pacing=_PACINGS[udp_sessions.is_source_paced(advert, shown)],
        capacity=advert.window,
        datagram_max=header["record_max"] - layout.RECORD_HEADER - layout.RECORD_TRAILER * header["checksums"]
        if header
        else 0,
        slots_max=_receivers_max(advert, control, uplink),
        topics_max=advert.topics_max,
        tail=header.get("tail", 0),
        closed=bool(header.get("closed", 0)),
        wait=_wait(owner.alive, since, control),
        blocked_for_ns=max(0, read_ns - since) if owner.alive and since else 0,
        counters=MappingProxyType(counters.values("session", header, joined)) if header else NO_COUNTERS,
        sources=tuple(_source(advert, source, ring, control, active) for source in sources),
        receivers=slots,
        reason=reason,
        read_ns=read_ns,
        uplink=uplink,
    )


def _read(prefix: str, advert: SessionAdvert) -> tuple[RingCopy | None, ControlCopy | None, Mapping[str, int], str]:
    """Returns copies of a session's ring and control block, an earlier one of the ring's header, and why one fails."""
    control: ControlCopy | None = None
    try:
        if not 0 < advert.topics_max <= TOPIC_MASK:
            raise ValueError(
                f"the registry says that {advert.source_string} has room for {advert.topics_max} topics, which is "
                "impossible: the registry is damaged; restart its context"
            )
        name = _object_name(prefix, object_names.ring, advert)
        # A reader is behind by its distance to a tail that was read before its position. A later tail counts what the
        # source has published meanwhile, and where it goes back, each time as much as the ring.
        before = read_ring_header(name, advert.session_id)
        # The positions of readers are read before the tail that is shown, so that no reader is ahead of it.
        control = read_control(_object_name(prefix, object_names.control, advert), advert.session_id, advert.topics_max)
        return read_ring(name, advert.session_id, advert.topics_max), control, before, ""
    except SegmentGone:
        return None, control, {}, "it ended while it was read"
    except (RingError, OSError, ValueError) as error:
        return None, control, {}, str(error)


def _uplink_lag(control: ControlCopy | None, ring: Mapping[str, int]) -> int:
    """Returns the bytes that the sending side over UDP has not read from the ring; 0 without one."""
    slots = control.slots.values() if control and ring else ()
    position = next(
        (s["position"] for s in slots if s["context_id"] == UPLINK and s["state"] == layout.SLOT_ACTIVE), None
    )
    return layout.bytes_between(ring, position, ring["tail"]) if position is not None else 0


def _receivers_max(advert: SessionAdvert, control: ControlCopy | None, uplink: UplinkStats | None) -> int:
    """Returns how many contexts may join: the number of slots if the session has a ring."""
    if uplink is not None and advert.over_udp:
        return uplink.clients_max
    return control.header["slots_max"] - (uplink is not None) if control else 0


def _wait(alive: bool, blocked_since: int, control: ControlCopy | None) -> str:
    if alive and blocked_since:
        return "blocked"
    refused = alive and control and control.header["writer_waits"] & layout.WRITER_WANTS_EVENT
    return "refused" if refused else ""


def _object_name(prefix: str, name: Callable[[str, int, int], str], advert: SessionAdvert) -> str:
    """Returns the name of an object of the context with this prefix; its domain may be known by its tag only."""
    return prefix + name("", advert.context_id, advert.local).rpartition(".")[2]


def _source(
    advert: SessionAdvert, source: SourceAdvert, ring: RingCopy | None, control: ControlCopy | None, active: int
) -> SourceStats:
    receivers = (_joined(control, advert, source) & active).bit_count() if control else 0
    if ring and ring.uplink:
        receivers += udp_sessions.joined(ring.uplink, source.topic_number).bit_count()
    line = ring.line(source.topic_number) if ring else {}
    # The line may belong to a new topic already.
    ours = line.get("topic") == source.topic_number
    found = MappingProxyType(counters.values("source", line, _computed(line))) if ours else NO_COUNTERS
    return SourceStats(source.topic, source.topic_number, receivers, found)


def _computed(line: Mapping[str, int]) -> dict[str, int]:
    """Returns the counters that are computed from a topic's line: whole messages, and fragments."""
    return {
        "lbm_msgs_sent": max(0, line["published"] - line["continued"]),
        "fragments_sent": line["continued_next"] + line["msgs_fragmented"],
    }


def _slots(
    advert: SessionAdvert,
    sources: tuple[SourceAdvert, ...],
    control: ControlCopy,
    ring: Mapping[str, int],
    before: Mapping[str, int],
    processes: Processes,
) -> tuple[SlotStats, ...]:
    parked = control.header["parked"]
    joined = {source.topic: _joined(control, advert, source) for source in sources}
    found = []
    for index, slot in control.slots.items():
        if slot["context_id"] == UPLINK:
            continue  # the sending side over UDP, not a context
        alive = index in control.held
        lag = layout.bytes_between(before, slot["position"], before["tail"])
        found.append(
            SlotStats(
                slot=index,
                generation=slot["generation"],
                state=_STATES[slot["state"]],
                alive=alive,
                stopped=alive and processes.stopped(slot["pid"], slot["joined_ns"]),
                parked=bool(parked >> index & 1),
                pid=slot["pid"],
                uid=slot["uid"],
                user=user_name(slot["uid"]),
                context_id=slot["context_id"],
                context_name=text(slot["context_name"]),
                command=processes.command(slot["pid"], slot["joined_ns"]) if alive else "",
                joined_ns=slot["joined_ns"],
                position=slot["position"],
                lag=lag,
                lag_messages=lag_messages(lag, ring["lbm_msgs_sent"], ring["bytes_sent"]),
                topics=tuple(topic for topic, mask in joined.items() if mask >> index & 1),
                counters=MappingProxyType(counters.values("slot", slot)),
                latency=Histogram(slot["latency"], slot["latency_max"]),
            )
        )
    return tuple(found)


def _joined(control: ControlCopy, advert: SessionAdvert, source: SourceAdvert) -> int:
    """Returns the mask of the slots whose contexts receive a topic."""
    return int(control.joined[source.topic_number % advert.topics_max])
