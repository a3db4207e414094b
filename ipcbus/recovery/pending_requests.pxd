from libc.stdint cimport int64_t, uint64_t

cdef class PendingRequests:
    cdef dict waiting           # by number, the oldest request first
    cdef uint64_t first, following
    cdef Py_ssize_t maximum
    cdef int64_t due_ns         # no request ends before
    cdef readonly uint64_t begun, responses, late, unknown

    cpdef object begin(self, asker, bint is_single, int64_t until_ns=*)
    cpdef object take_response(self, uint64_t number)
    cpdef bint end(self, uint64_t number) except? True
