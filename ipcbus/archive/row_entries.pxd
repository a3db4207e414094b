from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.archive._archive_layout cimport Row

cdef class RowSearch:
    cdef uint32_t topic, session
    cdef int64_t number         # of the topic in its session
    cdef list changes           # offsets, ascending, and the topic number of the rows from there on
    cdef int64_t changed_at, newest     # the last one of them
    cdef readonly int64_t first, last
    cdef readonly list places
    cdef readonly bint is_certain
    cdef int64_t sent_ns, again_ns

    cdef int forget(self) except -1
    cdef int forget_before(self, int64_t offset, int64_t number) except -1
    cdef int change(self, int64_t offset, int64_t number) except -1
    cdef int64_t number_at(self, int64_t offset) except? -1
    cdef int64_t change_after(self, int64_t offset) except -1
    cdef int64_t named(self, const Row *row, int64_t offset) except? -1

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
