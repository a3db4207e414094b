"""What the own context publishes over the network, as its adverts tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipcbus.wire import resolution_packets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ipcbus.resolution.local.adverts import Endpoint, SessionAdvert, SourceAdvert
    from ipcbus.resolution.network.resolution_settings import ResolutionSettings

_NS = 1_000_000_000

TOLD_TIMES: Final = 3.5
"""An advert holds for so many times the longest time until it is told again: three may be lost."""


class _Carrier:
    """A session, and how many topics it carries."""

    __slots__ = ("count", "size", "told")

    def __init__(self, told: resolution_packets.Session) -> None:
        self.told = told
        self.size = resolution_packets.session_size(told)
        self.count = 0


class AdvertisedSources:
    """Sources by their topics, and the sessions that carry them."""

    def __init__(self) -> None:
        """Nothing is published."""
        self._carriers: dict[SessionAdvert, _Carrier] = {}
        self._by_topic: dict[str, dict[SourceAdvert, None]] = {}
        self._bytes = 0
        self._count = 0

    def add(self, source: SourceAdvert, endpoint: Endpoint) -> None:
        """One more, reached there."""
        sources = self._by_topic.setdefault(source.topic, {})
        if source in sources:
            return
        sources[source] = None
        carrier = self._carriers.get(source.session)
        if carrier is None:
            carrier = self._carriers[source.session] = _Carrier(_told(source.session, endpoint))
            self._bytes += carrier.size
        carrier.count += 1
        self._bytes += resolution_packets.topic_size(source.topic)
        self._count += 1

    def remove(self, source: SourceAdvert) -> None:
        """One less."""
        sources = self._by_topic[source.topic]
        del sources[source]
        if not sources:
            del self._by_topic[source.topic]
        carrier = self._carriers[source.session]
        carrier.count -= 1
        self._bytes -= resolution_packets.topic_size(source.topic)
        self._count -= 1
        if not carrier.count:
            self._bytes -= self._carriers.pop(source.session).size

    def of(self, topic: str) -> Iterable[SourceAdvert]:
        """Returns the sources of a topic."""
        return self._by_topic.get(topic, ())

    def beginning(self, prefixes: Iterable[str]) -> Iterator[SourceAdvert]:
        """Yields the sources of all topics that begin with one of these."""
        wanted = tuple(prefixes)
        for topic, sources in self._by_topic.items():
            if topic.startswith(wanted):
                yield from sources

    def told(self, session: SessionAdvert) -> resolution_packets.Session:
        """Returns a session as an advert tells it."""
        return self._carriers[session].told

    def size(self, session: SessionAdvert) -> int:
        """Bytes of a session in an advert."""
        return self._carriers[session].size

    def ttl(self, terms: ResolutionSettings) -> int:
        """For how many seconds an advert holds: longer than it takes to tell all, as fast as the limits allow."""
        round_ns = max(terms.advertisement_sustain_interval, terms.advertisement_quiescent_interval)
        if terms.sustain_advertisement_bps:
            round_ns = max(round_ns, self._bytes * 8 * _NS // terms.sustain_advertisement_bps)
        if terms.sustain_advertisements_per_second:
            round_ns = max(round_ns, self._count * _NS // terms.sustain_advertisements_per_second)
        return min(resolution_packets.TTL_MAX, int(TOLD_TIMES * round_ns / _NS) + 1)


def _told(session: SessionAdvert, endpoint: Endpoint) -> resolution_packets.Session:
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
    )
