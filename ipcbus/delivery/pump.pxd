from libc.stdint cimport uint64_t

from ringbuf.poller cimport Poller

cdef class Pump:
    cdef list demuxes
    cdef readonly Poller poller
    cdef public unsigned long owner     # ident of the driver thread, or 0
    cdef public object pending_error    # a BaseException of a callback; the driver raises it when it stops
    cdef public bint attention          # a session needs attention
    cdef public bint quick_allowed      # `quick` may drive
    cdef public object look             # handles the watched words that have changed; returns the messages and events
    cdef public bint driver_waiting     # another thread waits to be the driver
    cdef uint64_t timer_ticks
    cdef long messages_per_pass         # most messages of a session in a pass
    cdef uint64_t long_pass             # ticks; a pass that takes longer was too long

    cdef void adapt(self, long taken, uint64_t ticks) noexcept
    cdef long loop(self, uint64_t began, uint64_t until, uint64_t loops, bint once) except -1
