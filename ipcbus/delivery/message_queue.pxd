from ipcbus.delivery.leasing cimport LeasedMessage
from ipcbus.delivery.received_message cimport bytes_of

cdef enum:
    PASS_MESSAGES = 64      # so few that the messages of a pass are in the nearest cache when they are taken
    PASS_BYTES = 1 << 18    # so few that a long message does not wait for the copies of those behind it


cdef class MessageQueue:
    cdef list slots         # as many as a power of two; None in those that are free
    cdef size_t mask        # slots - 1
    cdef size_t first       # the slot of the oldest message
    cdef size_t count       # messages and events that wait
    cdef LeasedMessage in_place     # the message that waits in its place in the ring, for a lease; None without one
    cdef readonly bint leases       # the last message was taken by a lease: only one waits, in its place
    cdef size_t limit       # with as many it is full
    cdef size_t maximum     # with as many it is full now
    cdef size_t bytes_limit # with messages of as many bytes it is full too
    cdef size_t bytes       # of the messages that wait
    cdef long pass_messages # most messages that a thread which waits for one reads at once
    cdef public int leasing         # threads and tasks that wait for a message to lease
    cdef public unsigned long lessee    # the thread that leases now, and takes a message in place as it is; 0 without one

    cpdef bint has_long(self) noexcept
    cpdef int set_leases(self, bint leases) except -1
    cdef int set_in_place(self, LeasedMessage message) except -1
    cdef int detach(self) except -1

    cdef int grow(self) except -1
    cdef int put(self, object message) except -1
    cdef object take(self)
    cdef list take_many(self, size_t most)
    cdef int remove_at(self, size_t place) except -1


cdef inline bint queue_has_room(MessageQueue queue) noexcept:
    return queue.count < queue.maximum and queue.bytes < queue.bytes_limit


cdef inline object queued_at(MessageQueue queue, size_t place):
    """Returns what waits at a place from the front; the caller holds the critical section of the queue."""
    return queue.slots[(queue.first + place) & queue.mask]
