from libc.stdint cimport uint64_t

from ringbuf.memory cimport Mapping

cdef class SharedWords:
    cdef Mapping mapping
    cdef char *_at(self, size_t offset, size_t width, bint write) except NULL

cdef class WatchedWord:
    cdef const uint64_t *word
    cdef const uint64_t *seen   # what the word was when its owner looked last
    cdef uint64_t zero
    cdef object keeps           # keeps both of them
    cdef bint stuck             # what the last `take` found is for Python

    cdef long take(self) except -1
