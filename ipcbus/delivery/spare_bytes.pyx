# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True, auto_pickle=False
"""Memory of long messages that nothing refers to any more, for the next ones; the stub has the documentation."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject

from ringbuf._long_copy cimport LONG_COPY, LONG_MESSAGE, copy_message
from ringbuf.free_threads cimport is_sole

cdef enum:
    SPARES_MAX = 6
    SPARE_BYTES_MAX = 1 << 25
    HUGE_FROM = 1 << 22         # from this length on, new memory asks for huge pages: without them each 4 KiB is a page fault

cdef extern from *:
    """
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
/* Gives bytes that nothing else refers to another length, and forgets the hash of their former content. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void ib_set_length(PyObject *o, Py_ssize_t length) {
    Py_SET_SIZE((PyVarObject *)o, length);
    PyBytes_AS_STRING(o)[length] = 0;
    ((PyBytesObject *)o)->ob_shash = -1;
}
#pragma GCC diagnostic pop
/* A hint; without huge pages the memory is as before. */
static void ib_ask_for_huge_pages(char *start, size_t length) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = ((uintptr_t)start + page - 1) & -page;
    madvise((void *)first, ((uintptr_t)start + length - first) & -page, MADV_HUGEPAGE);
}
    """
    void ask_for_huge_pages "ib_ask_for_huge_pages"(char *start, size_t length) noexcept nogil
    void set_length "ib_set_length"(PyObject *o, Py_ssize_t length) noexcept

cdef extern from "Python.h":
    PyObject *PyList_GET_ITEM(list, Py_ssize_t) noexcept


cdef Py_ssize_t with_spare_room(Py_ssize_t length) noexcept:
    """Rounds a length up, by an eighth at most; memory that is never written takes no page."""
    cdef Py_ssize_t step = LONG_MESSAGE // 8
    while step * 16 <= length:
        step *= 2
    return min((length + step - 1) // step * step, <Py_ssize_t>SPARE_BYTES_MAX)


@cython.final
cdef class Spares:
    cdef list made      # what `room_for` made last, in use or not; nothing else refers to this list
    cdef Py_ssize_t[SPARES_MAX] room    # the length for which each of them has memory
    cdef bint[SPARES_MAX] used          # whether it was given out since the last `drop`
    cdef int next_place

    def __cinit__(self):
        self.made = []

    cdef bytes take(self, Py_ssize_t length):
        """Returns bytes that nothing refers to, with the least room that is enough; None without such."""
        cdef int place, best = -1
        for place in range(<int>len(self.made)):
            if length <= self.room[place] <= 2 * length and is_sole(PyList_GET_ITEM(self.made, place)):
                if best < 0 or self.room[place] < self.room[best]:
                    best = place
        if best < 0:
            return None
        self.used[best] = True
        set_length(PyList_GET_ITEM(self.made, best), length)
        return <bytes>PyList_GET_ITEM(self.made, best)

    cdef object keep(self, bytes found, Py_ssize_t room):
        """Keeps new bytes; returns those whose place they take, to be freed by the caller: unused ones, or the oldest."""
        cdef object before = None
        cdef int place = <int>len(self.made), each
        if place < SPARES_MAX:
            self.made.append(found)
        else:
            place = self.next_place
            for each in range(SPARES_MAX):
                if is_sole(PyList_GET_ITEM(self.made, each)):
                    place = each
                    break
            before, self.made[place] = self.made[place], found
        self.room[place], self.used[place] = room, True
        self.next_place = (place + 1) % SPARES_MAX
        return before

    cdef object leave(self, bint unused_only):
        """Drops what was not used, or everything; returns it, to be freed by the caller."""
        cdef list made = self.made, kept = []
        cdef int place
        for place in range(<int>len(made)):
            if self.used[place] and unused_only:
                self.room[len(kept)], self.used[len(kept)] = self.room[place], False
                kept.append(made[place])
        self.made, self.next_place = kept, 0
        return made


cdef Spares _spares = Spares()


cdef bytes room_for(Py_ssize_t length):
    cdef bytes found = None
    cdef object before
    cdef Py_ssize_t room
    if not LONG_MESSAGE <= length <= SPARE_BYTES_MAX:
        return PyBytes_FromStringAndSize(NULL, length)
    with cython.critical_section(_spares):
        found = _spares.take(length)
    if found is None:
        room = with_spare_room(length)
        found = PyBytes_FromStringAndSize(NULL, room)
        if room >= HUGE_FROM:
            ask_for_huge_pages(PyBytes_AS_STRING(found), room)
        set_length(<PyObject *>found, length)
        with cython.critical_section(_spares):
            before = _spares.keep(found, room)      # freed behind the section
    return found


cdef bytes long_copy(const char *start, Py_ssize_t length):
    cdef bytes own = room_for(length)
    copy_message(PyBytes_AS_STRING(own), start, length, LONG_COPY)
    return own


def copy_of(bytes data not None):
    return long_copy(PyBytes_AS_STRING(data), len(data))


def drop(*, bint unused_only=False):
    with cython.critical_section(_spares):
        before = _spares.leave(unused_only)     # freed behind the section
        left = len(_spares.made)
    del before
    return left
