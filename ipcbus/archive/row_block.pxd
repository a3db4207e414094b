from libc.stdint cimport uint64_t

from ipcbus.archive._archive_layout cimport Row

cdef class RowBlock:
    cdef char *base
    cdef char *front            # where the next value goes; values grow up from the base
    cdef Row *back              # the last row; rows grow down from the end
    cdef Row *end
    cdef readonly size_t size
    cdef size_t counted         # bytes of the record block's memory
    cdef readonly uint64_t messages, bytes

    cdef void empty(self) noexcept

cdef RowBlock new_row_block(size_t size)


cdef inline size_t filled_of(RowBlock block) noexcept:
    return block.front - block.base + (<char *>block.end - <char *>block.back)
