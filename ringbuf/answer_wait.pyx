# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Wakes a thread that may spin for an answer; the stub has the documentation."""
cimport cython
from libc.stdint cimport uint64_t

from ringbuf cimport _atomics
from ringbuf.clock cimport clock_kind, read_ticks

cdef extern from "<unistd.h>":
    ssize_t write(int fd, const void *bytes, size_t count) nogil


@cython.final
cdef class AnswerWait:
    def __cinit__(self, int fd):
        self.fd, self.begins = fd, <uint64_t>-1

    def close(self):
        with cython.critical_section(self):
            self.fd = -1

    cdef int rung(self) except -1:
        cdef uint64_t one = 1, now = read_ticks(clock_kind())
        _atomics.store_relaxed64(&self.rung_at, now)
        if not _atomics.load_acquire64(&self.sleeps) or now < _atomics.load_relaxed64(&self.begins):
            return 0
        with cython.critical_section(self):
            # `close` waits for this section, so that the number cannot belong to another file.
            if self.fd >= 0 and not self.kicked and _atomics.load_acquire64(&self.sleeps):
                self.kicked = True
                write(self.fd, &one, sizeof(one))
        return 0

    cdef bint take_kick(self) except -1:
        cdef bint kicked
        with cython.critical_section(self):
            kicked, self.kicked = self.kicked, False
        return kicked
