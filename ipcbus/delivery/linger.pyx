# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Decides how long a wait spins before it sleeps; the stub has the documentation."""
cimport cython
from libc.stdint cimport uint32_t, uint64_t

from ringbuf.clock cimport clock_kind, ns_per_tick, read_ticks
from ringbuf.poller cimport Poller

cdef enum:
    SHARE = 8               # times its length a spin keeps the next one away
    SHORT = 2               # times the longest spin a short sleep takes at most
    AFTER_MAX = 256

cdef double SLEEP_NS = 2e4          # processor time of a sleep and its wake-up
cdef double NETWORK_SLEEP_NS = 5e4  # processor time of both sides for a sleep that a packet ends


def for_rings(uint64_t longest_ns):
    return Linger(<uint64_t>(<double>longest_ns / ns_per_tick()), <uint64_t>(SLEEP_NS / ns_per_tick()))


def for_network(uint64_t longest_ns):
    return Linger(<uint64_t>(<double>longest_ns / ns_per_tick()), <uint64_t>(NETWORK_SLEEP_NS / ns_per_tick()))


@cython.final
cdef class Linger:
    def __init__(self, uint64_t longest, uint64_t free):
        self.longest, self.free = longest, free
        self.after = 1

    cpdef uint64_t allowed(self, uint64_t now) noexcept:
        if self.short_sleeps < self.after or now < self.next:
            return 0
        return self.longest

    cdef bint spin(self, Poller poller, uint64_t now, uint64_t until) except -1:
        """Spins, where that pays, until there may be something to do; returns whether there is."""
        cdef uint64_t ticks = self.allowed(now)
        cdef uint32_t clock = clock_kind()
        cdef bint found
        if ticks == 0:
            return False
        until = min(until, now + ticks)
        with nogil:
            found = poller.wait(<uint64_t>-1, until, clock)
        ticks = read_ticks(clock)
        self.spun(ticks, ticks - now, found)
        return found

    cdef bint look(
        self, Poller poller, int epoll, epoll_event *events, int most, int *count, uint64_t now, uint64_t until
    ) except -1:
        """As `spin`, and looks at descriptors, too; `count` is how many events came; without a poller, at them alone."""
        cdef uint64_t ticks = self.allowed(now), began = now
        cdef uint32_t clock = clock_kind()
        cdef bint found = False, rings = poller is not None
        count[0] = 0
        if ticks == 0:
            return False
        until = min(until, now + ticks)
        with nogil:
            while count[0] <= 0 and not found and now < until:
                count[0] = epoll_wait(epoll, events, most, 0)
                found = rings and (poller.any_ready() or poller.any_word_changed())
                now = read_ticks(clock)
        found = found or count[0] > 0
        self.spun(now, now - began, found)
        return found

    cpdef void spun(self, uint64_t now, uint64_t ticks, bint found) noexcept:
        if found:
            ticks -= min(ticks, self.free)  # the sleep would have taken that
        self.next = now + SHARE * ticks
        self.short_sleeps = 0
        if found:
            self.after = 0
        else:
            self.after = min(2 * max(self.after, <uint32_t>1), <uint32_t>AFTER_MAX)

    cpdef void slept(self, uint64_t ticks) noexcept:
        if ticks > SHORT * self.longest:
            self.short_sleeps = 0
        elif self.short_sleeps < AFTER_MAX:
            self.short_sleeps += 1
