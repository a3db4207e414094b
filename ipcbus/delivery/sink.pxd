from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cimport cython

from ipcbus.delivery.received_message cimport Message
from ipcbus.wire._wire_layout cimport RegistryEntry
from ringbuf cimport _atomics
from ringbuf.memory cimport Mapping

cdef class Sink:
    cdef public object owner
    cdef object callback
    cdef readonly object queue          # a deque: the messages and events of a receiver that pulls
    cdef object append                  # of the queue
    cdef uint64_t queue_max
    cdef readonly object event_queue    # takes the messages of a receiver whose callback another thread calls
    cdef readonly bint pulls            # messages wait in a queue or in rows
    cdef public bint closed
    cdef public bint silent             # its owner closed it: events that wait in an event queue are dropped
    cdef char *rows                     # where receive_into wants the payloads, or NULL
    cdef Py_ssize_t row_bytes, row_count, row_next
    cdef bint rows_open                 # payloads go into rows: the queue holds nothing older
    cdef Py_buffer row_view
    cdef readonly uint64_t delivered, bytes_delivered, fragments, lost, events, callback_errors
    cdef public uint64_t dropped        # by its event queue
    cdef RegistryEntry *registry_entry            # where other processes read these counters
    cdef Mapping registry_mapping

    cdef int count_fragments(self, Message message) except -1
    cdef bint merges_event(self, Message event) except? True
    cdef int enqueue(self, Message message) except -1
    cdef bint queue_is_full(self) except? True
    cpdef int fail(self, error, failures) except -1
    cdef int count_raised(self, Message message, failures) except -1


cdef inline void sink_count(Sink sink, uint64_t messages, uint64_t length) noexcept:
    """Counts messages with `length` bytes in total."""
    sink.delivered += messages
    sink.bytes_delivered += length
    if sink.registry_entry != NULL:
        _atomics.store_relaxed64(&sink.registry_entry.lbm_msgs_rcved, sink.delivered)
        _atomics.store_relaxed64(&sink.registry_entry.bytes_rcved, sink.bytes_delivered)


cdef inline bint sink_is_full(Sink sink) except? True:
    """Returns whether there is no room for another message."""
    if sink.rows_open:
        return sink.row_next >= sink.row_count
    return sink.queue_is_full()


cdef inline bint sink_row(Sink sink, const char *payload, Py_ssize_t length) noexcept:
    """Copies a payload into the next row; returns False when no row takes it."""
    if not sink.rows_open or length != sink.row_bytes or sink.row_next >= sink.row_count:
        return False
    memcpy(sink.rows + sink.row_next * sink.row_bytes, payload, length)
    sink.row_next += 1
    return True
