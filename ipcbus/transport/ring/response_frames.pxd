from libc.stdint cimport uint32_t, uint64_t

from ipcbus.delivery.pump cimport Pump
from ipcbus.delivery.received_message cimport QuickResponder
from ringbuf.pipe cimport Pipe

cdef class ResponseWriter:
    cdef Pipe pipe
    cdef Pump pump
    cdef uint64_t frame_max
    cdef object urgent          # the urgent messages that wait in the channel
    cdef uint64_t *calls
    cdef uint64_t bit
    cdef const uint32_t *parked
    cdef object ring
    cdef object keeps           # keeps the words

    cdef bint send_now(self, uint64_t request, bytes data) except? True
    cdef bint put(self, uint64_t request, bytes data) except? True
    cdef bint put_frame(self, const char *front, uint64_t front_length, const char *rest, uint64_t rest_length) except? True

cdef class ResponseCount:
    cdef public uint64_t sent

cdef class PipeResponder(QuickResponder):
    cdef ResponseWriter writer
    cdef ResponseCount count

cdef bint put_ack(
    ResponseWriter writer, uint32_t topic, uint64_t instance, uint64_t incarnation, uint64_t first, uint64_t last
) except? True
