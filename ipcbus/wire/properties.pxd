cdef enum:
    BLOCK_HEAD = 2          # bytes of the block's own length
    BLOCK_MAX = 65535

cdef Py_ssize_t block_check(const char *data, Py_ssize_t length) noexcept   # length of the block there, or 0
cdef bytes block_copy(const char *data, Py_ssize_t length)                  # of memory that its source may change; or None
