from ipcbus.wire.control_front cimport FrameTaker

cdef class ResponseTaker(FrameTaker):
    cdef object deliver
    cdef object count
