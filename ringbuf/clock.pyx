# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Ticks and their conversion; the stub has the documentation."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ringbuf cimport _atomics

from pathlib import Path

KIND_MONOTONIC = 0
KIND_TSC = 1

cdef uint32_t _kind = 0
cdef uint64_t _first_ticks = 0, _first_ns = 0

cdef enum:
    RATES = 16      # recalibrations until memory is used again that a thread may just read

cdef struct Rate:
    double ns_per_tick
    uint64_t anchor_ticks
    int64_t anchor_epoch_ns

cdef Rate _rates[RATES]
cdef uint32_t _rate = 0         # which of them counts
cdef uint32_t _recalibrates = 0 # whether a thread writes the next one

_rates[0].ns_per_tick = 1.0


cdef inline const Rate *rate() noexcept:
    return &_rates[_atomics.load_acquire32(&_rate)]  # SYNC rate


cdef uint32_t clock_kind() noexcept:
    return _kind


cdef double ns_per_tick() noexcept:
    return rate().ns_per_tick


cdef int64_t epoch_ns(uint64_t ticks) noexcept:
    cdef const Rate *now = rate()
    return now.anchor_epoch_ns + <int64_t>(<double>(<int64_t>(ticks - now.anchor_ticks)) * now.ns_per_tick)


cdef uint64_t ticks_of(int64_t epoch) noexcept:
    cdef const Rate *now = rate()
    cdef double passed = <double>epoch - <double>now.anchor_epoch_ns
    # A peer may send any number as a time; a time that is decades away would not fit.
    passed = min(max(passed, -1e18), 1e18)
    return now.anchor_ticks + <uint64_t><int64_t>(passed / now.ns_per_tick)


def _tsc_is_stable():
    """Returns whether the kernel trusts the counter: it does not stop, change its rate, or count as unstable."""
    if not HAVE_TSC:
        return False
    try:
        source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return source in ("tsc", "kvm-clock") and "constant_tsc" in flags and "nonstop_tsc" in flags


cdef void _pair(uint64_t *at_ticks, uint64_t *at_ns) noexcept:
    # The shortest of a few intervals between two reads of the counter limits the error of the pair.
    cdef uint64_t best = <uint64_t>-1, before, after, now
    cdef int _
    for _ in range(5):
        before = read_ticks(_kind)
        now = monotonic_ns
        after = read_ticks(_kind)
        if after - before < best:
            best = after - before
            at_ticks[0] = before + (after - before) // 2
            at_ns[0] = now


def recalibrate():
    cdef uint64_t now_ticks = 0, now_ns = 0
    cdef uint32_t following
    cdef Rate *made
    if not _atomics.cas32(&_recalibrates, 0, 1):
        return      # another thread does it
    following = (_rate + 1) % RATES
    made = &_rates[following]
    _pair(&now_ticks, &now_ns)
    made.ns_per_tick = rate().ns_per_tick
    if _kind and now_ticks > _first_ticks:
        made.ns_per_tick = <double>(now_ns - _first_ns) / <double>(now_ticks - _first_ticks)
    made.anchor_epoch_ns = <int64_t>(realtime_ns) - <int64_t>(monotonic_ns - now_ns)
    made.anchor_ticks = now_ticks
    _atomics.store_release32(&_rate, following)  # SYNC rate
    _atomics.store_release32(&_recalibrates, 0)


def _start():
    global _kind, _first_ticks, _first_ns
    cdef uint64_t until
    _kind = 1 if _tsc_is_stable() else 0
    _pair(&_first_ticks, &_first_ns)
    # After two milliseconds the error of the rate is about 20 ppm; recalibrate() reduces it.
    until = _first_ns + 2_000_000
    while monotonic_ns < until:
        pass
    recalibrate()


def kind():
    return _kind


def ticks():
    return read_ticks(_kind)


def tick_ns():
    return ns_per_tick()


def ticks_to_epoch_ns(uint64_t ticks):
    return epoch_ns(ticks)


_start()
