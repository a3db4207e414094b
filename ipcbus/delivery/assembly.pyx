# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Fragments into one message; see the stub for the words."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from libc.string cimport memcpy


cdef class Assembly:
    def __init__(self, uint64_t total):
        self.own = PyBytes_FromStringAndSize(NULL, total)
        self.total = total

    def put(self, uint64_t offset, piece):
        cdef Py_buffer view
        PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE)
        try:
            if offset > self.total or <uint64_t>view.len > self.total - offset:
                raise ValueError(f"bytes {offset} to {offset + view.len} lie outside of a message of {self.total}")
            memcpy(PyBytes_AS_STRING(self.own) + offset, view.buf, view.len)
            self.filled += view.len
        finally:
            PyBuffer_Release(&view)

    def bytes(self):
        if self.filled != self.total:
            raise ValueError(f"{self.filled} of {self.total} bytes were put")
        return self.own
