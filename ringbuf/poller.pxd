from libc.stdint cimport uint32_t, uint64_t

from ringbuf.ring cimport Reader

cdef class Poller:
    cdef list readers
    cdef Reader **items
    cdef int count
    cdef volatile int poked

    cdef bint any_ready(self) noexcept nogil
    cdef bint wait(self, uint64_t loops, uint64_t until_ticks, uint32_t clock) noexcept nogil
