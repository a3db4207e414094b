from libc.stdint cimport uint64_t

cdef class Assembly:
    cdef bytes own
    cdef readonly uint64_t total, filled
