# cython: language_level=3
"""Two processes that each store a word and then load the other's; compiled by tests/stress/test_fence.py."""
from libc.stdint cimport uint64_t

from ringbuf cimport _atomics

cdef extern from "sched.h" nogil:
    int sched_yield()

cdef enum:
    LINE = 128          # bytes between words, so that no two share a line of the cache
    SPINS = 2000        # before the processor is offered to others
    SPREAD = 200        # turns at most between a meeting and the store


cdef inline void meet(char *mine, char *other, uint64_t step) noexcept nogil:
    cdef uint64_t spins = 0
    _atomics.store_release64(mine, step)
    while _atomics.load_acquire64(other) < step:
        spins += 1
        _atomics.pause()
        if spins % SPINS == 0:
            sched_yield()


def run(unsigned char[::1] shared, int which, bint full, uint64_t first, uint64_t rounds):
    """Goes through rounds with the other process; returns in how many of them neither saw what the other stored.

    Args:
        shared: six lines: the two words, the two places where the sides meet, and what each of them saw.
        which: 0 or 1, another one in the other process.
        full: whether the full fence stands between the store and the load; else the fences that would stand there if
            it were weakened to acquire and release.
        first: the number of the first round; each is used once.
        rounds: how many.
    """
    cdef char *base = <char *>&shared[0]
    cdef char *mine = base + which * LINE
    cdef char *other = base + (1 - which) * LINE
    cdef char *here = mine + 2 * LINE
    cdef char *there = other + 2 * LINE
    cdef char *saw = mine + 4 * LINE
    cdef char *seen = other + 4 * LINE
    cdef uint64_t number, turn, lost = 0, seed = first * 2 + which + 1
    with nogil:
        for number in range(first, first + rounds):
            meet(here, there, 2 * number)
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL
            for turn in range((seed >> 33) % SPREAD):
                _atomics.compiler_fence()
            _atomics.store_relaxed64(mine, number)
            if full:
                _atomics.fence_full()
            else:
                _atomics.fence_acquire()
                _atomics.fence_release()
            _atomics.store_relaxed64(saw, _atomics.load_relaxed64(other))
            meet(here, there, 2 * number + 1)
            lost += _atomics.load_relaxed64(saw) != number and _atomics.load_relaxed64(seen) != number
    return lost
