from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from ringbuf.free_threads cimport is_sole
from ringbuf.memory cimport Mapping

cdef class SecondMapping:
    cdef char *base
    cdef size_t mapped              # bytes of address space: twice the data
    cdef Mapping first_mapping                 # the mapping of the same pages, which is marked as damaged
    cdef int region
    cdef unsigned char *replaced       # by page: whether private memory is there instead of the ring
    cdef uint32_t replacements            # number of replacements; each may split the system's list of mappings
    cdef uint32_t kept_loans              # atomic: ended loans whose pages an array still shows

    cdef bint is_replaced(self, size_t first, size_t length) noexcept
    cdef int replace_range(self, size_t first, size_t length, const char *content) except -1

cdef class Loan:
    cdef char *start
    cdef Py_ssize_t length
    cdef Lender lender              # until a thread settles it: an array that is kept must not keep the reader
    cdef SecondMapping second_mapping
    cdef bint writes
    cdef uint32_t exports           # atomic: number of views; until SETTLED is set the lender counts as one

    cpdef bint settle(self) except -1
    cdef bint end(self, Lender lender) except -1
    cdef int replace_pages(self, Lender lender) except -1

cdef class Lender:
    cdef Mapping mapping
    cdef char *data
    cdef size_t capacity
    cdef SecondMapping second_mapping
    cdef Loan current_loan          # the loan that is not settled
    cdef uint32_t copies_after_kept, copies_left    # number of views that are copies after a kept one, and of those to come
    cdef bint writes                # the application writes to the lent bytes
    cdef bint impossible            # the system refuses a second mapping
    cdef readonly uint64_t kept_loans
    cdef object on_kept

    cdef Loan lend(self, const char *start, Py_ssize_t length)
    cdef Loan make_loan(self, const char *start, Py_ssize_t length)

cdef inline int end_view(PyObject *view) except -1:
    """Releases a view of a loan; without other references the view ends when the caller forgets it."""
    if not is_sole(view):
        try:
            (<object>view).release()
        except BufferError:
            pass  # an array that was made from it is still in use
    return 0


cdef int own_pages(char *start, size_t length, const char *content) except -1
