# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The appending path of a receiver's area in files; the stub documents it."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport UINT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ipcbus.errors import GmdError
from ipcbus.storage.file_calls cimport write_fully
from ipcbus.storage.records import frame

FORGOTTEN = UINT64_MAX


cdef inline char *put(char *at, uint64_t number) noexcept:
    memcpy(at, &number, 8)
    return at + 8


def pack_state(str sender not None, uint64_t incarnation, uint64_t floor, ranges):
    cdef bytes name = sender.encode()
    cdef uint32_t count = len(ranges)
    cdef size_t length = 20 + 16 * <size_t>count + PyBytes_GET_SIZE(name)
    cdef bytes payload = PyBytes_FromStringAndSize(NULL, length)
    cdef char *start = PyBytes_AS_STRING(payload)
    cdef char *at = put(put(start, incarnation), floor)
    memcpy(at, &count, 4)
    at += 4
    for first, last in ranges:
        if at + 16 > start + length:
            raise ValueError("the ranges changed while they were recorded")
        at = put(put(at, first), last)
    memcpy(start + length - PyBytes_GET_SIZE(name), PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
    return payload


cdef class AcknowledgementAppender:
    def __init__(self, dict states not None, *, bint each):
        self.states, self.each = states, each
        self.fd = -1

    def begin_file(self, int descriptor, int64_t end, int64_t limit):
        self.fd, self.end, self.limit = descriptor, end, limit

    def refuse(self, str reason not None):
        self.refusal = reason

    def record(self, sender, incarnation, floor, ranges):
        self.append(pack_state(sender, incarnation, floor, ranges))
        self.states[sender, incarnation] = (floor, tuple(ranges))

    def forget(self, sender, incarnation):
        if (sender, incarnation) in self.states:
            self.append(pack_state(sender, incarnation, FORGOTTEN, ()))
            del self.states[sender, incarnation]

    cdef int append(self, bytes payload) except -1:
        cdef bytes data
        if self.refusal is not None:
            raise GmdError(self.refusal)
        if self.end > self.limit:
            self.make_room()
        data = frame(payload)
        if self.fd < 0 or not write_fully(self.fd, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), self.end):
            self.write_slowly(data)
        self.end += PyBytes_GET_SIZE(data)
        if self.each:
            self.sync()
        return 0

    def make_room(self):
        raise NotImplementedError

    def write_slowly(self, data):
        raise NotImplementedError

    def sync(self):
        raise NotImplementedError
