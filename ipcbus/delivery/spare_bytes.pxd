from cpython.bytes cimport PyBytes_FromStringAndSize

from ringbuf._long_copy cimport FROM_A_LINE

cdef bytes room_for(Py_ssize_t length)
cdef bytes long_copy(const char *start, Py_ssize_t length)


cdef inline bytes own_bytes(const char *start, Py_ssize_t length):
    """Returns a copy of these bytes."""
    return PyBytes_FromStringAndSize(start, length) if length < FROM_A_LINE else long_copy(start, length)
