# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, auto_pickle=False
"""Memory of long messages that nothing refers to any more, for the next ones; the stub has the documentation."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject

from ringbuf._long_copy cimport LONG_COPY, LONG_MESSAGE, copy_message
from ringbuf.free_threads cimport is_sole

cdef enum:
    SPARES_MAX = 6
    SPARE_BYTES_MAX = 1 << 25

cdef extern from *:
    """
/* Else bytes would remember the hash of their former content. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void ib_forget_hash(PyObject *o) { ((PyBytesObject *)o)->ob_shash = -1; }
#pragma GCC diagnostic pop
    """
    void forget_hash "ib_forget_hash"(PyObject *o) noexcept

cdef extern from "Python.h":
    PyObject *PyList_GET_ITEM(list, Py_ssize_t) noexcept
    Py_ssize_t Py_SIZE(PyObject *) noexcept


@cython.final
cdef class Spares:
    cdef list made      # what `room_for` made last, in use or not; nothing else refers to this list
    cdef list used      # for each of them, whether it was given out since the last `drop_unused`
    cdef int oldest

    def __cinit__(self):
        self.made, self.used = [], []

    cdef bytes take(self, Py_ssize_t length):
        """Returns bytes that nothing refers to; None without such."""
        cdef PyObject *found
        for place in range(len(self.made)):
            found = PyList_GET_ITEM(self.made, place)
            if Py_SIZE(found) == length and is_sole(found):
                forget_hash(found)
                self.used[place] = True
                return <bytes>found
        return None

    cdef object keep(self, bytes room):
        """Keeps new bytes, instead of the oldest ones if there are too many; returns these, to be freed by the caller."""
        cdef object before = None
        if len(self.made) < SPARES_MAX:
            self.made.append(room)
            self.used.append(True)
        else:
            before, self.made[self.oldest], self.used[self.oldest] = self.made[self.oldest], room, True
            self.oldest = (self.oldest + 1) % SPARES_MAX
        return before


cdef Spares _spares = Spares()


cdef bytes room_for(Py_ssize_t length):
    cdef bytes room = None
    cdef object before
    if not LONG_MESSAGE <= length <= SPARE_BYTES_MAX:
        return PyBytes_FromStringAndSize(NULL, length)
    with cython.critical_section(_spares):
        room = _spares.take(length)
    if room is None:
        room = PyBytes_FromStringAndSize(NULL, length)
        with cython.critical_section(_spares):
            before = _spares.keep(room)     # freed behind the section
    return room


cdef bytes long_copy(const char *start, Py_ssize_t length):
    cdef bytes own = room_for(length)
    copy_message(PyBytes_AS_STRING(own), start, length, LONG_COPY)
    return own


def copy_of(bytes data not None):
    return long_copy(PyBytes_AS_STRING(data), len(data))


def drop(*, bint unused_only=False):
    with cython.critical_section(_spares):
        made, used = _spares.made, _spares.used
        kept = [place for place in range(len(made)) if used[place] and unused_only]
        _spares.made, _spares.used, _spares.oldest = [made[place] for place in kept], [False] * len(kept), 0
    return len(kept)
