"""A domain as it is now, read by anybody who may, without a slot and without touching those it tells about.

What vanishes, is damaged, or may not be read while a snapshot is taken is no error: the context or session then says
why its numbers are missing.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from types import MappingProxyType

import psutil

from ipcbus.resolution import names
from ipcbus.resolution.adverts import TRANSPORT_NAMES, ContextAdvert, SessionAdvert, SourceAdvert, text
from ipcbus.resolution.registry import PeerRegistry
from ipcbus.stats import counters
from ipcbus.stats.histogram import Histogram
from ipcbus.stats.model import ContextStats, DomainSnapshot, ReceiverStats, SessionStats, SlotStats, SourceStats
from ipcbus.stats.reading import ControlCopy, RingCopy, read_control, read_ring
from ipcbus.wire.layout import TOPIC_MASK
from ringbuf import layout, segment
from ringbuf.errors import RingError, SegmentGone

_STATES = {layout.SLOT_JOINING: "joining", layout.SLOT_ACTIVE: "active", layout.SLOT_EVICTED: "evicted"}
_PACINGS = {False: "receiver_paced", True: "source_paced"}
_DEAD = "its process is gone; what it left is removed when another one looks"
_NONE: MappingProxyType[str, int] = MappingProxyType({})

Commands = Callable[[int], str]


def take_snapshot(domain: str = "default") -> DomainSnapshot:
    """Everything that the shared memory of one domain says."""
    return _snapshot(names.domain_tag(domain), domain)


def take_snapshots() -> tuple[DomainSnapshot, ...]:
    """The snapshots of all domains of this host, by name."""
    return tuple(sorted((_snapshot(tag, None) for tag in _tags()), key=lambda taken: taken.domain))


def domains() -> tuple[str, ...]:
    """The names of all domains of this host."""
    return tuple(taken.domain for taken in take_snapshots())


def _tags() -> set[str]:
    parsed = (names.parse(name) for name in segment.names(names.PREFIX))
    return {found[0] for found in parsed if found and found[2] == names.REGISTRY}


def _snapshot(tag: str, domain: str | None) -> DomainSnapshot:
    taken = time.time_ns()
    commands = functools.cache(command_of)
    prefix = f"{names.PREFIX}{tag}."
    registries = [name for name in segment.names(prefix) if name.endswith("." + names.REGISTRY)]
    # All registries come first: a receiver's numbers are then never ahead of those of the sessions it reads.
    read = [(name, *_read_registry(name)) for name in registries if names.parse(name)]
    contexts = tuple(_context(name, contents, alive, reason, commands) for name, contents, alive, reason in read)
    known = (contents.domain for _, contents, _, _ in read if contents and names.domain_tag(contents.domain) == tag)
    return DomainSnapshot(
        domain if domain is not None else next(known, tag),
        taken,
        tuple(sorted(contexts, key=lambda context: (context.start_ns, context.context_id))),
    )


def command_of(pid: int) -> str:
    """Command line of a process; empty when it is gone, of another pid namespace, or may not be looked at."""
    with contextlib.suppress(psutil.Error, OSError, ValueError):
        return " ".join(psutil.Process(pid).cmdline())
    return ""


def _read_registry(name: str) -> tuple[ContextAdvert | None, bool, str]:
    """Contents, whether the owner lives, and why there are no contents."""
    try:
        registry = PeerRegistry(name)
    except (RingError, OSError, ValueError) as error:
        return None, not isinstance(error, SegmentGone), str(error)
    try:
        alive = registry.alive()
        contents = registry.read()
        if contents is None:
            return None, alive, f"{name} is in the middle of a change for too long; look again"
        return (
            contents[1],
            alive,
            "" if alive else "its process is gone; what it left is removed when another one looks",
        )
    except (RingError, OSError, ValueError) as error:
        return None, False, str(error)
    finally:
        registry.close()


def _context(name: str, contents: ContextAdvert | None, alive: bool, reason: str, commands: Commands) -> ContextStats:
    if contents is None:
        parsed = names.parse(name)
        context_id = parsed[1] if parsed else 0
        return ContextStats(context_id, "", 0, 0, "", 0, "", alive, (), (), reason)
    command = commands(contents.pid) if alive else ""
    prefix = name.removesuffix(names.REGISTRY)
    return ContextStats(
        contents.context_id,
        contents.name,
        contents.pid,
        contents.uid,
        command,
        contents.start_ns,
        contents.release,
        alive,
        tuple(_session(prefix, contents, advert, command, commands) for advert in contents.sessions),
        tuple(
            ReceiverStats(
                receiver.topic,
                receiver.wildcard,
                receiver.since_ns,
                MappingProxyType({row.name: getattr(receiver, row.name) for row in counters.counters_of("receiver")}),
            )
            for receiver in contents.receivers
        ),
        reason,
    )


def _session(
    prefix: str, contents: ContextAdvert, advert: SessionAdvert, command: str, commands: Commands
) -> SessionStats:
    """One session; where its objects cannot be read, what the registry says and the reason."""
    sources = tuple(source for source in contents.sources if source.session == advert)
    ring: RingCopy | None = None
    control: ControlCopy | None = None
    reason = ""
    try:
        if not 0 < advert.topics_max <= TOPIC_MASK:
            raise ValueError(
                f"{advert.source_string} offers {advert.topics_max} topics; its owner is damaged, restart it"
            )
        # The positions of readers are read before the tail, so that nobody is ahead of it.
        control = read_control(_beside(prefix, names.control, advert), advert.session_id, advert.topics_max)
        ring = read_ring(_beside(prefix, names.ring, advert), advert.session_id, advert.topics_max)
    except SegmentGone:
        reason = "it ended while it was looked at"
    except (RingError, OSError, ValueError) as error:
        reason = str(error)
    slots = _slots(advert, sources, control, ring, commands) if control and ring else ()
    joined = MappingProxyType({"num_clients": sum(slot.state == "active" for slot in slots)})
    return SessionStats(
        source=advert.source_string,
        transport=TRANSPORT_NAMES.get(advert.transport, "?"),
        pid=contents.pid,
        command=command,
        pacing=_PACINGS[advert.source_paced],
        capacity=advert.window,
        datagram_max=int(ring.header["record_max"]) - layout.RECORD_HEADER if ring else 0,
        slots_max=int(control.header["slots_max"]) if control else 0,
        topics_max=advert.topics_max,
        tail=int(ring.header["tail"]) if ring else 0,
        closed=bool(ring.header["closed"]) if ring else False,
        counters=MappingProxyType(counters.values("session", ring.header, joined)) if ring else _NONE,
        sources=tuple(_source(advert, source, ring, slots) for source in sources),
        receivers=slots,
        reason=reason,
    )


def _beside(prefix: str, name: Callable[[str, int, int], str], advert: SessionAdvert) -> str:
    """Name of an object of the same context, whose domain may be known by its tag only."""
    return prefix + name("", advert.context_id, advert.local).rpartition(".")[2]


def _source(
    advert: SessionAdvert, source: SourceAdvert, ring: RingCopy | None, slots: tuple[SlotStats, ...]
) -> SourceStats:
    receivers = sum(source.topic in slot.topics for slot in slots if slot.state == "active")
    line = ring.lines[source.topic_number % advert.topics_max] if ring else None
    # A line that has a new topic already says nothing about this one.
    ours = line is not None and int(line["topic"]) == source.topic_number
    found = MappingProxyType(counters.values("source", line)) if ours else _NONE
    return SourceStats(source.topic, source.topic_number, receivers, found)


def _slots(
    advert: SessionAdvert,
    sources: tuple[SourceAdvert, ...],
    control: ControlCopy,
    ring: RingCopy,
    commands: Commands,
) -> tuple[SlotStats, ...]:
    tail = int(ring.header["tail"])
    found = []
    for index, slot in control.slots.items():
        topics = tuple(
            source.topic
            for source in sources
            if int(control.joined[source.topic_number % advert.topics_max]) >> index & 1
        )
        position = int(slot["position"])
        alive = index in control.held
        found.append(
            SlotStats(
                slot=index,
                state=_STATES[int(slot["state"])],
                alive=alive,
                pid=int(slot["pid"]),
                uid=int(slot["uid"]),
                context_id=int(slot["context_id"]),
                context_name=text(slot["context_name"]),
                command=commands(int(slot["pid"])) if alive else "",
                joined_ns=int(slot["joined_ns"]),
                position=position,
                lag=max(0, tail - position),
                topics=topics,
                counters=MappingProxyType(counters.values("slot", slot)),
                latency=Histogram(slot["latency"], int(slot["latency_max"])),
            )
        )
    return tuple(found)
