from libc.stdint cimport uint64_t

from ipcbus.delivery.linger cimport Linger
from ipcbus.delivery.message_queue cimport MessageQueue
from ipcbus.delivery.pump cimport Pump
from ipcbus.delivery.sink cimport Sink

cdef class AsyncMessages:
    cdef Pump pump
    cdef Sink sink
    cdef object wait, run_turn, made_room
    cdef MessageQueue queue
    cdef bint direct            # a task may read the rings itself
    cdef uint64_t share, linger # ticks
    cdef uint64_t share_ends    # when other tasks have to run
    cdef uint64_t taken_at      # when a message was taken last
    cdef Linger spins           # what steps that looked again before they waited have shown

    cdef object take(self)


cdef class Step:
    cdef AsyncMessages messages
    cdef object waiting         # the coroutine that waits for a message, where none was there
    cdef bint gave_way, done
    cdef uint64_t since         # when it began to look again, or to wait
    cdef uint64_t spin_ends     # when it ends to look again, if it does so for long; else 0
