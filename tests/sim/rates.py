"""Whether a context keeps to the limits of its topic resolution, whatever span of time one looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.wire import resolution_packets

if TYPE_CHECKING:
    from ipcbus.resolution.network.resolution_settings import ResolutionSettings

_NS = 1_000_000_000


class _Bucket:
    """What was sent and has not run out yet, at a limit a second; over it when more than a full datagram is in it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._level = 0.0
        self._since_ns = 0
        self.largest = 0.0

    def put(self, amount: int, now_ns: int) -> bool:
        """Says whether that is still within the limit, with `largest` as the most that may come at once."""
        if not self._limit:
            return True
        self._level = max(0.0, self._level - self._limit * (now_ns - self._since_ns) / _NS)
        self._since_ns = now_ns
        before, self._level = self._level, self._level + amount
        self.largest = max(self.largest, amount)
        # Two lanes share this bucket; each may have one datagram in it.
        return before <= self.largest + 1


class RateWatch:
    """The datagrams of one context."""

    def __init__(self, terms: ResolutionSettings) -> None:
        """Nothing was sent."""
        adverts = (terms.initial_advertisements_per_second, terms.sustain_advertisements_per_second)
        self._bits = {
            resolution_packets.Advert: _Bucket(terms.initial_advertisement_bps + terms.sustain_advertisement_bps),
            resolution_packets.Query: _Bucket(terms.initial_query_bps + terms.sustain_query_bps),
            resolution_packets.WildcardQuery: _Bucket(terms.wildcard_query_bps),
        }
        self._things = {
            resolution_packets.Advert: _Bucket(_sum(*adverts)),
            resolution_packets.Query: _Bucket(_sum(terms.initial_queries_per_second, terms.sustain_queries_per_second)),
            resolution_packets.WildcardQuery: _Bucket(terms.wildcard_queries_per_second),
        }
        self._size_max = terms.datagram_max_size

    def sent(self, packet: bytes, now_ns: int) -> list[str]:
        """What is wrong with that."""
        found = resolution_packets.parse(packet)
        if found is None:
            return [f"{packet!r} was sent, which is none"]
        faults = []
        if len(packet) > self._size_max:
            faults.append(f"{len(packet)} bytes were sent")
        if isinstance(found, resolution_packets.FinalAdvert) and not found.groups:
            return faults  # the last word of a context waits for nothing
        kind = resolution_packets.Advert if isinstance(found, resolution_packets.FinalAdvert) else type(found)
        if not self._bits[kind].put(8 * len(packet), now_ns):  # type: ignore[index]
            faults.append(f"too many bits at {now_ns}")
        if not self._things[kind].put(_count(found), now_ns):  # type: ignore[index]
            faults.append(f"too many things at {now_ns}")
        return faults


def _sum(first: int, second: int) -> int:
    return first + second if first and second else 0


def _count(packet: resolution_packets.Packet) -> int:
    if isinstance(packet, resolution_packets.Advert):
        return sum(len(topics) for _, topics in packet.groups)
    if isinstance(packet, resolution_packets.FinalAdvert):
        return sum(len(numbers) for _, numbers in packet.groups)
    return len(packet.topics if isinstance(packet, resolution_packets.Query) else packet.prefixes)  # type: ignore[attr-defined]
