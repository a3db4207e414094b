# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Acknowledgements in order at a receiver; the stub has the documentation."""
from libc.stdint cimport uint64_t


cdef class AcknowledgedFloor:
    def __init__(self, area_record, str sender not None, uint64_t incarnation):
        self.area_record, self.sender, self.incarnation = area_record, sender, incarnation

    def begin(self, uint64_t floor):
        self.floor = self.recorded = self.sent = floor
        self.is_ready = True

    def pause(self):
        self.is_ready = False

    cpdef bint take(self, uint64_t first, uint64_t last) noexcept:
        if not self.is_ready or first != self.floor + 1 or last < first:
            return False
        self.floor = last
        return True

    cpdef record(self):
        cdef uint64_t floor = self.floor
        if floor > self.recorded:
            self.area_record(self.sender, self.incarnation, floor, ())
            self.recorded = floor
