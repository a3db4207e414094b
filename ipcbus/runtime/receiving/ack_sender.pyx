# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Acknowledgements in order, from a gate to the area and into a pipe; the stub has the documentation."""
from libc.stdint cimport uint32_t, uint64_t

from ipcbus.errors import GmdError
from ipcbus.gmd.acknowledged_floor cimport AcknowledgedFloor
from ipcbus.transport.ring.response_frames cimport ResponseWriter, put_ack


cdef class AckSender(ShortWay):
    def __init__(self, uint32_t topic, uint64_t instance):
        self.topic, self.instance = topic, instance

    def use(self, AcknowledgedFloor floor, uint64_t incarnation, ResponseWriter writer):
        self.floor, self.incarnation, self.writer = floor, incarnation, writer

    cdef bint acknowledge(self, uint64_t first, uint64_t last, uint64_t next_number) except? True:
        cdef AcknowledgedFloor floor = self.floor
        cdef uint64_t recorded
        if floor is None or self.writer is None or last >= next_number or not floor.take(first, last):
            return False
        try:
            floor.record()
        except GmdError:
            return False
        recorded = floor.recorded
        if not put_ack(self.writer, self.topic, self.instance, self.incarnation, floor.sent + 1, recorded):
            return False
        floor.sent = recorded
        return True
