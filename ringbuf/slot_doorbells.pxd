from libc.stdint cimport uint64_t

from ringbuf.answer_wait cimport AnswerWait
from ringbuf.ring cimport RingWriter

cdef enum:
    SLOTS_MAX = 64


cdef class SlotDoorbells:
    cdef RingWriter writer
    cdef object ring_slowly         # called with a slot whose doorbell is not open here; returns whether it could ring
    cdef int[SLOTS_MAX] fds         # -1 where none is open
    cdef uint64_t[SLOTS_MAX] contexts       # to which context each doorbell belongs
    cdef int ringing                # threads that write to one of them at this moment
    cdef AnswerWait answers         # learns when a doorbell was rung, unless None

    cdef void close_all(self) noexcept
    cdef bint ring_one(self, unsigned slot, uint64_t context_id) noexcept
    cpdef int ring(self, uint64_t mask) except -1
