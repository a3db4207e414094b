# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Keeps copies of guaranteed messages; the stub has the documentation."""
cimport cython
from libc.stdint cimport int64_t, uint64_t

from ipcbus.wire.topic_places cimport place_of


cdef class MessageSaver:
    def __init__(self, area_save, lock, int mode=0, int64_t timeout_ns=0):
        self.area_save, self.acquire, self.release = area_save, lock.acquire, lock.release
        self.mode, self.timeout_ns = mode, timeout_ns
        self.length_max = <uint64_t>-1

    @cython.final
    cdef uint64_t save(
        self, int mode, int64_t timeout_ns, int64_t send_time_ns, uint64_t first, uint64_t count, bytes block, bytes data
    ) except 0:
        cdef uint64_t number
        self.acquire()
        try:
            if self.closes or mode != self.mode or timeout_ns != self.timeout_ns:
                self._change_terms(mode, timeout_ns)
                self.mode, self.timeout_ns = mode, timeout_ns
            self.place = place_of(first, count)
            number = self.area_save(mode, self.place, send_time_ns, block, data)
            self.sends = True
        finally:
            self.release()
        return number

    @cython.final
    cdef int sent(self, uint64_t number, uint64_t first, uint64_t last) except -1:
        if place_of(first, last - first + 1) != self.place:
            self._correct_place(number, place_of(first, last - first + 1))
        self.sends = False
        if self.closes or not self.watches:
            self._after_send()
        return 0

    def _unsave(self, number):
        raise NotImplementedError

    def _change_terms(self, mode, timeout_ns):
        raise NotImplementedError

    def _correct_place(self, number, place):
        raise NotImplementedError

    def _after_send(self):
        raise NotImplementedError
