from libc.stdint cimport uint64_t

from ipcbus.delivery.received_message cimport Message
from ipcbus.delivery.sink cimport Sink


cdef class Entry:
    cdef Sink sink
    cdef Message message
    cdef uint64_t number    # counts the arrivals of messages and events
    cdef uint64_t ticks     # when it arrived; 0 when ages are not measured
    cdef uint64_t lost_up_to    # for a loss at the front: the numbers up to this one are lost or were dropped
    cdef bint is_waiting        # for an event: it is in the chain
    cdef bint withdrawn         # a beginning that is not delivered, because an end arrived behind it
    cdef Entry next


cdef class Chain:
    cdef Entry first, last

    cdef void append(self, Entry entry) noexcept
    cdef Entry pop(self)


cdef class LastEvents:
    cdef Entry loss, ended, begun


cdef struct Durations:
    uint64_t count, least, greatest, sum    # in ticks


cdef class EventBuffer:
    cdef object owner, sleepers
    cdef Chain messages, events         # two chains, so that the oldest message is always the first of one
    cdef readonly uint64_t maximum
    cdef bint drops, times_age, times_service, counts
    cdef bint full_reported             # a context found the buffer full
    cdef bint size_warned, delay_warned     # the owner got a warning, and the cause lasts
    cdef readonly bint closed
    cdef dict rear                      # LastEvents by sink and topic, of the events behind all messages; None without any
    cdef dict front                     # the last loss by sink and topic, of the events before all messages
    cdef Entry front_last               # the last event before all messages
    cdef uint64_t arrivals              # messages and events so far
    cdef uint64_t messages_waiting      # without events
    cdef uint64_t size, size_warning, delay_warning_ns
    cdef readonly uint64_t total, dropped, dispatched
    cdef uint64_t[128] waiting          # by kind
    cdef Durations age_spread, service_spread

    cdef void count_in(self, Entry entry) noexcept
    cdef void count_out(self, Entry entry) noexcept
    cdef bint merges(self, Entry entry, tuple key, LastEvents spare_events) except? True
    cdef void merge_losses(self, Entry waiting, Entry entry) noexcept
    cdef Entry drop_oldest(self)
    cdef int merge_front_events(self) except -1
    cdef Entry pop_event(self)
    cdef void drop(self, Entry entry) noexcept
    cdef void drop_all(self, Entry entry) noexcept
    cdef Entry take(self)
    cdef int note_age(self, uint64_t ticks) except -1
