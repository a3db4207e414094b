from libc.stdint cimport uint64_t

from ipcbus.wire.control_front cimport FrameTaker

cdef class ResponseTaker(FrameTaker):
    cdef object deliver
    cdef object count

    cdef long give(self, uint64_t number, data) except -1
