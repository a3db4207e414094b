from libc.stdint cimport uint64_t

cdef class RetransmitWindow:
    cdef readonly uint64_t position, span, lead, trail, bytes
    cdef uint64_t size, limit, prefix
    cdef list held          # by number, modulo its length, which is a power of two
    cdef list spares        # long datagrams of one length that have left; None where nothing asks for room
    cdef uint64_t *positions
    cdef int drop_oldest(self) except -1
    cdef int grow(self) except -1
    cdef int put(self, bytes datagram) except -1
    cdef bytes room_for(self, Py_ssize_t size)
