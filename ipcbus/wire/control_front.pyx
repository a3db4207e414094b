# cython: language_level=3, embedsignature=True
"""The first 16 bytes of a control message, and what takes messages of a kind; the stub has the documentation."""
from cpython.bytes cimport PyBytes_FromStringAndSize


cdef class FrameTaker:
    def __init__(self, callback=None):
        self.callback = callback

    cdef bint takes(self, const ControlFront *front) noexcept:
        return front.zeros == 0

    cdef long take(self, object peer, const ControlFront *front, bytes rest) except -1:
        return self.callback(peer, PyBytes_FromStringAndSize(<const char *>front, sizeof(ControlFront)) + rest) or 0
