from ipcbus.wire.control_front cimport FrameTaker

cdef class WorkTaker(FrameTaker):
    cdef dict members       # by topic and instance
