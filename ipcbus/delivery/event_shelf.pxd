from libc.stdint cimport uint64_t

from ipcbus.delivery.message cimport Message
from ipcbus.delivery.sink cimport Sink


cdef class Entry:
    cdef Sink sink
    cdef Message message
    cdef uint64_t number    # of arrival, over messages and events
    cdef uint64_t ticks     # when it arrived; 0 when nobody wants to know
    cdef Entry next


cdef class Chain:
    cdef Entry first, last

    cdef void append(self, Entry entry) noexcept
    cdef Entry pop(self)


cdef struct Spread:
    uint64_t count, least, most, sum    # of ticks


cdef class EventShelf:
    cdef object keeper, sleepers
    cdef Chain messages, events         # apart, so that the oldest message is always the first of a chain
    cdef readonly uint64_t maximum
    cdef bint drops, times_age, times_service, counts
    cdef bint room_wanted               # somebody was told that it is full
    cdef bint crowded, late             # a limit was crossed and told of
    cdef readonly bint closed
    cdef uint64_t size, size_warning, delay_warning_ns
    cdef readonly uint64_t total, dropped, dispatched
    cdef uint64_t[128] waiting          # by kind
    cdef Spread age_spread, service_spread

    cdef void leave(self, Entry entry) noexcept
    cdef void drop(self, Entry entry) noexcept
    cdef void drop_all(self, Entry entry) noexcept
    cdef Entry take(self)
    cdef int note_age(self, uint64_t ticks) except -1
