from libc.stdint cimport int64_t

ctypedef struct Lock:
    int fd
    int64_t byte

cdef class HeldLocks:
    cdef Lock *locks
    cdef int count

    cdef bint are_held(self) noexcept nogil
