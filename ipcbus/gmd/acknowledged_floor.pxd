from libc.stdint cimport uint64_t

cdef class AcknowledgedFloor:
    cdef object area_record
    cdef str sender
    cdef uint64_t incarnation
    cdef readonly bint is_ready         # `take` may take acknowledgements
    cdef readonly uint64_t floor        # the application has acknowledged all messages up to this one
    cdef readonly uint64_t recorded     # of which the area records those up to this one
    cdef public uint64_t sent           # of which the source got acknowledgements up to this one

    cpdef bint take(self, uint64_t first, uint64_t last) noexcept
    cpdef record(self)
