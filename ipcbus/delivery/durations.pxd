# The shortest, the longest and the mean of many durations.
from libc.stdint cimport uint64_t

from ringbuf.clock cimport ns_per_tick


cdef struct Durations:
    uint64_t count, least, greatest, sum    # in ticks


cdef inline void add_duration(Durations *spread, uint64_t ticks) noexcept:
    if spread.count == 0 or ticks < spread.least:
        spread.least = ticks
    if ticks > spread.greatest:
        spread.greatest = ticks
    spread.sum += ticks
    spread.count += 1


cdef inline object seconds(Durations *spread):
    """Returns the least, the mean and the greatest in seconds; None without any."""
    cdef double second = 1e-9 * ns_per_tick()
    if spread.count == 0:
        return None
    return spread.least * second, spread.sum * second / spread.count, spread.greatest * second
