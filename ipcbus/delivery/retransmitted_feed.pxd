from libc.stdint cimport int64_t, uint64_t

from ipcbus.delivery.demux cimport Controller, Demux
from ipcbus.delivery.received_message cimport Message
from ipcbus.delivery.sink cimport Sink

cdef class RetransmittedFeed:
    cdef Demux demux
    cdef Controller controller
    cdef bytes entries          # of the current retransmission; None without one
    cdef const char *cursor     # the next entry
    cdef const char *end
    cdef uint64_t last          # the last number of the current retransmission
    cdef bint epoch             # send times are ns since the epoch, from another host
    cdef int flag               # the bit of MessageFlag that its messages get
    cdef Message spare_message
    cdef readonly uint64_t reached      # the numbers below it, of the current retransmission, are delivered or given up
    cdef readonly uint64_t messages     # delivered or put aside in the order map so far

    cdef bint next_entry(self, int64_t now_ns) except -1
    cdef int give(
        self, const char *payload, Py_ssize_t length, uint64_t sequence, int flags, uint64_t send_ticks
    ) except -1
    cdef int give_to(
        self, Sink sink, const char *payload, Py_ssize_t length, uint64_t sequence, int flags, uint64_t send_ticks
    ) except -1
    cdef int call_back(
        self, Sink sink, const char *payload, Py_ssize_t length, uint64_t sequence, int flags, uint64_t send_ticks
    ) except -1
