from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef struct Entry:
    uint64_t number
    uint32_t serial     # of the segment
    uint32_t place      # offset in the segment, divided by 8
    uint32_t bytes      # of the record; 0 where the copy is missing
    uint8_t mode
    uint8_t released
    uint16_t spare

cdef class CopyIndex:
    cdef Entry *entries
    cdef size_t begin, end, room        # entries[begin:end] are in use
    cdef readonly size_t count          # of unreleased messages
    cdef readonly uint64_t bytes        # their records
    cdef readonly dict segment_bytes    # serial -> bytes of unreleased records in it

    cdef int append(self, uint64_t number, uint32_t serial, uint64_t offset, uint32_t length, uint8_t mode) except -1
    cdef int drop_last(self) except -1
    cdef uint64_t drop(self, uint64_t first, uint64_t last) except? 0
    cdef size_t lower(self, uint64_t number) noexcept
    cdef Entry *find(self, uint64_t number) noexcept
    cdef int move(self, Entry *entry, uint32_t serial, uint64_t offset, uint32_t length, uint8_t mode) except -1
    cdef uint64_t last(self) noexcept
    cpdef int add(self, uint32_t serial, long long length) except -1
    cdef int grow(self) except -1
    cdef int squeeze(self) except -1
    cdef list runs(self, bint only_missing)
