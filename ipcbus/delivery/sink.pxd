from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

cimport cython

from ipcbus.delivery.message_queue cimport MessageQueue, queue_has_room
from ipcbus.delivery.received_message cimport Message, Origin, own_message
from ipcbus.wire._wire_layout cimport MESSAGE_HEADER_BYTES, RegistryEntry
from ringbuf cimport _atomics
from ringbuf.clock cimport clock_kind, read_ticks
from ringbuf.lending cimport Lender
from ringbuf.memory cimport Mapping

cdef enum:
    MESSAGES        # what a callback takes: a message,
    DATA            # the data of one as bytes,
    VIEWS           # or a view of its data

cdef enum:
    ARRIVAL_BYTES = 1200    # about half a microsecond: messages in a row share the time of their arrival


cdef struct Arrival:
    uint64_t ticks      # when a message arrived; 0: the clock has to be read
    int64_t left        # bytes that may share this time


cdef inline uint64_t arrival_ticks(Arrival *arrival, Py_ssize_t length) noexcept:
    """Returns when a message of this length arrived; reading the clock would take a sixth of the time for a message."""
    if arrival.ticks == 0 or arrival.left < 0:
        arrival.ticks = read_ticks(clock_kind())
        arrival.left = ARRIVAL_BYTES
    arrival.left -= MESSAGE_HEADER_BYTES + length
    return arrival.ticks


cdef class QuickStore:
    """A compiled `EventStore`, which the message path asks without Python."""
    cdef readonly uint64_t maximum      # with fewer messages than this it has room
    cdef uint64_t bytes_maximum         # with fewer bytes of messages than this it has room
    cdef uint64_t messages_waiting, bytes_waiting       # without events

    cdef bint has_no_room(self) except? True
    cdef int keep(self, Sink sink, Message message) except -1
    cdef int keep_copy(
        self, Sink sink, Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
        uint64_t send_ticks, Arrival *arrival,
    ) except -1


cdef class Sink:
    cdef public object owner
    cdef object callback
    cdef int takes                      # what the callback takes
    cdef bint wants_events
    cdef public object on_unseen_loss   # called with each loss that the application does not get as an event, or None
    cdef readonly MessageQueue queue    # the messages and events of a receiver that pulls
    cdef readonly object event_queue    # takes the messages of a receiver whose callback another thread calls
    cdef readonly QuickStore quick_store    # the same store where it is compiled; else None
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
    cdef object argument(self, Message message)
    cdef int call_with(self, argument, failures) except -1
    cdef int give_data(self, const char *start, Py_ssize_t length, Lender lender, failures) except -1
    cpdef Py_ssize_t start_rows(self, buffer, Py_ssize_t filled=*) except -1
    cpdef end_rows(self)
    cpdef open_rows(self)


cdef inline void sink_count(Sink sink, uint64_t messages, uint64_t length) noexcept:
    """Counts messages with `length` bytes in total."""
    sink.delivered += messages
    sink.bytes_delivered += length
    if sink.registry_entry != NULL:
        _atomics.store_relaxed64(&sink.registry_entry.lbm_msgs_rcved, sink.delivered)
        _atomics.store_relaxed64(&sink.registry_entry.bytes_rcved, sink.bytes_delivered)


cdef inline bint store_has_room(QuickStore store) noexcept:
    return store.messages_waiting < store.maximum and store.bytes_waiting < store.bytes_maximum


cdef inline bint sink_has_room(Sink sink) noexcept:
    """Returns whether there is room for another message; if not, `sink_is_full` decides."""
    if sink.rows_open:
        return sink.row_next < sink.row_count
    if sink.quick_store is not None:
        return store_has_room(sink.quick_store)
    return sink.event_queue is None and queue_has_room(sink.queue)


cdef inline bint sink_is_full(Sink sink) except? True:
    """Returns whether there is no room for another message."""
    if sink_has_room(sink):
        return False
    return sink.rows_open or sink.queue_is_full()


cdef inline int sink_enqueue_copy(
    Sink sink, Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags, uint64_t send_ticks,
    Arrival *arrival,
) except -1:
    """Appends a message with its own copy of these bytes to the queue."""
    if sink.quick_store is not None:
        return sink.quick_store.keep_copy(sink, origin, start, length, sequence, flags, send_ticks, arrival)
    return sink.enqueue(own_message(origin, start, length, sequence, flags, send_ticks))


cdef inline bint sink_row(Sink sink, const char *payload, Py_ssize_t length) noexcept:
    """Copies a payload into the next row; returns False when no row takes it."""
    if not sink.rows_open or length != sink.row_bytes or sink.row_next >= sink.row_count:
        return False
    memcpy(sink.rows + sink.row_next * sink.row_bytes, payload, length)
    sink.row_next += 1
    return True
