"""The phases of adverts and queries, and their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipcbus.resolution.network.advert_pacing import AdvertPacing, Phase, Schedule

if TYPE_CHECKING:
    from ipcbus.resolution.local.adverts import SourceAdvert
    from ipcbus.resolution.network.resolution_settings import ResolutionSettings

INITIAL, SUSTAIN, QUIESCENT = range(3)
"""Phases. There are two lanes: `INITIAL` for the first phase, `SUSTAIN` for the others."""
LANES: Final = (INITIAL, SUSTAIN)

_MS = 1_000_000
_TICKS = (0, 100 * _MS, 1000 * _MS)

TICK_MAX_NS: Final = max(_TICKS)
"""Longest tick, in ns."""


def adverts(terms: ResolutionSettings, offset_ns: int) -> Schedule[SourceAdvert]:
    """Returns the schedule of adverts."""
    initial = Phase(
        _some(terms.advertisement_minimum_initial_interval),
        _some(terms.advertisement_maximum_initial_interval),
        _some(terms.advertisement_minimum_initial_duration),
        INITIAL,
    )
    sustain_ns, duration_ns = terms.advertisement_sustain_interval, terms.advertisement_minimum_sustain_duration
    lanes = (
        AdvertPacing(terms.initial_advertisements_per_second, terms.initial_advertisement_bps),
        AdvertPacing(terms.sustain_advertisements_per_second, terms.sustain_advertisement_bps),
    )
    return Schedule((initial, _sustain(sustain_ns, duration_ns), _quiescent(terms)), lanes, offset_ns)


def queries(terms: ResolutionSettings, offset_ns: int) -> Schedule[str]:
    """Returns the schedule of queries for topics."""
    initial = Phase(
        _some(terms.query_minimum_initial_interval),
        _some(terms.query_maximum_initial_interval),
        _some(terms.query_minimum_initial_duration),
        INITIAL,
    )
    lanes = (
        AdvertPacing(terms.initial_queries_per_second, terms.initial_query_bps),
        AdvertPacing(terms.sustain_queries_per_second, terms.sustain_query_bps),
    )
    sustain = _sustain(terms.query_sustain_interval, terms.query_minimum_sustain_duration)
    return Schedule((initial, sustain, _quiescent(terms)), lanes, offset_ns)


def wildcards(terms: ResolutionSettings, offset_ns: int) -> Schedule[str]:
    """Returns the schedule of queries for patterns, which ends, because sources repeat their adverts without end."""
    only = Phase(
        _some(terms.wildcard_query_minimum_interval),
        _some(terms.wildcard_query_maximum_interval),
        _some(terms.wildcard_query_minimum_duration),
        INITIAL,
    )
    return Schedule((only,), (AdvertPacing(terms.wildcard_queries_per_second, terms.wildcard_query_bps),), offset_ns)


def _sustain(interval_ns: int, duration_ns: int) -> Phase:
    return Phase(_some(interval_ns), _some(interval_ns), _some(duration_ns), SUSTAIN, _TICKS[SUSTAIN])


def _quiescent(terms: ResolutionSettings) -> Phase:
    interval_ns = _some(terms.advertisement_quiescent_interval)
    return Phase(interval_ns, interval_ns, 0, SUSTAIN, _TICKS[QUIESCENT])


def _some(time_ns: int) -> int:
    """Returns a time of at least 1 ms, so that no entry is due again at once."""
    return max(_MS, time_ns)
