from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from ipcbus.gmd._journal_layout cimport HEAD_BYTES, RecordHead

cdef inline size_t padded(size_t length) noexcept nogil:
    return length + 7 & ~<size_t>7

cdef void seal(char *record, int kind, int mode, size_t block, size_t length, uint32_t stamp, uint64_t number,
               uint64_t first, uint64_t second) noexcept nogil
cdef void put_end(char *at, uint32_t stamp) noexcept nogil
cdef RecordHead *whole(const char *data, size_t left, uint32_t stamp) noexcept nogil
