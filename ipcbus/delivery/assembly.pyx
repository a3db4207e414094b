# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Puts the fragments of a message together; the stub has the documentation."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from ringbuf._long_copy cimport copy_in_caches

from ipcbus.delivery.spare_bytes cimport own_bytes, room_for
from ipcbus.wire._wire_layout cimport (
    FLAG_GUARANTEED, FLAG_PROPERTIES, FLAG_REQUEST, GUARANTEED_HEADER_BYTES, MESSAGE_MAX, REQUEST_HEADER_BYTES,
    FragmentHeader,
)
from ipcbus.wire.properties cimport block_check


cdef enum:
    OWN_BYTES = 512     # about the memory of an incomplete message besides its bytes


cdef class MemoryBudget:
    def __init__(self, uint64_t bytes_max):
        self.bytes_max = bytes_max

    cpdef bint reserve(self, uint64_t message_bytes):
        # A message as long as the limit fits, so its own overhead does not count.
        if self.bytes + message_bytes > self.bytes_max:
            return False
        self.bytes += message_bytes + OWN_BYTES
        return True

    cpdef int release(self, uint64_t message_bytes) except -1:
        self.bytes -= message_bytes + OWN_BYTES
        return 0


cdef class Assembly:
    def __init__(self, uint64_t total):
        self.own = room_for(total)
        self.total = total

    def put(self, uint64_t offset, piece):
        cdef Py_buffer view
        PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE)
        try:
            if offset > self.total or <uint64_t>view.len > self.total - offset:
                raise ValueError(f"bytes {offset} to {offset + view.len} lie outside of a message of {self.total}")
            copy_in_caches(PyBytes_AS_STRING(self.own) + offset, <const char *>view.buf, view.len)
            self.filled += view.len
        finally:
            PyBuffer_Release(&view)

    cdef void put_next(self, const char *piece, uint32_t length, int flags) noexcept:
        """Copies the fragment that `is_next` has found."""
        copy_in_caches(PyBytes_AS_STRING(self.own) + self.filled, piece, length)
        self.filled += length
        self.flags |= flags

    def bytes(self):
        if self.filled != self.total:
            raise ValueError(f"{self.filled} of {self.total} bytes were put")
        return self.own

    def parts(self, int flags):
        cdef const char *start = PyBytes_AS_STRING(self.bytes())
        cdef Py_ssize_t asks = REQUEST_HEADER_BYTES * (flags & FLAG_REQUEST != 0)
        cdef Py_ssize_t head = asks + GUARANTEED_HEADER_BYTES * (flags & FLAG_GUARANTEED != 0), front = head
        cdef uint64_t number = 0, gmd_number = 0
        request = block = None
        if not flags & (FLAG_REQUEST | FLAG_GUARANTEED | FLAG_PROPERTIES):
            return None, 0, None, self.own
        if self.total < <uint64_t>head:
            return None
        if asks:
            memcpy(&number, start, asks)
            request = number
        if head > asks:
            memcpy(&gmd_number, start + asks, head - asks)
            if gmd_number == 0:
                return None
        if flags & FLAG_PROPERTIES:
            front += block_check(start + head, self.total - head)
            if front == head:
                return None
            block = PyBytes_FromStringAndSize(start + head, front - head)   # a copy; a slice of all bytes would be the object itself
        value = own_bytes(start + front, self.total - front)
        self.own = None
        self.total = self.filled = 0
        return request, gmd_number, block, value


cdef Assembly open_assembly(
    MemoryBudget budget, const FragmentHeader *header, uint32_t length, uint64_t sequence, uint64_t send_ticks
):
    """Returns an assembly in order for the first fragment of a message; None when it is not one, or has no memory."""
    cdef Assembly assembly
    if header.first != sequence or header.offset or header.total > MESSAGE_MAX or length >= header.total:
        return None
    if not budget.reserve(header.total):
        return None
    try:
        assembly = Assembly(header.total)
    except MemoryError:
        budget.release(header.total)
        return None
    assembly.first, assembly.piece_bytes, assembly.send_ticks = sequence, length, send_ticks
    return assembly
