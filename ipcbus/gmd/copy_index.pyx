# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Where the copy of each unreleased message is; the stub documents it."""
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

cdef enum:
    GROWTH_MIN = 64


cdef class CopyIndex:
    # Numbers only grow, so the entries stay sorted when new ones are appended. A released entry is marked, and removed
    # when marked entries take more than half of the memory.

    def __init__(self):
        self.segment_bytes = {}

    def __dealloc__(self):
        free(self.entries)

    cdef int append(self, uint64_t number, uint32_t serial, uint64_t offset, uint32_t length, uint8_t mode) except -1:
        cdef Entry *entry
        if self.end == self.room:
            self.grow()
        entry = self.entries + self.end
        entry.number = number
        entry.serial = serial
        entry.place = <uint32_t>(offset >> 3)
        entry.bytes = length
        entry.mode = mode
        entry.released = False
        self.end += 1
        self.count += 1
        self.bytes += length
        return 0

    cdef int grow(self) except -1:
        cdef size_t used = self.end - self.begin, room
        cdef Entry *larger
        if self.begin > used:
            memmove(self.entries, self.entries + self.begin, used * sizeof(Entry))
            self.begin, self.end = 0, used
            return 0
        room = max(self.room + self.room // 2, <size_t>GROWTH_MIN)
        larger = <Entry *>realloc(self.entries, room * sizeof(Entry))
        if larger is NULL:
            raise MemoryError
        self.entries, self.room = larger, room
        return 0

    cdef int drop_last(self) except -1:
        """Removes the message that was appended last."""
        self.end -= 1
        self.count -= 1
        self.bytes -= self.entries[self.end].bytes
        return 0

    cdef uint64_t last(self) noexcept:
        return self.entries[self.end - 1].number if self.end > self.begin else 0

    cdef size_t lower(self, uint64_t number) noexcept:
        """Returns the index of the first entry that is not below a number."""
        cdef size_t low = self.begin, high = self.end, middle
        if low < high and number >= self.entries[low].number:
            middle = low + <size_t>(number - self.entries[low].number)
            if middle < high and self.entries[middle].number == number:     # no number is missing before it
                return middle
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].number < number:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Entry *find(self, uint64_t number) noexcept:
        cdef size_t at = self.lower(number)
        if at < self.end and self.entries[at].number == number and not self.entries[at].released:
            return self.entries + at
        return NULL

    cdef int move(self, Entry *entry, uint32_t serial, uint64_t offset, uint32_t length, uint8_t mode) except -1:
        if entry.bytes:
            self.add(entry.serial, -<long long>entry.bytes)
        self.bytes += length
        self.bytes -= entry.bytes
        entry.serial, entry.place, entry.bytes, entry.mode = serial, <uint32_t>(offset >> 3), length, mode
        self.add(serial, length)
        return 0

    cpdef int add(self, uint32_t serial, long long length) except -1:
        self.segment_bytes[serial] = self.segment_bytes.get(serial, 0) + length
        return 0

    cdef uint64_t drop(self, uint64_t first, uint64_t last) except? 0:
        """Removes a range of messages; returns how many were unreleased."""
        cdef size_t at = self.lower(first)
        cdef uint64_t dropped = 0
        cdef long long length = 0
        cdef uint32_t serial = 0
        cdef Entry *entry
        while at < self.end and self.entries[at].number <= last:
            entry = self.entries + at
            at += 1
            if entry.released:
                continue
            if entry.serial != serial:
                if length:
                    self.add(serial, -length)
                serial, length = entry.serial, 0
            length += entry.bytes
            self.bytes -= entry.bytes
            entry.released = True
            dropped += 1
        if length:
            self.add(serial, -length)
        self.count -= dropped
        while self.begin < self.end and self.entries[self.begin].released:
            self.begin += 1
        if self.end - self.begin > 2 * self.count + GROWTH_MIN:
            self.squeeze()
        return dropped

    cdef int squeeze(self) except -1:
        """Removes the entries that are marked, and gives memory back."""
        cdef size_t at, to = 0
        cdef Entry *smaller
        for at in range(self.begin, self.end):
            if not self.entries[at].released:
                self.entries[to] = self.entries[at]
                to += 1
        self.begin, self.end = 0, to
        if self.room > 4 * to + GROWTH_MIN:
            smaller = <Entry *>realloc(self.entries, (2 * to + GROWTH_MIN) * sizeof(Entry))
            if smaller is not NULL:
                self.entries, self.room = smaller, 2 * to + GROWTH_MIN
        return 0

    # ------------------------------------------------------------------ for recovery and compaction

    def expect(self, uint64_t first, uint64_t last):
        while first <= last:
            self.append(first, 0, 0, 0, 0)
            first += 1

    def place(self, uint64_t number, uint32_t serial, uint64_t offset, uint32_t length, uint8_t mode):
        cdef Entry *entry = self.find(number)
        if entry is NULL:
            return False
        self.move(entry, serial, offset, length, mode)
        return True

    def where(self, uint64_t number):
        cdef Entry *entry = self.find(number)
        return None if entry is NULL else (entry.serial, <uint64_t>entry.place << 3, entry.bytes, entry.mode)

    def release(self, uint64_t first, uint64_t last):
        return self.drop(first, last)

    def in_segment(self, uint32_t serial):
        cdef size_t at
        return [
            self.entries[at].number
            for at in range(self.begin, self.end)
            if not self.entries[at].released and self.entries[at].bytes and self.entries[at].serial == serial
        ]

    def unreleased(self):
        return self.runs(False)

    def missing(self):
        return self.runs(True)

    cdef list runs(self, bint only_missing):
        cdef size_t at
        cdef uint64_t first = 0, last = 0
        cdef list found = []
        for at in range(self.begin, self.end):
            if self.entries[at].released or (only_missing and self.entries[at].bytes):
                continue
            if last and self.entries[at].number == last + 1:
                last += 1
                continue
            if last:
                found.append((first, last))
            first = last = self.entries[at].number
        if last:
            found.append((first, last))
        return found

    def modes(self):
        cdef size_t at
        cdef uint8_t mode = 0
        cdef list found = []
        for at in range(self.begin, self.end):
            if not self.entries[at].released and self.entries[at].mode != mode:
                mode = self.entries[at].mode
                found.append((self.entries[at].number, mode))
        return found
