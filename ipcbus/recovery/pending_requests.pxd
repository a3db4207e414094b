from libc.stdint cimport int64_t, uint64_t

cdef class PendingRequests:
    cdef dict waiting           # by number, the oldest request first
    cdef uint64_t first, following
    cdef Py_ssize_t maximum
    cdef int64_t due_ns         # no request ends before
    cdef readonly uint64_t begun, responses, late, unknown
