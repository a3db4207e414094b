from libc.stdint cimport uint32_t

from ringbuf._layout cimport ControlHeader, RingHeader
from ringbuf.memory cimport Mapping

cdef int check_ring(Mapping ring, RingHeader *h) except -1
cdef int check_control(Mapping control, uint32_t session_id, ControlHeader *h) except -1
