from libc.stdint cimport uint64_t

from ipcbus.delivery.pump cimport Pump
from ipcbus.delivery.sink cimport Sink

cdef class Puller:
    cdef Pump pump
    cdef Sink sink
    cdef object queue
    cdef object pops            # popleft of the queue
    cdef object take_slowly, take_many_slowly   # Python's parts of `take` and `take_many`
    cdef bint may_drive         # messages wait in this queue, not in an event queue
    cdef uint64_t share_ends    # when a task of asyncio that takes has to let others run
    cdef public object error    # a BaseException that the next call raises, in Python

    cdef object pop(self)
    cdef double fill(self, timeout) except? -2
