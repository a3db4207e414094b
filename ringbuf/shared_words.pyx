# cython: language_level=3, embedsignature=True
"""Atomic words of a mapping; the stub has the documentation."""
from libc.stdint cimport uint32_t, uint64_t

from ringbuf cimport _atomics
from ringbuf.memory cimport Mapping


cdef class SharedWords:
    def __init__(self, Mapping mapping):
        self.mapping = mapping

    cdef char *_at(self, size_t offset, size_t width, bint write) except NULL:
        if offset % width or width > self.mapping.mapped or offset > self.mapping.mapped - width:
            raise ValueError(f"no {8 * width}-bit word at byte {offset} of a mapping of {self.mapping.size} bytes")
        if write and not self.mapping.writable:
            raise ValueError(f"the word at byte {offset} belongs to a mapping for reading only")
        return self.mapping.base + offset

    def load32(self, size_t offset):
        return _atomics.load_acquire32(self._at(offset, 4, False))

    def load64(self, size_t offset):
        return _atomics.load_acquire64(self._at(offset, 8, False))

    def store32(self, size_t offset, uint32_t value):
        _atomics.store_release32(self._at(offset, 4, True), value)

    def store64(self, size_t offset, uint64_t value):
        _atomics.store_release64(self._at(offset, 8, True), value)

    def cas32(self, size_t offset, uint32_t old, uint32_t new):
        return bool(_atomics.cas32(self._at(offset, 4, True), old, new))

    def cas64(self, size_t offset, uint64_t old, uint64_t new):
        return bool(_atomics.cas64(self._at(offset, 8, True), old, new))

    def exchange32(self, size_t offset, uint32_t value):
        return _atomics.exchange32(self._at(offset, 4, True), value)

    def or32(self, size_t offset, uint32_t bits):
        return _atomics.or32(self._at(offset, 4, True), bits)

    def or64(self, size_t offset, uint64_t bits):
        return _atomics.or64(self._at(offset, 8, True), bits)

    def and64(self, size_t offset, uint64_t bits):
        return _atomics.and64(self._at(offset, 8, True), bits)

    def fence(self):
        _atomics.fence_full()

    def equal32(self, size_t offset, size_t stride, unsigned count, uint32_t value):
        cdef uint64_t found = 0
        cdef unsigned i
        if not 0 < count <= 64:
            raise ValueError(f"count = {count}, but a mask has 1 to 64 bits")
        for i in range(count):
            if _atomics.load_acquire32(self._at(offset + i * stride, 4, False)) == value:
                found |= <uint64_t>1 << i
        return found

    def watched(self, size_t offset):
        cdef WatchedWord watched = WatchedWord.__new__(WatchedWord)
        watched.word = <const uint64_t *>self._at(offset, 8, False)
        watched.seen, watched.keeps = &watched.zero, self.mapping
        return watched


cdef class WatchedWord:
    def __init__(self):
        raise TypeError("use SharedWords.watched or Pipe.watched")

    cdef long take(self) except -1:
        self.stuck = True
        return 0

    def changed(self):
        return _atomics.load_acquire64(self.word) != self.seen[0]
