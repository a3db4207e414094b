from libc.stdint cimport uint64_t

from ipcbus.delivery.received_message cimport Message
from ipcbus.delivery.sink cimport Sink


cdef class Entry:
    cdef Sink sink
    cdef Message message
    cdef uint64_t number    # of arrival, over messages and events
    cdef uint64_t ticks     # when it arrived; 0 when nobody wants to know
    cdef uint64_t reach     # of a loss at the front: up to here numbers are lost or were dropped
    cdef bint waits         # of an event: it is in the chain
    cdef bint void          # a beginning that is told no more, because an end came behind it
    cdef Entry next


cdef class Chain:
    cdef Entry first, last

    cdef void append(self, Entry entry) noexcept
    cdef Entry pop(self)


cdef class Tail:
    cdef Entry loss, ended, begun


cdef struct Spread:
    uint64_t count, least, most, sum    # of ticks


cdef class EventBuffer:
    cdef object keeper, sleepers
    cdef Chain messages, events         # apart, so that the oldest message is always the first of a chain
    cdef readonly uint64_t maximum
    cdef bint drops, times_age, times_service, counts
    cdef bint room_wanted               # somebody was told that it is full
    cdef bint crowded, late             # a limit was crossed and told of
    cdef readonly bint closed
    cdef dict rear                      # a Tail by sink and topic, of events behind every message; None without any
    cdef dict front                     # the last loss by sink and topic, of events before every message
    cdef Entry front_last               # the last event before every message
    cdef uint64_t came                  # numbers what comes
    cdef uint64_t data                  # messages that wait
    cdef uint64_t size, size_warning, delay_warning_ns
    cdef readonly uint64_t total, dropped, dispatched
    cdef uint64_t[128] waiting          # by kind
    cdef Spread age_spread, service_spread

    cdef void enter(self, Entry entry) noexcept
    cdef void leave(self, Entry entry) noexcept
    cdef bint joins(self, Entry entry, tuple key, Tail spare) except? True
    cdef void join(self, Entry waiting, Entry entry) noexcept
    cdef Entry drop_oldest(self)
    cdef int gather(self) except -1
    cdef Entry pop_event(self)
    cdef void drop(self, Entry entry) noexcept
    cdef void drop_all(self, Entry entry) noexcept
    cdef Entry take(self)
    cdef int note_age(self, uint64_t ticks) except -1
