from ringbuf.memory cimport Mapping

cdef class SharedWords:
    cdef Mapping mapping
    cdef char *_at(self, size_t offset, size_t width, bint write) except NULL
