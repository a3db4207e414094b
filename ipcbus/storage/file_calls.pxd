from libc.stddef cimport size_t
from libc.stdint cimport int64_t

cdef int write_fully(int fd, const char *data, size_t length, int64_t offset) noexcept nogil
