cdef enum:
    BLOCK_HEAD = 2          # bytes of the block's own length
    BLOCK_MAX = 65535

cdef Py_ssize_t block_check(const char *data, Py_ssize_t length) noexcept   # length of the block, or 0 if it is invalid
cdef bytes block_copy(const char *data, Py_ssize_t length)                  # of memory that may change meanwhile; or None
