from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.archive._archive_layout cimport Row

cdef class RowSearch:
    cdef uint32_t topic, session
    cdef readonly int64_t first, last
    cdef readonly list places
    cdef int64_t sent_ns

    cdef int forget(self) except -1

cdef class RowEntries:
    cdef const unsigned char[::1] rows, data
    cdef const Row *row
    cdef const Row *end
    cdef uint64_t start, expected, stop
    cdef uint32_t topic, session, number
    cdef readonly bint contradicts

    cdef bint wanted(self, const Row *row) noexcept
    cdef bint possible(self) noexcept
    cdef void step(self) noexcept
    cdef char *write(self, char *to, const Row *row, const char *data) noexcept
    cdef char *write_header(self, char *to, const Row *row, uint64_t sequence, uint32_t flags, uint64_t length) noexcept
