from libc.stdint cimport uint64_t

cdef enum:
    COUNT_BITS = 18

cdef inline uint64_t place_of(uint64_t first, uint64_t count) noexcept:
    if first >> (64 - COUNT_BITS) or count >> COUNT_BITS:
        return 0
    return first << COUNT_BITS | count


cdef inline uint64_t count_of(uint64_t place) noexcept:
    """Returns how many numbers a message has; 0: they are not known."""
    return place & ((1 << COUNT_BITS) - 1)


cdef inline uint64_t first_of(uint64_t place) noexcept:
    return place >> COUNT_BITS
