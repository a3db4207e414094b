from __future__ import annotations

from ipcbus.resolution.local.adverts import Endpoint, SessionAdvert, SourceAdvert
from ipcbus.resolution.network.advertised_sources import TTL_ROUNDS, AdvertisedSources
from ipcbus.resolution.network.resolution_settings import ResolutionSettings
from ipcbus.wire import resolution_packets, wire_layout

SECOND = 1_000_000_000
WHERE = Endpoint("10.0.0.1", 14380)
SESSION = SessionAdvert(1, 2, wire_layout.TRANSPORT_LBTRU, 9, 3, 1 << 20, True, 64, WHERE)
FAST = {"advertisement_sustain_interval": SECOND, "advertisement_quiescent_interval": SECOND}


def offered(count: int) -> AdvertisedSources:
    found = AdvertisedSources()
    for number in range(count):
        found.add(SourceAdvert(SESSION, f"topic {number:04}", number), WHERE)
    return found


def test_an_advert_holds_until_it_is_told_again_however_slowly_that_is() -> None:
    """As long as some rounds of the interval, of the bytes at their limit, or of the topics at theirs take."""
    found = offered(1000)
    size = found.size(SESSION) + 1000 * resolution_packets.topic_size("topic 0000")
    none = {"sustain_advertisement_bps": 0, "sustain_advertisements_per_second": 0}
    assert found.ttl(ResolutionSettings(**FAST, **none)) == int(TTL_ROUNDS) + 1
    by_bits = {**none, "sustain_advertisement_bps": size * 8 // 10}
    assert found.ttl(ResolutionSettings(**FAST, **by_bits)) == int(TTL_ROUNDS * 10) + 1
    by_count = {**none, "sustain_advertisements_per_second": 50}
    assert found.ttl(ResolutionSettings(**FAST, **by_count)) == int(TTL_ROUNDS * 20) + 1


def test_what_is_not_offered_any_more_makes_no_advert_hold_longer() -> None:
    found = offered(100)
    for source in [each for number in range(100) for each in found.of(f"topic {number:04}")]:
        found.remove(source)
    slow = {"sustain_advertisement_bps": 1, "sustain_advertisements_per_second": 1}
    assert found.ttl(ResolutionSettings(**FAST, **slow)) == int(TTL_ROUNDS) + 1
