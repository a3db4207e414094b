from libc.stdint cimport uint32_t, uint64_t

from ringbuf.ring cimport RingWriter

cdef class Inflow:
    cdef char *room
    cdef Py_ssize_t frame_max, size, begin, end
    cdef RingWriter writer  # of the ring to which `fetch` moves datagrams; None while it moves none
    cdef int fd
    cdef uint32_t session_id
    cdef uint64_t number, room_min
    cdef int fetched
    cdef Py_ssize_t fetched_bytes, came
    cdef readonly bint broken
    cdef Py_ssize_t length(self) noexcept
    cdef Py_ssize_t move(self, RingWriter writer, uint32_t session_id, uint64_t number, int *count) except -1
    cdef void compact(self) noexcept
    cdef bint found_packet(self) noexcept
    cdef int fetch_some(self) except -9
