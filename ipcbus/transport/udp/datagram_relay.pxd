from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.reliability.retransmit_window cimport RetransmitWindow
from ipcbus.transport.udp.mmsg cimport BATCH, Batched, SocketAddress
from ringbuf.answer_wait cimport AnswerWait
from ringbuf.ring cimport RingReader, RingWriter

# What a fetch returns; the stub has the meanings.
cdef enum:
    FETCH_CAME = 1
    FETCH_NOTHING = 0
    FETCH_HAS_MORE = -1
    FETCH_LEFT = -2

cdef struct Moved:
    int count
    Py_ssize_t size, longest

cdef class DatagramFetcher:
    cdef Batched arrivals
    cdef SocketAddress sender
    cdef uint32_t session_id
    cdef RingWriter writer      # of the ring to which `fetch` moves datagrams; None while it moves none
    cdef uint64_t number, trail_max, room_min
    cdef Py_ssize_t due         # what `charged` says when an ACK is due
    cdef Moved moved            # since `direct`
    cdef bytes ack              # an ACK to fill in; None where the state machine makes each one
    cdef Batched socket         # sends it
    cdef RingReader reader      # of the ring
    cdef Py_ssize_t longest, share, step
    cdef Py_ssize_t promised    # what can have come in all by the last ACK, as `arrived` counts it
    cdef Py_ssize_t charged_then
    cdef int acks               # sent since `direct`
    cdef Py_ssize_t charged(self) noexcept
    cdef Py_ssize_t arrived(self) noexcept
    cdef bint acknowledge(self)
    cdef int fetch_some(self) except -9

cdef class RecordSender:
    cdef RingReader reader
    cdef RetransmitWindow window
    cdef uint32_t session_id
    cdef Batched socket
    cdef tuple addresses
    cdef SocketAddress names[BATCH]
    cdef uint64_t limit, mask
    cdef uint64_t ask_at        # the position of the window at which to look for ACKs
    cdef object lock, published, keep, on_room
    cdef AnswerWait answers     # learns of each call, unless None
    cdef public bint ready
    cdef bint sending           # a thread is in `send_waiting`
    cdef int count              # of what was sent and not settled
    cdef uint64_t size
    cdef readonly int64_t sent_ns
    cdef bint send_directly(self) except -1
    cdef bint send_waiting(self, list left, bint *event) except -1
