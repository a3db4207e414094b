from libc.stdint cimport int64_t, uint32_t, uint64_t

from ringbuf.answer_wait cimport AnswerWait
from ringbuf.ring cimport RingReader

cdef class RecordStream:
    cdef object __weakref__
    cdef RingReader reader
    cdef uint32_t session_id
    cdef uint64_t mask, number
    cdef object lock, published, on_room
    cdef AnswerWait answers     # learns of each call, unless None
    cdef object socket_lock, keep
    cdef tuple connections
    cdef list numbers           # the descriptors of the connections
    cdef bint aimed             # the connections are as they were at `aim`
    cdef public bint ready
    cdef bint sending           # a thread is in `send_directly`
    cdef list packets           # what was sent and not settled
    cdef uint64_t size          # its bytes
    cdef int64_t sent_ns
    cdef bint send_directly(self) except -1
    cdef void note(self, list packets)
