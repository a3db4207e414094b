from libc.stdint cimport int64_t

cdef class AcknowledgementAppender:
    cdef readonly dict states       # (sender, incarnation) -> (floor, ranges)
    cdef readonly str refusal       # why the area takes nothing any more
    cdef readonly int64_t end       # of the file
    cdef int64_t limit              # a record that begins behind this offset needs preparation
    cdef int fd
    cdef bint each

    cdef int append(self, bytes payload) except -1
