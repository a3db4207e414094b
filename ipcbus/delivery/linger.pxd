from libc.stdint cimport uint32_t, uint64_t

from ringbuf.poller cimport Poller

cdef extern from "<sys/epoll.h>":
    ctypedef union epoll_data_t:
        int fd
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_wait(int epoll, epoll_event *events, int most, int timeout_ms) nogil

cdef class Linger:
    cdef readonly uint64_t longest  # ticks; 0: every wait sleeps at once
    cdef uint64_t free              # ticks of the sleep that a spin which finds a message saves
    cdef uint64_t next              # when the next spin may begin
    cdef uint32_t short_sleeps      # in a row
    cdef uint32_t after             # short sleeps that a spin has to follow; 0 while spins find messages

    cdef bint spin(self, Poller poller, uint64_t now, uint64_t until) except -1
    cdef bint look(
        self, Poller poller, int epoll, epoll_event *events, int most, int *count, uint64_t now, uint64_t until
    ) except -1
    cpdef uint64_t allowed(self, uint64_t now) noexcept
    cpdef void spun(self, uint64_t now, uint64_t ticks, bint found) noexcept
    cpdef void slept(self, uint64_t ticks) noexcept
