from libc.stdint cimport int64_t, uint64_t

from ringbuf.memory cimport Mapping

cdef class Origin:
    cdef readonly str topic
    cdef readonly str source

cdef class Message:
    cdef Origin origin
    cdef int kind
    cdef uint64_t sequence, first_sequence, send_ticks
    cdef readonly int flags
    cdef const char *start      # in the ring or in the reader's copy, valid while `lent`
    cdef Py_ssize_t length
    cdef bint lent
    cdef Mapping mapping        # what `start` lies in; None when it is the reader's copy
    cdef bytes own
    cdef object shown           # the memoryview given out, if any
    cdef object fragment        # a FragmentInfo, or None

    cdef int take_back(self) except -1
    cdef int keep(self) except -1
    cdef int take_view(self) except -1

cdef Message own_message(Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                         uint64_t send_ticks)
