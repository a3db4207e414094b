from libc.stdint cimport uint32_t

cdef class Mapping:
    cdef char *base
    cdef size_t mapped          # bytes of address space
    cdef readonly size_t size   # bytes of the object
    cdef readonly bint writable
    cdef uint32_t cut_short     # set by the handler of SIGBUS: pages were missing, and private zeros took their place
    cdef int region             # index of the mapping in the handler's table
    cdef int _map(self, void *at, size_t length, int prot, int fd, size_t offset) except -1

cdef int watch_region(char *base, size_t length, uint32_t *damaged) noexcept
cdef void unwatch_region(int region) noexcept

cdef class Window:
    cdef char *start
    cdef Py_ssize_t length
    cdef bint writable
    cdef Mapping mapping

cdef object window_view(Mapping mapping, char *start, Py_ssize_t length, bint writable)
