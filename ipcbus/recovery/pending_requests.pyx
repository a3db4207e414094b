# cython: language_level=3, embedsignature=True
"""The requests of a context that wait for responses; the stub has the documentation."""
cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

FOREVER_NS = INT64_MAX


@cython.final
@cython.freelist(64)
cdef class Pending:
    cdef object asker
    cdef bint is_single
    cdef int64_t until_ns


# A block under `with cython.critical_section` runs no Python code and frees no object that could run some.


cdef class PendingRequests:
    def __init__(self, uint64_t first_number, Py_ssize_t maximum):
        self.first = self.following = first_number
        self.maximum = maximum
        self.waiting = {}
        self.due_ns = INT64_MAX

    def __class_getitem__(cls, _):
        return cls

    def __len__(self):
        return len(self.waiting)

    def askers(self):
        cdef Pending pending
        found = []
        for each in list(self.waiting.values()):
            pending = <Pending>each
            found.append(pending.asker)
        return found

    cpdef object begin(self, asker, bint is_single, int64_t until_ns=INT64_MAX):
        cdef Pending pending = Pending.__new__(Pending)
        cdef object number = None
        pending.asker, pending.is_single, pending.until_ns = asker, is_single, until_ns
        with cython.critical_section(self):
            if len(self.waiting) < self.maximum:
                number = self.following
                self.following += 1     # wraps around
                self.begun += 1
                self.waiting[number] = pending
                self.due_ns = min(self.due_ns, until_ns)
        return number

    cpdef object take_response(self, uint64_t number):
        cdef object pending
        with cython.critical_section(self):
            pending = self.waiting.get(number)
            if pending is not None:
                self.responses += 1
                if (<Pending>pending).is_single:
                    del self.waiting[number]
            # As many numbers as requests begun were given, in order from the first one on.
            elif number - self.first < self.begun:
                self.late += 1
            else:
                self.unknown += 1
        return None if pending is None else (<Pending>pending).asker

    cpdef bint end(self, uint64_t number) except? True:
        cdef object pending
        with cython.critical_section(self):
            pending = self.waiting.pop(number, None)
        return pending is not None

    def end_due(self, int64_t now_ns):
        cdef list due = []
        cdef int64_t due_ns = INT64_MAX
        cdef Pending pending
        if now_ns < self.due_ns:
            return due
        with cython.critical_section(self):
            for number, each in list(self.waiting.items()):
                pending = <Pending>each
                if pending.until_ns <= now_ns:
                    due.append(pending.asker)
                    del self.waiting[number]
                else:
                    due_ns = min(due_ns, pending.until_ns)
            self.due_ns = due_ns
        return due

    @property
    def check_at_ns(self):
        return self.due_ns if self.waiting else INT64_MAX
