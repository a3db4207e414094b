# What an event buffer keeps: chains of entries.

# Trashcan: a long chain must not be freed by recursion.
@cython.final
@cython.freelist(512)
@cython.trashcan(True)
cdef class Entry:
    pass


# Not cleared by the garbage collector, so that it can take itself apart: some interpreters free 10,000 entries by recursion.
@cython.final
@cython.no_gc_clear
cdef class Chain:
    def __dealloc__(self):
        while self.first is not None:
            self.pop()

    cdef inline void append(self, Entry entry) noexcept:
        if self.first is None:
            self.first = entry
        else:
            self.last.next = entry
        self.last = entry

    cdef inline Entry pop(self):
        cdef Entry entry = self.first
        self.first = entry.next
        if self.first is None:
            self.last = None
        entry.next = None
        return entry


@cython.final
cdef class LastEvents:
    """The last loss, end and beginning of one topic that wait behind all messages."""
