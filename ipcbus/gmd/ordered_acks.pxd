from libc.stdint cimport uint32_t, uint64_t

cdef class OrderedAcks:
    cdef readonly bint is_ready         # `take` may take acknowledgements
    cdef readonly uint64_t low          # the lowest number whose copy is kept
    cdef readonly uint64_t count        # messages that were acknowledged, once for each receiver
    cdef readonly list names            # `_Name`, one for each name that is expected
    cdef list receivers                 # `_Receiver`, one for each name that is connected
    cdef object note, release           # of the area
    cdef uint64_t incarnation
    cdef bint confirms, any_is_enough
    cdef uint64_t confirmed_first, confirmed_last   # a run of messages to be reported as delivered; 0: none

    cdef bint knows(self, object peer, uint64_t instance) except? True
    cdef object find(self, object peer, uint64_t instance)
    cdef bint take(
        self, object peer, uint64_t instance, uint64_t incarnation, uint64_t first, uint64_t last, uint64_t last_number
    ) except? True
    cdef int advance(self, uint64_t low) except -1
