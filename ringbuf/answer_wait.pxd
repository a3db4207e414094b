from libc.stdint cimport uint64_t

cdef class AnswerWait:
    cdef int fd             # an eventfd that ends the sleep; -1: closed
    cdef bint kicked        # `rung` has written to it
    cdef uint64_t rung_at   # ticks when a doorbell was rung last, or something was sent over the network
    cdef uint64_t sleeps    # whether the thread sleeps
    cdef uint64_t begins    # ticks from which on the thread spins instead

    cdef int rung(self) except -1
    cdef bint take_kick(self) except -1
