# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""membarrier and futex; the stub has the documentation."""
from libc.stdint cimport int64_t, uint32_t

cdef extern from *:
    """
#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
/* Values of linux/membarrier.h, which older headers lack. */
enum { IB_GLOBAL_EXPEDITED = 2, IB_REGISTER_GLOBAL_EXPEDITED = 4 };
static int ib_membarrier(int command) {
#ifdef SYS_membarrier
    return (int)syscall(SYS_membarrier, command, 0, 0);
#else
    (void)command;
    return -1;
#endif
}
static void ib_futex_wait(void *word, uint32_t value, int64_t timeout_ns) {
    struct timespec t = { timeout_ns / 1000000000, timeout_ns % 1000000000 };
    syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ns < 0 ? (struct timespec *)0 : &t, (void *)0, 0);
}
static int ib_futex_wake(void *word, int most) {
    return (int)syscall(SYS_futex, word, FUTEX_WAKE, most, (void *)0, (void *)0, 0);
}
    """
    int ib_membarrier(int command) noexcept nogil
    void ib_futex_wait(void *word, uint32_t value, int64_t timeout_ns) noexcept nogil
    int ib_futex_wake(void *word, int most) noexcept nogil
    int INT_MAX
    int IB_GLOBAL_EXPEDITED, IB_REGISTER_GLOBAL_EXPEDITED

cpdef bint asymmetric() noexcept nogil:
    # Called each time: the registration belongs to the address space, and this may be the child of a fork.
    return ib_membarrier(IB_REGISTER_GLOBAL_EXPEDITED) == 0


cpdef bint barrier() noexcept nogil:
    return ib_membarrier(IB_GLOBAL_EXPEDITED) == 0


cdef void futex_wait(void *word, uint32_t value, int64_t timeout_ns) noexcept nogil:
    ib_futex_wait(word, value, timeout_ns)


cdef void futex_wake_all(void *word) noexcept nogil:
    ib_futex_wake(word, INT_MAX)


cdef int futex_wake(void *word, int most) noexcept nogil:
    """Wakes at most so many that wait; returns how many it woke."""
    return ib_futex_wake(word, most)
