# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The entries of a GMD_RESENT; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from collections import namedtuple

from ipcbus.wire.topic_places cimport count_of, first_of
from ipcbus.wire.topic_places import unpack

Entry = namedtuple("Entry", ("number", "send_time_ns", "opening", "topic_numbers", "block", "data"))


cdef class ResentEntries:
    def __len__(self):
        return self.count

    def __iter__(self):
        cdef size_t at = self.at
        cdef size_t number
        for number in range(self.count):
            yield self.entry(at)
            at = self.behind(at)

    def __eq__(self, other):
        return list(self) == list(other)

    def pop(self):
        cdef size_t at = self.at
        if self.take() is NULL:
            raise IndexError("no entry is left")
        return self.entry(at)

    def clear(self):
        self.at, self.count = self.end, 0

    def topic_ranges(self):
        cdef size_t at = self.at, number
        cdef const EntryFront *front
        cdef uint64_t opening = 0, first = 0, last = 0, begin, count
        cdef bint is_open = False
        cdef list found = []
        for number in range(self.count):
            front = <const EntryFront *>(PyBytes_AS_STRING(self.message) + at)
            at = self.behind(at)
            begin, count = first_of(front.place), count_of(front.place)
            if count == 0:
                continue
            if is_open and begin == last + 1 and front.opening == opening:
                last += count
                continue
            if is_open:
                found.append((opening, first, last))
            opening, first, last, is_open = front.opening, begin, begin + count - 1, True
        if is_open:
            found.append((opening, first, last))
        return found

    cdef const EntryFront *take(self) noexcept:
        """Takes the first entry: its front, behind which header block and value stand; NULL without one."""
        cdef const EntryFront *front
        if self.count == 0:
            return NULL
        front = <const EntryFront *>(PyBytes_AS_STRING(self.message) + self.at)
        self.at = self.behind(self.at)
        self.count -= 1
        if self.count:
            self.first = (<const EntryFront *>(PyBytes_AS_STRING(self.message) + self.at)).number
        return front

    cdef object entry(self, size_t at):
        cdef const EntryFront *front = <const EntryFront *>(PyBytes_AS_STRING(self.message) + at)
        cdef const char *body = <const char *>front + sizeof(EntryFront)
        block, data = body[:front.block], body[front.block:front.block + front.value]
        return Entry(front.number, front.send_time_ns, front.opening, unpack(front.place), block, data)

    cdef size_t behind(self, size_t at) noexcept:
        """Returns where the entry behind another one stands."""
        return at + padded(<const EntryFront *>(PyBytes_AS_STRING(self.message) + at))


cdef inline size_t padded(const EntryFront *front) noexcept:
    """Returns the bytes of an entry, with the zeros behind it."""
    return (sizeof(EntryFront) + <size_t>front.block + front.value + 7) & ~<size_t>7


def checked(bytes message not None, size_t at, uint64_t first, uint64_t following):
    cdef ResentEntries found = ResentEntries.__new__(ResentEntries)
    cdef const EntryFront *front
    cdef size_t end = PyBytes_GET_SIZE(message), length
    cdef uint64_t reached = first
    found.message, found.at, found.end = message, at, end
    while at < end:
        front = <const EntryFront *>(PyBytes_AS_STRING(message) + at)
        if end - at < sizeof(EntryFront):
            return None
        length = sizeof(EntryFront) + <size_t>front.block + front.value
        if not reached <= front.number < following or length > end - at:
            return None
        if found.count == 0:
            found.first = front.number
        found.count += 1
        found.last = front.number
        found.size += <size_t>front.block + front.value
        reached = front.number + 1
        at += padded(front)
    found.is_run = found.count > 0 and found.last - found.first == found.count - 1
    return found
