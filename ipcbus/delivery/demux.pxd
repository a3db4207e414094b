from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.delivery.message cimport Message, Origin
from ipcbus.wire._layout cimport MessageHeader, RegistryEntry
from ringbuf.memory cimport Mapping
from ringbuf.ring cimport Reader, RingReader

cdef class Sink:
    cdef public object owner
    cdef object callback
    cdef readonly object queue          # a deque: messages and events of a receiver that pulls
    cdef uint64_t queue_max
    cdef readonly bint pulls
    cdef public bint closed
    cdef char *rows                     # where receive_into wants the payloads, or NULL
    cdef Py_ssize_t row_bytes, row_count, row_next
    cdef bint rows_open                 # rows are wanted and nothing in the queue comes before them
    cdef Py_buffer row_view
    cdef readonly uint64_t delivered, bytes_delivered, lost, events, callback_errors
    cdef RegistryEntry *line            # where others read these counters
    cdef Mapping line_mapping

    cdef int accept(self, Controller controller, const MessageHeader *header, uint32_t length, Demux demux) except -1
    cdef bint is_full(self) noexcept
    cdef void count(self, uint64_t length) noexcept
    cdef int fail(self, error, rare) except -1

cdef class Controller:
    cdef readonly Origin origin
    cdef readonly uint32_t topic_number
    cdef readonly uint64_t expected, floor
    cdef readonly bint started
    cdef readonly uint64_t duplicates
    cdef readonly list sinks
    cdef Sink only                      # the one sink, when there is exactly one
    cdef bint pulls                     # one of the sinks may be full

    cdef bint must_wait(self) noexcept

cdef class Demux:
    cdef readonly RingReader ring
    cdef Reader *r
    cdef list controllers               # by line; None where nobody receives
    cdef PyObject **table               # the same, borrowed: what the message path looks into
    cdef uint32_t topics_max
    cdef const char *cursor             # the next message of the record in hand; NULL when none is in hand
    cdef const char *end
    cdef uint64_t send_ticks
    cdef readonly bint begun            # a record was seen
    cdef public bint attention        # something for Python: the end, a broken ring
    cdef public bint blocked          # a receiver that pulls has no room
    cdef public bint wakes_writer     # the source waits for an event
    cdef public bint left               # the slot was given back: nothing is read or shown any more
    cdef public bint watched            # the poller looks at its ring
    cdef public bint stop               # set from inside a callback: return after this message
    cdef object rare
    cdef Message spare
    cdef uint64_t messages, no_topic, lost, malformed

    cdef long poll(self, long limit) except -1
    cdef bint next_record(self) except -1
    cdef int give(self, Controller controller, const MessageHeader *header, uint32_t length) except -1
    cdef int call(self, Sink sink, Controller controller, const MessageHeader *header, uint32_t length) except -1
    cdef void finish_record(self) noexcept
    cdef int callback_raised(self, Sink sink, Message message) except -1
    cdef void show_counters(self) noexcept
    cdef bint jump(self, Controller controller, uint64_t sequence) except -1
