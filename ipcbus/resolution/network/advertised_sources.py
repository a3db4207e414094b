"""The sources of this context that it advertises over the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipcbus.wire import resolution_packets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ipcbus.resolution.local.adverts import Endpoint, SessionAdvert, SourceAdvert
    from ipcbus.resolution.network.resolution_settings import ResolutionSettings

_NS = 1_000_000_000

TTL_ROUNDS: Final = 3.5
"""An advert holds for this many times the longest time to its repetition, so that three repetitions may be lost."""


class _Session:
    """A session in the form of adverts, and the number of its topics."""

    __slots__ = ("count", "packed", "size")

    def __init__(self, packed: resolution_packets.Session) -> None:
        self.packed = packed
        self.size = resolution_packets.session_size(packed)
        self.count = 0


class AdvertisedSources:
    """Sources by topic, and the sessions that carry them."""

    def __init__(self) -> None:
        self._sessions: dict[SessionAdvert, _Session] = {}
        self._by_topic: dict[str, dict[SourceAdvert, None]] = {}
        self._bytes = 0
        self._count = 0

    def add(self, source: SourceAdvert, endpoint: Endpoint) -> None:
        """Adds a source whose session has this endpoint."""
        sources = self._by_topic.setdefault(source.topic, {})
        if source in sources:
            return
        sources[source] = None
        session = self._sessions.get(source.session)
        if session is None:
            session = self._sessions[source.session] = _Session(_packed(source.session, endpoint))
            self._bytes += session.size
        session.count += 1
        self._bytes += resolution_packets.topic_size(source.topic)
        self._count += 1

    def remove(self, source: SourceAdvert) -> None:
        """Removes a source, and its session with the last one."""
        sources = self._by_topic[source.topic]
        del sources[source]
        if not sources:
            del self._by_topic[source.topic]
        session = self._sessions[source.session]
        session.count -= 1
        self._bytes -= resolution_packets.topic_size(source.topic)
        self._count -= 1
        if not session.count:
            self._bytes -= self._sessions.pop(source.session).size

    def of(self, topic: str) -> Iterable[SourceAdvert]:
        """Returns the sources of a topic."""
        return self._by_topic.get(topic, ())

    def with_prefix(self, prefixes: Iterable[str]) -> Iterator[SourceAdvert]:
        """Yields the sources of all topics that begin with one of the prefixes."""
        beginnings = tuple(prefixes)
        for topic, sources in self._by_topic.items():
            if topic.startswith(beginnings):
                yield from sources

    def packed(self, session: SessionAdvert) -> resolution_packets.Session:
        """Returns a session in the form of adverts."""
        return self._sessions[session].packed

    def size(self, session: SessionAdvert) -> int:
        """Returns the size of a session in an advert, in bytes."""
        return self._sessions[session].size

    def ttl(self, terms: ResolutionSettings) -> int:
        """Returns for how many seconds an advert holds: longer than a round of all adverts takes within the limits."""
        round_ns = max(terms.advertisement_sustain_interval, terms.advertisement_quiescent_interval)
        if terms.sustain_advertisement_bps:
            round_ns = max(round_ns, self._bytes * 8 * _NS // terms.sustain_advertisement_bps)
        if terms.sustain_advertisements_per_second:
            round_ns = max(round_ns, self._count * _NS // terms.sustain_advertisements_per_second)
        return min(resolution_packets.TTL_MAX, int(TTL_ROUNDS * round_ns / _NS) + 1)


def _packed(session: SessionAdvert, endpoint: Endpoint) -> resolution_packets.Session:
    return resolution_packets.Session(
        session.transport,
        session.source_paced,
        session.topics_max,
        session.session_id,
        session.local,
        session.transport_id,
        session.window,
        endpoint.host,
        endpoint.port,
        endpoint.group,
        endpoint.group_port,
        endpoint.tcp,
    )
