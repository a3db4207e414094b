from ipcbus.delivery.message_queue cimport MessageQueue
from ipcbus.delivery.pump cimport Pump
from ipcbus.delivery.sink cimport Sink

cdef class Puller:
    cdef Pump pump
    cdef Sink sink
    cdef MessageQueue queue
    cdef object shorten         # takes the frames of this package out of the traceback of a KeyboardInterrupt
    cdef object rows_lock       # held by the thread whose array gets messages
    cdef bint acknowledges      # each pull acknowledges those before it, in Python
    cdef bint may_drive         # messages wait in this queue, not in an event queue
    cdef object error           # a BaseException that the next call raises, in Python

    cdef object take(self)
    cdef object wait_for_one(self, timeout)
    cdef list wait_for_many(self, limit, timeout)
    cdef object fill_array(self, array, timeout)
    cdef double fill(self, timeout, long most, bint copies_all=*) except? -2


cdef class Pulls:
    cdef Puller puller
