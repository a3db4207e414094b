# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""System calls on files; the stub documents them."""
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from posix.types cimport off_t
from posix.unistd cimport pwrite

import os

cdef extern from "<fcntl.h>" nogil:
    int fallocate(int fd, int mode, off_t offset, off_t length)
    int FALLOC_FL_KEEP_SIZE
    int AT_EMPTY_PATH

cdef extern from "<sys/stat.h>" nogil:
    ctypedef struct Looked "struct statx":
        unsigned int stx_nlink
    int statx(int fd, const char *path, int flags, unsigned int mask, Looked *found)
    unsigned int STATX_NLINK


cdef int write_fully(int fd, const char *data, size_t length, int64_t offset) noexcept nogil:
    """Writes all of the data, in several calls where one writes less; returns whether that worked."""
    cdef Py_ssize_t written
    while length:
        written = pwrite(fd, data, length, offset)
        if written <= 0:
            if written < 0 and errno == EINTR:
                continue
            return False
        data += written
        offset += written
        length -= <size_t>written
    return True


def allocate(int fd, int64_t offset, int64_t length):
    cdef int failed, code
    while True:
        with nogil:
            failed = fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, length)
            code = errno
        if not failed:
            return
        if code != EINTR:
            raise OSError(code, os.strerror(code))


def links(int fd):
    cdef Looked found
    if statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &found):
        raise OSError(errno, os.strerror(errno))
    return found.stx_nlink
