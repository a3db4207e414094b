from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from ipcbus.delivery.durations cimport Durations
from ipcbus.delivery.event_merging cimport is_event
from ipcbus.delivery.received_message cimport Message
from ipcbus.delivery.sink cimport QuickStore, Sink

cdef enum:
    SPARES_MAX = 1024       # as many as a pass over the sessions brings
    KINDS = 128             # more than a message has


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


cdef inline size_t sink_and_topic(Entry entry) noexcept:
    """Returns a key of sink and topic, nearly unique; it is a number, because making a number runs no Python."""
    return <size_t><PyObject *>entry.sink * 31 + <size_t><PyObject *>entry.message.origin


cdef inline void count_kinds(Entry messages, Entry events, uint64_t *counted) noexcept:
    """Counts by kind what waits in two chains that begin with these entries."""
    memset(counted, 0, KINDS * sizeof(uint64_t))
    while messages is not None:
        counted[messages.message.kind & (KINDS - 1)] += 1
        messages = messages.next
    while events is not None:
        counted[events.message.kind & (KINDS - 1)] += not events.withdrawn
        events = events.next


cdef class LastEvents:
    cdef Entry loss, ended, begun


cdef struct Sleeper:
    PyThread_type_lock bell     # its thread waits for it
    bint waits                  # it is in the list
    Sleeper *next


cdef class EventBuffer(QuickStore):
    cdef object owner
    cdef tuple pumps             # weak references to the pumps of the contexts that put messages
    cdef Chain messages, events         # two chains, so that the oldest message is always the first of one
    cdef (PyObject *)[SPARES_MAX] spares      # dispatched entries for the next messages; they refer to nothing else
    cdef size_t spares_count
    cdef Sleeper *first_sleeper
    cdef Sleeper *last_sleeper
    cdef readonly size_t sleepers       # threads that sleep until something arrives
    cdef uint64_t *inside               # the threads that dispatch
    cdef size_t inside_count, inside_room
    cdef bint drops, times_age, times_service, counts
    cdef bint full_reported             # a context found the buffer full
    cdef bint size_warned, delay_warned     # the owner got a warning, and the cause lasts
    cdef readonly bint closed
    cdef public bint forked             # this process is a child of the one that made it
    cdef dict rear                      # LastEvents by sink and topic, of the events behind all messages; None without any
    cdef dict front                     # the last loss by sink and topic, of the events before all messages
    cdef Entry front_last               # the last event before all messages
    cdef uint64_t arrivals              # messages and events so far
    cdef uint64_t events_waiting, size_warning, delay_warning_ns
    cdef readonly uint64_t dropped, dispatched
    cdef Durations age_spread, service_spread

    cdef int add(self, Sink sink, Entry entry) except -1
    cdef int recycle(self, Entry entry) except -1
    cpdef long call_back(self, int64_t limit_ns) except -1
    cpdef bint is_inside(self, uint64_t thread)
    cdef bint drives_a_context(self) except? True
    cdef int enter(self, uint64_t thread) except -1
    cdef void leave(self, uint64_t thread) noexcept
    cdef int sleep(self, double seconds) except -1
    cdef void unlink(self, Sleeper *sleeper) noexcept
    cdef void wake(self) noexcept
    cdef void count_in(self, Entry entry) noexcept
    cdef void count_out(self, Entry entry) noexcept
    cdef bint merges(self, Entry entry, tuple key, LastEvents spare_events) except? True
    cdef void merge_losses(self, Entry waiting, Entry entry) noexcept
    cdef Entry drop_oldest(self)
    cdef int drop_for(self, size_t length) except -1
    cdef int give_up(self, Entry dropped_entry) except -1
    cdef int merge_front_events(self) except -1
    cdef Entry pop_event(self)
    cdef void drop(self, Entry entry) noexcept
    cdef void drop_all(self, Chain chain) noexcept
    cdef Entry take(self)


cdef inline uint64_t waiting_in(EventBuffer event_buffer) noexcept:
    """Returns the number of waiting messages and events."""
    return event_buffer.messages_waiting + event_buffer.events_waiting


cdef inline bint half_is_free(EventBuffer event_buffer) noexcept:
    cdef bint few = event_buffer.messages_waiting <= event_buffer.maximum // 2
    return few and event_buffer.bytes_waiting <= event_buffer.bytes_maximum // 2


cdef inline bint was_deleted(Message message) noexcept:
    """Returns whether the source has deleted a message that is guaranteed to its receiver: it has no gate any more."""
    return message.has_sender and message.gate is None and not is_event(message)
