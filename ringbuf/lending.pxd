from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from ringbuf.memory cimport Mapping

cdef class Twin:
    cdef char *base
    cdef size_t mapped              # bytes of address space: the data twice
    cdef Mapping of                 # the mapping of the same pages, which is told of damage
    cdef int region
    cdef unsigned char *taken       # by page: memory of its own lies there instead of the ring's
    cdef uint32_t pieces            # how often pages were replaced; each may split the system's list of mappings
    cdef uint32_t kept              # atomic: loans with pages of their own that somebody still looks at

    cdef bint is_taken(self, size_t first, size_t length) noexcept
    cdef int replace(self, size_t first, size_t length, const char *content) except -1

cdef class Loan:
    cdef char *start
    cdef Py_ssize_t length
    cdef Lender lender              # until it is settled: what is kept must not keep the reader
    cdef Twin twin
    cdef bint writes
    cdef uint32_t exports           # atomic: how many look at it, the lender among them until SETTLED is set

    cpdef bint settle(self) except -1
    cdef bint end(self) except -1
    cdef int secure(self) except -1

cdef class Lender:
    cdef Mapping mapping
    cdef char *data
    cdef size_t capacity
    cdef Twin twin
    cdef Loan out                   # what is lent now
    cdef uint32_t patience, copies  # so many views are copies before one is lent again, and so many still to come
    cdef bint writes                # the application writes to what it is lent
    cdef bint impossible            # the system makes no second mapping
    cdef readonly uint64_t kept
    cdef object on_kept

    cdef Loan lend(self, const char *start, Py_ssize_t length)

cdef int own_pages(char *start, size_t length, const char *content) except -1
