# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Rows and values that are written in one go; the stub documents them."""
cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free

import numpy as np

from ipcbus.archive import archive_layout
from ipcbus.archive._archive_layout cimport Row

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **place, size_t alignment, size_t size)

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *addr, size_t length, int advice)
    int MADV_HUGEPAGE

cdef enum:
    CACHE_LINE = 64
    HUGE_PAGE = 1 << 21

cdef object _row = archive_layout.ROW


cdef class RowBlock:
    def __dealloc__(self):
        free(self.base)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.base, <Py_ssize_t>self.size, False, flags)

    @cython.final
    cdef void empty(self) noexcept:
        self.front = self.base
        self.back = self.end
        self.messages = self.bytes = 0

    @property
    def rows(self):
        return np.frombuffer(self, _row, offset=<char *>self.back - self.base)[::-1].copy()

    @property
    def data(self):
        return np.frombuffer(self, np.uint8, self.front - self.base)

    @property
    def first_ns(self):
        return (self.end - 1).receive_ns if self.back != self.end else 0


cdef RowBlock new_row_block(size_t size):
    """Returns an empty block; None when the system has no memory for it."""
    cdef RowBlock made = RowBlock.__new__(RowBlock)
    cdef void *place = NULL
    if posix_memalign(&place, HUGE_PAGE if size >= HUGE_PAGE else CACHE_LINE, size) != 0:
        return None
    if size >= HUGE_PAGE:
        # The first use costs a fault for each page. A kernel without huge pages refuses, which does no harm.
        madvise(place, size, MADV_HUGEPAGE)
    made.base = <char *>place
    made.end = <Row *>(made.base + size)
    made.size = size
    made.empty()
    return made
