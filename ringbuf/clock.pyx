# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Ticks and their conversion; the stub has the documentation."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pathlib import Path

KIND_MONOTONIC = 0
KIND_TSC = 1

cdef uint32_t _kind = 0
cdef double _ns_per_tick = 1.0
cdef uint64_t _first_ticks = 0, _first_ns = 0
cdef uint64_t _anchor_ticks = 0
cdef int64_t _anchor_epoch_ns = 0


cdef uint32_t clock_kind() noexcept:
    return _kind


cdef double ns_per_tick() noexcept:
    return _ns_per_tick


cdef int64_t epoch_ns(uint64_t ticks) noexcept:
    return _anchor_epoch_ns + <int64_t>(<double>(<int64_t>(ticks - _anchor_ticks)) * _ns_per_tick)


cdef uint64_t ticks_of(int64_t epoch) noexcept:
    cdef double passed = <double>epoch - <double>_anchor_epoch_ns
    # A peer may send any number as a time; a time that is decades away would not fit.
    passed = min(max(passed, -1e18), 1e18)
    return _anchor_ticks + <uint64_t><int64_t>(passed / _ns_per_tick)


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
    global _ns_per_tick, _anchor_ticks, _anchor_epoch_ns
    cdef uint64_t now_ticks = 0, now_ns = 0
    _pair(&now_ticks, &now_ns)
    if _kind and now_ticks > _first_ticks:
        _ns_per_tick = <double>(now_ns - _first_ns) / <double>(now_ticks - _first_ticks)
    _anchor_epoch_ns = <int64_t>(realtime_ns) - <int64_t>(monotonic_ns - now_ns)
    _anchor_ticks = now_ticks


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
    return _ns_per_tick


def ticks_to_epoch_ns(uint64_t ticks):
    return epoch_ns(ticks)


_start()
