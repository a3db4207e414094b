"""Topic resolution of a context over the network: its adverts and queries, and the adverts of other contexts.

Datagrams and the time go in, datagrams come out. The caller sends them to a multicast group or to resolver daemons.
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
"""Longest time that an answer waits, so that one answer serves several queries."""
FRESH_NS = 100 * _MS
"""A query gets no answer if an advert of its topic was sent this time before or later: the advert is on its way."""
WILDCARD_FRESH_NS = 1000 * _MS
"""This time for queries for patterns, each of which may match every topic."""
WILDCARD_NS = 100 * _MS
"""Time between two searches for topics that match queried prefixes, however many queries arrive."""
SILENCE_NS = 30_000 * _MS
"""A context that received nothing for this time may have been cut off: it repeats its queries at once."""
_PREFIXES_MAX = 64

_BY_DAEMON = "resolver daemon"


class Who(NamedTuple):
    """The identity of a context in its packets."""

    context_id: int
    pid: int
    name: str


class NetworkResolution:
    """Topic resolution of one context among others of its domain."""

    def __init__(self, terms: ResolutionSettings, who: Who, domain: str, random: Random, now_ns: int) -> None:
        """Makes the resolution of a context without sources and receivers.

        Args:
            terms: intervals and limits.
            who: the context.
            domain: its domain; packets of other domains are ignored.
            random: draws the times of answers.
            now_ns: the time.
        """
        self._terms = terms
        name = who.name.encode()[: resolution_packets.NAME_MAX].decode(errors="ignore").partition("\0")[0]
        self._who = Who(who.context_id, who.pid, name)
        self._tag = object_names.domain_tag(domain)
        self._random = random
        # Higher than all numbers that an earlier object for this context has used.
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

    # ---- the context's own sources and receivers

    def offer(self, source: SourceAdvert, now_ns: int) -> None:
        """Advertises a source from now on; ignores sources of sessions without an endpoint, which no host can join."""
        if source.session.endpoint is not None:
            self._forget_withdrawal(source)
            self._offered.add(source, source.session.endpoint)
            self._adverts.add(source, now_ns)

    def withdraw(self, source: SourceAdvert, now_ns: int) -> None:
        """Stops advertising a source, and announces its end."""
        del now_ns
        if self._adverts.remove(source):
            self._offered.remove(source)
            if self._terms.send_final_advertisements:
                self._withdrawn.setdefault(source.session.session_id, {})[source.topic_number] = None

    def offers(self, topic: str) -> bool:
        """Returns whether it advertises a source of a topic, so that contexts which it does not know may join."""
        return any(True for _ in self._offered.of(topic))

    def want(self, topic: str, now_ns: int) -> None:
        """Looks for a topic from now on; further calls for the topic have no effect."""
        if topic not in self._wanted:
            self._wanted[topic] = None
            if not self._cache.is_fresh(topic):
                self._queries.add(topic, now_ns)

    def unwant(self, topic: str) -> None:
        """Stops looking for a topic."""
        self._wanted.pop(topic, None)
        self._queries.remove(topic)

    def want_pattern(self, pattern: str, now_ns: int) -> None:
        """Looks for the topics that match a pattern from now on; further calls for the pattern have no effect."""
        self._wildcards.add(pattern, now_ns)
        self._beginnings = tuple(map(literal_prefix, self._wildcards))

    def unwant_pattern(self, pattern: str) -> None:
        """Stops looking for the topics that match a pattern."""
        self._wildcards.remove(pattern)
        self._beginnings = tuple(map(literal_prefix, self._wildcards))

    def refresh(self, now_ns: int) -> None:
        """Sends all adverts and queries again at once, because new contexts may be in reach."""
        for source in self._adverts:
            self._adverts.ask(source, now_ns, 0, SUSTAIN)
        self._ask_again(now_ns)
        for pattern in self._wildcards:
            self._wildcards.restart(pattern, 0, now_ns)

    def close(self, now_ns: int) -> list[bytes]:
        """Ends the resolution, and returns the last datagrams to send; no other method may be called after it."""
        del now_ns
        advertised = bool(len(self._adverts)) or bool(self._withdrawn)
        self._out.clear()
        if advertised and self._terms.send_final_advertisements:
            self._send(resolution_packets.final(self._head(), ()))
        return self.take()

    # ---- received datagrams, and the time

    def receive(self, packet: bytes, address: object, now_ns: int) -> None:
        """Handles a received datagram.

        Args:
            packet: any bytes.
            address: its sender, in the form of sockets: a tuple that begins with a numeric host.
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
        """Makes the datagrams that are due, and forgets old adverts."""
        self._cache.turn(now_ns)
        self._follow_cache(now_ns)
        if self._prefixes and now_ns >= self._prefixes_ns:
            self._answer_patterns(now_ns)
        if self._withdrawn and self._adverts.pace(SUSTAIN).free_ns <= now_ns:
            self._send_final(now_ns)
        for lane in LANES:
            while self._adverts.ready(lane, now_ns):
                self._advertise(lane, now_ns)
            while self._queries.ready(lane, now_ns):
                texts = self._gather(self._queries, lane, now_ns)
                packet = self._send(resolution_packets.query(self._head(), texts))
                self._queries.pace(lane).count(len(texts), len(packet), now_ns)
        while self._wildcards.ready(INITIAL, now_ns):
            texts = self._gather(self._wildcards, INITIAL, now_ns)
            packet = self._send(
                resolution_packets.wildcard_query(self._head(), dict.fromkeys(map(literal_prefix, texts)))
            )
            self._wildcards.pace(INITIAL).count(len(texts), len(packet), now_ns)

    @property
    def next_ns(self) -> int | None:
        """When to call `turn`; None if nothing is due before the next call of another method."""
        times = [self._cache.next_ns, self._adverts.next_ns, self._queries.next_ns, self._wildcards.next_ns]
        if self._prefixes:
            times.append(self._prefixes_ns)
        if self._withdrawn:
            times.append(self._adverts.pace(SUSTAIN).free_ns)
        return min((time for time in times if time is not None), default=None)

    def take(self) -> list[bytes]:
        """Returns the datagrams to send to all other contexts now."""
        found, self._out = self._out, []
        return found

    # ---- the sources of other contexts

    def sources(self) -> Offers:
        """Returns the sessions of other contexts, each with its topics by number; the caller must not change them."""
        return self._cache.sources()

    def contexts(self) -> dict[int, int]:
        """Returns the pids of the contexts that have sources, by context id."""
        return self._cache.contexts()

    @property
    def changes(self) -> int:
        """A number that changes with `sources`."""
        return self._cache.changes

    @property
    def counts(self) -> ResolutionCounts:
        """The counters of this context."""
        counts = self._counts
        counts.tr_src_topics = len(self._cache)
        counts.tr_rcv_topics = len(self._wanted)
        counts.tr_rcv_unresolved_topics = sum(topic not in self._cache for topic in self._queries)
        counts.dgrams_dropped_old, counts.adverts_refused = self._cache.old, self._cache.refused
        return counts

    # ---- received packets

    def _heard(self, found: resolution_packets.Packet, address: object, now_ns: int) -> None:
        if now_ns - self._heard_ns > SILENCE_NS:
            self._ask_again(now_ns)
        self._heard_ns = now_ns
        if isinstance(found, resolution_packets.Query):
            self._asked(found.topics, now_ns)
        elif isinstance(found, resolution_packets.WildcardQuery):
            self._asked_for_patterns(found.prefixes)
        else:
            self._advertised(found, address, now_ns)

    def _count_fault(self, packet: bytes) -> None:
        fault = resolution_packets.fault_of_head(packet)
        if fault == "ver":
            self._counts.tr_dgrams_dropped_ver += 1
        elif fault == "type":
            self._counts.tr_dgrams_dropped_type += 1
        else:
            self._counts.tr_dgrams_dropped_malformed += 1

    def _advertised(self, found: resolution_packets.Packet, address: object, now_ns: int) -> None:
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
        """Starts queries for topics that have lost their sources or may lose them soon, and ends queries for others."""
        for topic in self._cache.take_changed():
            matching = topic in self._cache and topic.startswith(self._beginnings)
            if (topic in self._wanted or matching) and not self._cache.is_fresh(topic):
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
        """Notes the prefixes for `turn`, because one search of all topics for each cheap query would cost too much."""
        for prefix in prefixes if self._terms.advertisement_send_immediate_response else ():
            self._prefixes[prefix] = None
            if not prefix or len(self._prefixes) > _PREFIXES_MAX:
                self._prefixes = {"": None}
                return

    def _answer_patterns(self, now_ns: int) -> None:
        at_ns = now_ns + self._random.randrange(JITTER_NS)
        for source in self._offered.with_prefix(self._prefixes):
            self._adverts.ask(source, at_ns, WILDCARD_FRESH_NS)
        self._prefixes.clear()
        self._prefixes_ns = now_ns + WILDCARD_NS

    # ---- sent packets

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

    def _advertise(self, lane: int, now_ns: int) -> None:
        """Sends an advert with the sources that are due, as many as fit."""
        groups: dict[SessionAdvert, dict[int, str]] = {}
        retaining = set()
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
            if source.retains:
                retaining.add((source.session.session_id, source.topic_number))
            self._adverts.sent(lane, now_ns)
        packed = [(self._offered.packed(session), topics) for session, topics in groups.items()]
        ttl = self._offered.ttl(self._terms)
        packet = self._send(resolution_packets.advert(self._head(), ttl, packed, retaining))
        self._adverts.pace(lane).count(count, len(packet), now_ns)

    def _gather(self, schedule: Schedule[str], lane: int, now_ns: int) -> list[str]:
        """Returns the texts that are due, as many as fit."""
        found: list[str] = []
        room = self._room
        while (text := schedule.first(lane, now_ns)) is not None:
            room -= resolution_packets.text_size(text)
            if room < 0 and found:
                break
            found.append(text)
            schedule.sent(lane, now_ns)
        return found

    def _send_final(self, now_ns: int) -> None:
        """Sends a final advert of the withdrawn sources, as many as fit."""
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
        self._adverts.pace(SUSTAIN).count(count, len(packet), now_ns)

    def _forget_withdrawal(self, source: SourceAdvert) -> None:
        numbers = self._withdrawn.get(source.session.session_id, {})
        numbers.pop(source.topic_number, None)
        if not numbers:
            self._withdrawn.pop(source.session.session_id, None)


def _host(address: object) -> str:
    """Returns the host of a socket address in the form of adverts; empty if it has none."""
    if not isinstance(address, tuple) or not address or not isinstance(address[0], str):
        return ""
    try:
        found = ipaddress.ip_address(address[0].partition("%")[0])
    except ValueError:
        return ""
    return str(getattr(found, "ipv4_mapped", None) or found)
