from libc.stdint cimport uint64_t

from ringbuf.poller cimport Poller

cdef class Pump:
    cdef list demuxes
    cdef readonly Poller poller
    cdef public unsigned long owner     # ident of the thread that drives, or 0
    cdef public object pending          # what a callback raised and the thread that drives raises when it stops, or None
    cdef public bint attention          # a session needs looking after
    cdef public bint open               # `quick` may drive
    cdef public bint wanted             # another thread waits to be the driver
    cdef uint64_t timer_ticks
    cdef long share                     # messages that each session may give in a pass
    cdef uint64_t long_pass             # ticks after which a pass was too long

    cdef void adapt(self, long handled, uint64_t ticks) noexcept
    cdef long turn(self, uint64_t began, uint64_t until, uint64_t loops, bint once) except -1
