from libc.stdint cimport int64_t, uint32_t

cpdef bint asymmetric() noexcept nogil
cpdef bint barrier() noexcept nogil
cdef void futex_wait(void *word, uint32_t value, int64_t timeout_ns) noexcept nogil
cdef void futex_wake_all(void *word) noexcept nogil
cdef int futex_wake(void *word, int most) noexcept nogil
