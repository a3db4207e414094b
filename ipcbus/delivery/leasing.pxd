from libc.stdint cimport uint64_t

from ipcbus.delivery.received_message cimport Message
from ringbuf.ring cimport Reader, RingReader

cdef class RecordHolder:
    cdef readonly RingReader ring       # None where datagrams are fed
    cdef Reader *r
    cdef public bint wakes_writer       # the source waits for an event
    cdef public bint detached           # the slot was given back: nothing is read or shown any more
    cdef list leased                    # the messages that are leased in the ring, oldest first

    cdef int hold(self, LeasedMessage message) except -1
    cdef int limit_leases(self) except -1
    cdef int own_leases(self) except -1
    cdef bint forget(self, LeasedMessage message) except -1
    cdef bint release(self, LeasedMessage message) except -1

cdef class LeasedMessage(Message):
    cdef RecordHolder holder            # None once nothing in a ring is held for it
    cdef uint64_t position              # of its record
    cdef list arrays                    # what ends the arrays that were made of it; None without any

    cdef int own_memory(self) except -1
    cdef int make_own(self) except -1
    cdef int give_up(self) except -1
