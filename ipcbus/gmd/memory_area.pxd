from ipcbus.gmd.copy_area cimport CopyArea

cdef class MemoryArea(CopyArea):
    cdef dict messages
