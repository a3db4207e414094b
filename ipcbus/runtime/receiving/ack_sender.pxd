from libc.stdint cimport uint32_t, uint64_t

from ipcbus.delivery.gmd_gate cimport ShortWay
from ipcbus.gmd.acknowledged_floor cimport AcknowledgedFloor
from ipcbus.transport.ring.response_frames cimport ResponseWriter

cdef class AckSender(ShortWay):
    cdef uint32_t topic
    cdef uint64_t instance, incarnation
    cdef AcknowledgedFloor floor
    cdef ResponseWriter writer
