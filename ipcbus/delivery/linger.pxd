from libc.stdint cimport uint32_t, uint64_t

from ringbuf.poller cimport Poller

cdef class Linger:
    cdef readonly uint64_t longest  # ticks; 0: every wait sleeps at once
    cdef uint64_t free              # ticks that cost less than the sleep
    cdef uint64_t next              # when the next spin may begin
    cdef uint32_t short_sleeps      # in a row
    cdef uint32_t after             # short sleeps that a spin has to follow; 0 while spins find messages

    cdef bint spin(self, Poller poller, uint64_t now, uint64_t until) except -1
    cpdef uint64_t allowed(self, uint64_t now) noexcept
    cpdef void spun(self, uint64_t now, uint64_t ticks, bint found) noexcept
    cpdef void slept(self, uint64_t ticks) noexcept
