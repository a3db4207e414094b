from ipcbus.wire.control_front cimport FrameTaker

cdef class AckInlet(FrameTaker):
    cdef dict sources       # by topic number: saver, area, acks, events
