from libc.stdint cimport uint32_t, uint64_t

from ipcbus.delivery.pump cimport Pump
from ringbuf.pipe cimport Pipe

cdef class ResponseWriter:
    cdef Pipe pipe
    cdef Pump pump
    cdef bint sequential
    cdef object urgent          # the urgent messages that wait in the channel
    cdef uint64_t *calls
    cdef uint64_t bit
    cdef const uint32_t *parked
    cdef object ring
    cdef object keeps           # keeps the words

    cdef bint put(self, uint64_t request, bytes data) except? True

cdef class ResponseReader:
    cdef uint64_t *calls
    cdef const uint64_t *channel_words[64]
    cdef uint64_t settled_words[64]
    cdef list pipes             # by slot; None where Python handles all calls
    cdef list call_receivers
    cdef int slots
    cdef object keeps           # keeps the words

    cdef bint take_one(self, Pipe pipe, object respond) except? True
    cdef bint take_all(self, int slot, object respond) except? True
