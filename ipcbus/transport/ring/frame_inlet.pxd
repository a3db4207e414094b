from libc.stdint cimport uint64_t

from ipcbus.wire.control_front cimport FrameTaker
from ringbuf.pipe cimport Pipe
from ringbuf.shared_words cimport WatchedWord

cdef class SessionInlet(WatchedWord):
    cdef uint64_t *calls
    cdef const uint64_t *channel_words[64]
    cdef uint64_t settled_words[64]
    cdef list takers            # by kind
    cdef list pipes             # by slot; None where Python handles all calls
    cdef list peers
    cdef list call_receivers
    cdef int slots
    cdef int taking             # calls of `take` that have not returned

    cdef long take_all(self, int slot, bint *left) except -1

cdef class SourceInlet(WatchedWord):
    cdef Pipe pipe
    cdef list takers            # by kind
    cdef object peer, call_source

cdef long take_frame(Pipe pipe, list takers, object peer) except -2
