# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Looks at the locks of other processes without the interpreter; the stub has the documentation."""
cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>
static int ib_is_held(int fd, int64_t byte) {
    struct flock lock = { 0 };  /* l_pid has to be 0 */
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
    """
    int ib_is_held(int fd, int64_t byte) noexcept nogil


@cython.final
cdef class HeldLocks:
    def __cinit__(self, locks):
        cdef list found = list(locks)
        cdef int i, count = len(found)
        cdef Lock *made = <Lock *>malloc(max(count, 1) * sizeof(Lock))
        if made == NULL:
            raise MemoryError()
        self.locks = made
        for i in range(count):
            made[i].fd, made[i].byte = found[i]
        self.count = count

    def __dealloc__(self):
        free(self.locks)

    def all_held(self):
        return self.are_held()

    cdef bint are_held(self) noexcept nogil:
        cdef int i
        for i in range(self.count):
            if not ib_is_held(self.locks[i].fd, self.locks[i].byte):
                return False
        return True
