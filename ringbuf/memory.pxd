from libc.stdint cimport uint64_t

cdef class Mapping:
    cdef char *base
    cdef size_t mapped          # bytes of address space
    cdef readonly size_t size   # bytes of the object
    cdef readonly bint writable
    cdef int _map(self, void *at, size_t length, int prot, int fd, size_t offset) except -1

cdef class Window:
    cdef char *start
    cdef Py_ssize_t length
    cdef bint writable
    cdef Mapping mapping

cdef object window_view(Mapping mapping, char *start, Py_ssize_t length, bint writable)
