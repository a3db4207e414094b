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
    cdef uint64_t waiting       # bytes from the next frame on, as `next_length` found them
    cdef bint abandoned
    cdef bint waits             # whether the last `put` found no room
    cdef readonly bint room_wanted
    cdef readonly int frame_max
    cdef readonly str broken
    cdef public object checkpoint

    cdef bint is_damaged(self)
    cdef int64_t room(self)
    cdef object fail(self, str reason)
    cdef bint put_parts(self, const char *front, uint64_t front_length, const char *rest, uint64_t rest_length) except? True
    cdef bint append_parts(self, const char *front, uint64_t front_length, const char *rest, uint64_t rest_length) except? True
    cdef void copy_in(self, uint64_t position, const char *source, uint64_t length) noexcept
    cdef void copy_out(self, uint64_t offset, char *place, uint64_t length) noexcept
    cdef int64_t next_length(self)
    cdef bint end_frame(self, uint64_t length) except? True
    cdef bint has_news(self)
