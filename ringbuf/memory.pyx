# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Mappings that live as long as their views; the stub has the documentation."""
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.stdint cimport uint32_t

import os

from ringbuf cimport _atomics
from ringbuf._sigbus cimport ib_sigbus_forget, ib_sigbus_install, ib_sigbus_note

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *addr, size_t length, int prot, int flags, int fd, long offset)
    int munmap(void *addr, size_t length)
    int madvise(void *addr, size_t length, int advice)
    void *MAP_FAILED
    int PROT_NONE, PROT_READ, PROT_WRITE, MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE


cdef enum:
    MADV_POPULATE_READ = 22     # since Linux 5.14; not in every C library
    MADV_POPULATE_WRITE = 23


cdef int watch_region(char *base, size_t length, uint32_t *damaged) noexcept:
    """Lets the SIGBUS handler set `damaged` for this mapping; returns its index, or -1 without a handler."""
    if os.environ.get("IPCBUS_SIGBUS_HANDLER", "1") == "0" or ib_sigbus_install():
        return -1
    return ib_sigbus_note(base, length, damaged)


cdef void unwatch_region(int region) noexcept:
    """Removes a mapping from the table of the handler."""
    ib_sigbus_forget(region)


cdef class Mapping:
    def __cinit__(self, int fd, size_t size, bint writable, size_t twice_from=0, size_t reserve=0):
        cdef int prot = PROT_READ | PROT_WRITE if writable else PROT_READ
        cdef size_t again = size - twice_from if twice_from else 0
        cdef void *place
        if size == 0 or twice_from >= size:
            raise ValueError(f"cannot map {size} bytes, the second time from byte {twice_from}: nothing is left; give a larger size")
        self.mapped = max(size + again, reserve)
        self.size = size
        self.writable = writable
        self.region = -1
        place = mmap(NULL, self.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if place == MAP_FAILED:
            raise OSError(
                errno, f"cannot reserve {self.mapped} bytes of address space: {os.strerror(errno)}; raise ulimit -v"
            )
        self.base = <char *>place
        self._map(place, max(size, reserve), prot, fd, 0)
        if again:
            self._map(self.base + size, again, prot, fd, twice_from)
        self.region = watch_region(self.base, self.mapped, &self.cut_short)

    @property
    def damaged(self):
        return _atomics.load_acquire32(&self.cut_short) != 0

    def __dealloc__(self):
        if self.base != NULL:
            unwatch_region(self.region)
            munmap(self.base, self.mapped)

    cdef int _map(self, void *at, size_t length, int prot, int fd, size_t offset) except -1:
        if mmap(at, length, prot, MAP_SHARED | MAP_FIXED, fd, <long>offset) == MAP_FAILED:
            raise OSError(
                errno,
                f"cannot map {length} bytes from byte {offset} on: {os.strerror(errno)}; check the permissions of the "
                "object, its size and vm.max_map_count"
            )
        return 0

    def touch(self):
        cdef int advice = MADV_POPULATE_WRITE if self.writable else MADV_POPULATE_READ, failed
        with nogil:
            failed = madvise(self.base, self.mapped, advice)
        return failed == 0

    def view(self, Py_ssize_t offset=0, length=None):
        cdef Py_ssize_t n = <Py_ssize_t>self.size - offset if length is None else <Py_ssize_t>length
        if offset < 0 or n < 0 or <size_t>(offset + n) > self.mapped:
            raise ValueError(f"bytes {offset} to {offset + n} lie outside the mapping of {self.size} bytes; view bytes inside it")
        return window_view(self, self.base + offset, n, self.writable)


cdef class Window:
    """A part of a mapping with the buffer protocol; it keeps the mapping."""

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.start, self.length, not self.writable, flags)


cdef object window_view(Mapping mapping, char *start, Py_ssize_t length, bint writable):
    cdef Window window = Window.__new__(Window)
    window.mapping = mapping
    window.start = start
    window.length = length
    window.writable = writable
    return memoryview(window)
