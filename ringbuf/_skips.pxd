# Going back in a ring: where the memory of long records is used again soon, it is still in the processor's caches.
#
# A writer that goes on to the end of the ring before it uses memory again sees all of it leave the caches, if the ring is
# larger than they are. So a writer of long records goes back to where its round began as soon as the readers have read
# the records there. It publishes a skip where it left, which leads the readers:
#
#     | a (read)       | b (not read) | skip |
#     | c   | <- head
#
# What a ring of this size promises holds at each moment. If no reader takes anything from now on, the writer cannot write
# over b and the skip. It then puts a second skip before them, and goes on behind them:
#
#     | c   | 2nd skip | b (not read) | skip | d | <- head
#
# What lies before b then stays unused until all readers have passed the first skip, and b's memory until they have passed
# the second one. So c, d and what follows up to the next round must be enough for what is promised: a round is no longer
# than `longest_round`. Only where all readers have passed all skips does the writer go back again.
#
# Positions go on: a skip counts the bytes that it passes over, so that the memory of a position is its remainder modulo the
# capacity, and a writer may be two rings ahead of a reader that has not passed both skips.
from libc.stdint cimport uint64_t

from ringbuf._layout cimport RECORD_HEADER
from ringbuf.ring cimport NO_SKIP, Writer

cdef enum:
    STEP_BACK = 64      # a round begins this much before the last one: room for the second skip after records of equal length
    SPARE = 256         # more than the skips and the steps back take


cdef inline uint64_t longest_round(const Writer *w, uint64_t need) noexcept nogil:
    """Returns the most bytes of a round after which a record of `need` bytes may go back; 0 if none may."""
    cdef uint64_t free = w.mask + 1 + need
    return (free - w.promised - SPARE) & ~<uint64_t>(STEP_BACK - 1) if free > w.promised + SPARE + need else 0


cdef inline bint may_go_back(const Writer *w) noexcept nogil:
    """Returns whether the longest records can use the memory of two by turns."""
    return w.longest >= w.long_from and longest_round(w, w.longest) >= 2 * w.longest


cdef inline void skip_to(Writer *w, uint64_t position) noexcept nogil:
    w.skip_at, w.head = w.head, position


cdef inline void take_back(Writer *w) noexcept nogil:
    """Returns to where the head was before a skip that is not published, as nothing was published behind it."""
    if w.skip_at == NO_SKIP:
        return
    if w.head == w.second_skip_end:
        w.second_skip_end = 0
    else:
        w.round_begin = w.skip_end + STEP_BACK - (w.mask + 1)
        w.skip_end = 0
    w.head, w.skip_at = w.skip_at, NO_SKIP


cdef inline void go_back(Writer *w, uint64_t limit, uint64_t need) noexcept nogil:
    """Goes back to where the round began, if all readers have read enough there."""
    cdef uint64_t most = longest_round(w, need), place
    if need < w.long_from or need > w.longest or not may_go_back(w):
        return
    if w.head - w.round_begin > most:
        w.round_begin = w.head - most
    place = w.round_begin + w.mask + 1 - STEP_BACK
    if place < w.head + RECORD_HEADER or place + need > limit:
        return
    w.skip_begin, w.skip_end, w.round_begin = w.head, place, place
    skip_to(w, place)


cdef inline void go_behind(Writer *w, uint64_t limit, uint64_t need) noexcept nogil:
    """Goes to the memory behind the first skip, if the record does not fit before what is not read, but there."""
    cdef uint64_t capacity = w.mask + 1, place = w.skip_begin + RECORD_HEADER + capacity
    if w.head + need <= limit or w.head + RECORD_HEADER > limit or place + need > w.skip_end + capacity:
        return
    w.second_skip_end = place
    skip_to(w, place)


cdef inline uint64_t find_place(Writer *w, uint64_t slowest, uint64_t need) noexcept nogil:
    """Moves the head to where `need` bytes are to go, if no record is open; returns up to where may be written.

    A skip that is not published has been taken back.
    """
    cdef uint64_t capacity = w.mask + 1, limit = slowest + capacity
    if not w.used:
        if slowest >= w.skip_end:
            w.skip_end = 0
        if slowest >= w.second_skip_end:
            w.second_skip_end = 0
        if not w.skip_end and not w.second_skip_end:
            go_back(w, limit, need)
        elif not w.second_skip_end:
            go_behind(w, limit, need)
    if slowest < w.skip_end and w.second_skip_end:
        limit = w.skip_end + capacity
    # The next long record is to ask again.
    return min(limit, w.head + need + w.long_from // 2)
