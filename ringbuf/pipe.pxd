from libc.stdint cimport int64_t, uint32_t, uint64_t

from ringbuf._layout cimport PipeQueue
from ringbuf.memory cimport Mapping
from ringbuf.shared_words cimport WatchedWord

cdef class Pipe:
    cdef Mapping mapping
    cdef PipeQueue *outgoing
    cdef PipeQueue *incoming
    cdef char *out_data
    cdef const char *in_data
    cdef uint64_t capacity
    cdef uint64_t written       # this side's own positions; the words in shared memory are never read back
    cdef uint64_t read
    cdef bint abandoned
    cdef bint waits             # whether the last `put` found no room
    cdef readonly bint room_wanted
    cdef readonly int frame_max
    cdef readonly str broken
    cdef public object checkpoint

    cdef bint is_damaged(self)
    cdef int64_t room(self)
    cdef object fail(self, str reason)
