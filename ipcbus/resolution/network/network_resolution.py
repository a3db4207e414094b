"""A context's part in topic resolution over the network: what to tell and ask when, and what others have told.

Datagrams and the time go in, datagrams come out; where they go (a multicast group, resolver daemons) is not known here.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from ipcbus.resolution.local import object_names
from ipcbus.resolution.network import advert_phases
from ipcbus.resolution.network.advert_cache import AdvertCache
from ipcbus.resolution.network.advert_phases import INITIAL, LANES, SUSTAIN
from ipcbus.resolution.network.advertised_sources import AdvertisedSources
from ipcbus.resolution.network.pattern_prefix import literal_prefix
from ipcbus.resolution.network.resolution_counts import ResolutionCounts
from ipcbus.wire import resolution_packets

if TYPE_CHECKING:
    from random import Random

    from ipcbus.resolution.local.adverts import SessionAdvert, SourceAdvert
    from ipcbus.resolution.network.advert_cache import Offers
    from ipcbus.resolution.network.advert_pacing import Schedule
    from ipcbus.resolution.network.resolution_settings import ResolutionSettings

_MS = 1_000_000

JITTER_NS = 10 * _MS
"""Longest time that an answer waits, so that questions that come together are answered together."""
FRESH_NS = 100 * _MS
"""What was told so shortly before is no answer: it is on its way."""
WILDCARD_FRESH_NS = 1000 * _MS
"""The same for questions about patterns, each of which may be about every topic."""
WILDCARD_NS = 100 * _MS
"""Time between two looks for what patterns mean, however many are asked for."""
SILENCE_NS = 30_000 * _MS
"""Who has heard nobody for so long was perhaps cut off: he asks as at the beginning of the sustain phase."""
_PREFIXES_MAX = 64

_BY_DAEMON = "resolver daemon"


class Who(NamedTuple):
    """A context, as others are told of it."""

    context_id: int
    pid: int
    name: str


class NetworkResolution:
    """One context among others of its domain."""

    def __init__(self, terms: ResolutionSettings, who: Who, domain: str, random: Random, now_ns: int) -> None:
        """Publishes nothing and wants nothing.

        Args:
            terms: intervals, limits and bounds.
            who: the context.
            domain: its domain; contexts of others are not seen, and do not see it.
            random: draws when to answer.
            now_ns: the time.
        """
        self._terms = terms
        name = who.name.encode()[: resolution_packets.NAME_MAX].decode(errors="ignore").partition("\0")[0]
        self._who = Who(who.context_id, who.pid, name)
        self._tag = object_names.domain_tag(domain)
        self._random = random
        # The numbers of one that is made anew for the same context go on behind those of the former one.
        self._number = max(0, now_ns)
        self._counts = ResolutionCounts()
        self._cache = AdvertCache(terms.cache_bytes_max, terms.cache_host_share)
        offset_ns = random.randrange(advert_phases.TICK_MAX_NS)
        self._adverts: Schedule[SourceAdvert] = advert_phases.adverts(terms, offset_ns)
        self._queries: Schedule[str] = advert_phases.queries(terms, offset_ns)
        self._wildcards: Schedule[str] = advert_phases.wildcards(terms, offset_ns)
        self._wanted: dict[str, None] = {}
        self._beginnings: tuple[str, ...] = ()
        self._offered = AdvertisedSources()
        self._withdrawn: dict[int, dict[int, None]] = {}
        self._prefixes: dict[str, None] = {}
        self._prefixes_ns = 0
        self._heard_ns = now_ns
        self._out: list[bytes] = []

    # ---- what the own sources and receivers say

    def offer(self, source: SourceAdvert, now_ns: int) -> None:
        """A topic is published from now on; one on a session without an endpoint is nothing that others could use."""
        if source.session.endpoint is not None:
            self._forget_withdrawal(source)
            self._offered.add(source, source.session.endpoint)
            self._adverts.add(source, now_ns)

    def withdraw(self, source: SourceAdvert, now_ns: int) -> None:
        """A topic is not published any more."""
        del now_ns
        if self._adverts.remove(source):
            self._offered.remove(source)
            if self._terms.send_final_advertisements:
                self._withdrawn.setdefault(source.session.session_id, {})[source.topic_number] = None

    def want(self, topic: str, now_ns: int) -> None:
        """A topic is looked for from now on; once, however often this is said."""
        if topic not in self._wanted:
            self._wanted[topic] = None
            if not self._cache.surely(topic):
                self._queries.add(topic, now_ns)

    def unwant(self, topic: str) -> None:
        """A topic is not looked for any more."""
        self._wanted.pop(topic, None)
        self._queries.remove(topic)

    def want_pattern(self, pattern: str, now_ns: int) -> None:
        """The topics that match a pattern are looked for from now on; once, however often this is said."""
        self._wildcards.add(pattern, now_ns)
        self._beginnings = tuple(map(literal_prefix, self._wildcards))

    def unwant_pattern(self, pattern: str) -> None:
        """They are not looked for any more."""
        self._wildcards.remove(pattern)
        self._beginnings = tuple(map(literal_prefix, self._wildcards))

    def refresh(self, now_ns: int) -> None:
        """Tells and asks for everything as if a query had come: somebody may be reached who was not before."""
        for source in self._adverts:
            self._adverts.ask(source, now_ns, 0, SUSTAIN)
        self._ask_again(now_ns)
        for pattern in self._wildcards:
            self._wildcards.restart(pattern, 0, now_ns)

    def close(self, now_ns: int) -> list[bytes]:
        """Ends: what is to be sent yet. Nothing else may be called after it."""
        del now_ns
        told = bool(len(self._adverts)) or bool(self._withdrawn)
        self._out.clear()
        if told and self._terms.send_final_advertisements:
            self._send(resolution_packets.final(self._head(), ()))
        return self.take()

    # ---- what comes, and the time

    def receive(self, packet: bytes, address: object, now_ns: int) -> None:
        """A datagram came.

        Args:
            packet: any bytes.
            address: from where, as sockets give it: a tuple that begins with a numeric host.
            now_ns: the time.
        """
        found = resolution_packets.parse(packet)
        if found is not None and found.head.context_id == self._who.context_id:
            return
        self._counts.tr_dgrams_rcved += 1
        self._counts.tr_bytes_rcved += len(packet)
        if found is None:
            self._count_fault(packet)
        elif found.head.tag != self._tag:
            self._counts.dgrams_other_domain += 1
        else:
            self._heard(found, address, now_ns)

    def turn(self, now_ns: int) -> None:
        """Does what is due."""
        self._cache.turn(now_ns)
        self._follow_cache(now_ns)
        if self._prefixes and now_ns >= self._prefixes_ns:
            self._answer_patterns(now_ns)
        if self._withdrawn and self._adverts.pace(SUSTAIN).free_ns <= now_ns:
            self._tell_withdrawn(now_ns)
        for lane in LANES:
            while self._adverts.ready(lane, now_ns):
                self._tell(lane, now_ns)
            while self._queries.ready(lane, now_ns):
                texts = self._gather(self._queries, lane, now_ns)
                packet = self._send(resolution_packets.query(self._head(), texts))
                self._queries.pace(lane).took(len(texts), len(packet), now_ns)
        while self._wildcards.ready(INITIAL, now_ns):
            texts = self._gather(self._wildcards, INITIAL, now_ns)
            packet = self._send(
                resolution_packets.wildcard_query(self._head(), dict.fromkeys(map(literal_prefix, texts)))
            )
            self._wildcards.pace(INITIAL).took(len(texts), len(packet), now_ns)

    @property
    def next_ns(self) -> int | None:
        """When to call `turn`; None when nothing is to be done until something comes or is asked for."""
        times = [self._cache.next_ns, self._adverts.next_ns, self._queries.next_ns, self._wildcards.next_ns]
        if self._prefixes:
            times.append(self._prefixes_ns)
        if self._withdrawn:
            times.append(self._adverts.pace(SUSTAIN).free_ns)
        return min((time for time in times if time is not None), default=None)

    def take(self) -> list[bytes]:
        """Returns the datagrams to be sent to all others now."""
        found, self._out = self._out, []
        return found

    # ---- what is known

    def sources(self) -> Offers:
        """What others publish: sessions, each with its topics by their numbers. Not to be changed."""
        return self._cache.sources()

    def contexts(self) -> dict[int, int]:
        """Processes of the contexts that publish something, by the contexts' ids."""
        return self._cache.contexts()

    @property
    def changes(self) -> int:
        """Moves whenever `sources` changes."""
        return self._cache.changes

    @property
    def counts(self) -> ResolutionCounts:
        """What was counted until now."""
        counts = self._counts
        counts.tr_src_topics = len(self._cache)
        counts.tr_rcv_topics = len(self._wanted)
        counts.tr_rcv_unresolved_topics = sum(topic not in self._cache for topic in self._queries)
        counts.dgrams_dropped_old, counts.adverts_refused = self._cache.old, self._cache.refused
        return counts

    # ---- what came

    def _heard(self, found: resolution_packets.Packet, address: object, now_ns: int) -> None:
        if now_ns - self._heard_ns > SILENCE_NS:
            self._ask_again(now_ns)
        self._heard_ns = now_ns
        if isinstance(found, resolution_packets.Query):
            self._asked(found.topics, now_ns)
        elif isinstance(found, resolution_packets.WildcardQuery):
            self._asked_for_patterns(found.prefixes)
        else:
            self._told(found, address, now_ns)

    def _count_fault(self, packet: bytes) -> None:
        fault = resolution_packets.fault_of_head(packet)
        if fault == "ver":
            self._counts.tr_dgrams_dropped_ver += 1
        elif fault == "type":
            self._counts.tr_dgrams_dropped_type += 1
        else:
            self._counts.tr_dgrams_dropped_malformed += 1

    def _told(self, found: resolution_packets.Packet, address: object, now_ns: int) -> None:
        origin = _host(address) if self._terms.check_address else _BY_DAEMON
        if isinstance(found, resolution_packets.Advert):
            if self._terms.check_address and any(session.host != origin for session, _ in found.groups):
                self._counts.dgrams_dropped_address += 1
                return
            self._cache.advert(origin, found, now_ns)
        elif isinstance(found, resolution_packets.FinalAdvert):
            self._cache.final(origin, found)
        self._follow_cache(now_ns)

    def _follow_cache(self, now_ns: int) -> None:
        """Looks for what has no source any more, or soon may have none, and no longer for what has one."""
        for topic in self._cache.turned():
            matching = topic in self._cache and topic.startswith(self._beginnings)
            if (topic in self._wanted or matching) and not self._cache.surely(topic):
                self._queries.add(topic, now_ns)
            else:
                self._queries.remove(topic)

    def _ask_again(self, now_ns: int) -> None:
        for topic in self._queries:
            self._queries.ask(topic, now_ns, 0, SUSTAIN)

    def _asked(self, topics: tuple[str, ...], now_ns: int) -> None:
        if self._terms.advertisement_send_immediate_response:
            at_ns = now_ns + self._random.randrange(JITTER_NS)
        else:
            at_ns = now_ns + self._terms.advertisement_sustain_interval
        for topic in topics:
            for source in self._offered.of(topic):
                self._adverts.ask(source, at_ns, FRESH_NS, SUSTAIN)

    def _asked_for_patterns(self, prefixes: tuple[str, ...]) -> None:
        """Notes them: a look at all topics for each of them would take whoever asks too little."""
        for prefix in prefixes if self._terms.advertisement_send_immediate_response else ():
            self._prefixes[prefix] = None
            if not prefix or len(self._prefixes) > _PREFIXES_MAX:
                self._prefixes = {"": None}
                return

    def _answer_patterns(self, now_ns: int) -> None:
        at_ns = now_ns + self._random.randrange(JITTER_NS)
        for source in self._offered.beginning(self._prefixes):
            self._adverts.ask(source, at_ns, WILDCARD_FRESH_NS)
        self._prefixes.clear()
        self._prefixes_ns = now_ns + WILDCARD_NS

    # ---- what goes

    def _head(self) -> resolution_packets.Head:
        self._number += 1
        return resolution_packets.Head(*self._who, self._tag, self._number)

    def _send(self, packet: bytes) -> bytes:
        self._counts.tr_dgrams_sent += 1
        self._counts.tr_bytes_sent += len(packet)
        self._out.append(packet)
        return packet

    @property
    def _room(self) -> int:
        return self._terms.datagram_max_size - resolution_packets.head_size(self._who.name)

    def _tell(self, lane: int, now_ns: int) -> None:
        """An advert of what is due, as much as fits."""
        groups: dict[SessionAdvert, dict[int, str]] = {}
        room, count = self._room, 0
        while (source := self._adverts.first(lane, now_ns)) is not None:
            size = resolution_packets.topic_size(source.topic)
            if source.session not in groups:
                size += self._offered.size(source.session)
            if size > room and count:
                break
            room -= size
            count += 1
            groups.setdefault(source.session, {})[source.topic_number] = source.topic
            self._adverts.told(lane, now_ns)
        told = [(self._offered.told(session), topics) for session, topics in groups.items()]
        packet = self._send(resolution_packets.advert(self._head(), self._offered.ttl(self._terms), told))
        self._adverts.pace(lane).took(count, len(packet), now_ns)

    def _gather(self, schedule: Schedule[str], lane: int, now_ns: int) -> list[str]:
        """Texts that are due, as many as fit."""
        found: list[str] = []
        room = self._room
        while (text := schedule.first(lane, now_ns)) is not None:
            room -= resolution_packets.text_size(text)
            if room < 0 and found:
                break
            found.append(text)
            schedule.told(lane, now_ns)
        return found

    def _tell_withdrawn(self, now_ns: int) -> None:
        """A final advert of what was withdrawn, as much as fits."""
        groups: dict[int, list[int]] = {}
        room, count = self._room, 0
        for session_id, numbers in self._withdrawn.items():
            room -= resolution_packets.FINAL_GROUP_BYTES
            while numbers and room >= resolution_packets.NUMBER_BYTES:
                room -= resolution_packets.NUMBER_BYTES
                count += 1
                groups.setdefault(session_id, []).append(numbers.popitem()[0])
        self._withdrawn = {session_id: numbers for session_id, numbers in self._withdrawn.items() if numbers}
        packet = self._send(resolution_packets.final(self._head(), groups.items()))
        self._adverts.pace(SUSTAIN).took(count, len(packet), now_ns)

    def _forget_withdrawal(self, source: SourceAdvert) -> None:
        numbers = self._withdrawn.get(source.session.session_id, {})
        numbers.pop(source.topic_number, None)
        if not numbers:
            self._withdrawn.pop(source.session.session_id, None)


def _host(address: object) -> str:
    """The host of an address as sockets give it, in the form in which adverts name it; empty when it has none."""
    if not isinstance(address, tuple) or not address or not isinstance(address[0], str):
        return ""
    try:
        found = ipaddress.ip_address(address[0].partition("%")[0])
    except ValueError:
        return ""
    return str(getattr(found, "ipv4_mapped", None) or found)
