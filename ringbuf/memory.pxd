from libc.stdint cimport uint32_t

cdef class Mapping:
    cdef char *base
    cdef size_t mapped          # bytes of address space
    cdef readonly size_t size   # bytes of the object
    cdef readonly bint writable
    cdef uint32_t cut_short     # written by the handler of SIGBUS: pages were missing, and are zeros of this process now
    cdef int region             # where the handler knows the mapping
    cdef int _map(self, void *at, size_t length, int prot, int fd, size_t offset) except -1

cdef int noted(char *base, size_t length, uint32_t *damaged) noexcept
cdef void forgotten(int region) noexcept

cdef class Window:
    cdef char *start
    cdef Py_ssize_t length
    cdef bint writable
    cdef Mapping mapping

cdef object window_view(Mapping mapping, char *start, Py_ssize_t length, bint writable)
