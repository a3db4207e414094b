from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

from ipcbus.wire._wire_layout cimport GUARANTEED_HEADER_BYTES, REQUEST_HEADER_BYTES
from ringbuf.lending cimport Lender, Loan

cdef enum:
    KIND_REQUEST = 2
    KIND_RESPONSE = 3

cdef class Origin:
    cdef readonly str topic
    cdef readonly str source
    cdef readonly int64_t number    # of the topic in its session, which gives none twice; -1 where it does not matter
    cdef public object responder    # takes the responses to its requests (delivery.slow_path.Responder); None without one

# A compiled callback may read these fields: `origin`, `kind`, `sequence`, `first_sequence`, `send_ticks`,
# `published_ticks`, `flags`, `following` and `fragment`. It finds the bytes by `message_value` and `message_block`, never
# by `start` and `own`, of which only one may be set. The bytes stay at their address until the callback returns.
cdef class Message:
    cdef Origin origin
    cdef int kind
    cdef uint64_t sequence, first_sequence, send_ticks
    cdef uint64_t published_ticks   # when its datagram was published; 0 where that is not known
    cdef uint64_t following     # for EOS: the number that the next message would have had; 0 when that is not known
    cdef readonly int flags     # bits of MessageFlag; not the flags on the wire, though 0x1, 0x2 and 0x10 are the same there
    cdef const char *start      # its bytes in the ring or in the reader's copy, valid while `lent`
    cdef Py_ssize_t length      # length of the value, without the headers before it
    cdef int64_t sent_epoch_ns  # when it was sent, in ns since the epoch, if it was sent again; else 0
    cdef uint64_t request       # the number of a request or response
    cdef object gate            # takes its acknowledgement (delivery.gmd_gate), until it is acknowledged or refused; or None
    cdef object ack_at_the_end  # acknowledges it when nothing refers to it any more; or None
    cdef uint64_t gmd_number    # the GMD number; 0 for a message that is not guaranteed
    cdef bint lent
    cdef Lender lender          # lends parts of the ring that `start` lies in; None for the reader's copy
    cdef Loan loan              # the loan behind `given_view`, where it shows the ring
    cdef bytes own              # the value, where the message has a copy of its own
    cdef bytes block            # the header block, checked; None without headers
    cdef object given_view      # the memoryview that `view` returned, if any
    cdef object fragment        # a FragmentInfo, or None

    cdef object require_request(self)
    cdef int reset(self) except -1
    cdef Message copy(self)
    cdef int detach(self) except -1
    cdef int release_view(self) except -1

cdef Message own_message(Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                         uint64_t send_ticks)
cpdef Message whole_message(
    Origin origin, bytes own, uint64_t first, uint64_t last, int flags, uint64_t send_ticks, fragment, bytes block=*,
    uint64_t published_ticks=*, request=*, uint64_t gmd_number=*,
)
cdef Message message_with_front(Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                                uint64_t send_ticks)


cdef inline const char *message_value(Message message, Py_ssize_t *length) noexcept:
    """Returns the value of a message, without its headers; an event has none."""
    length[0] = message.length
    if message.own is None:
        return message.start
    return PyBytes_AS_STRING(message.own)


cdef inline const char *message_block(Message message, Py_ssize_t *length) noexcept:
    """Returns the header block of a message; NULL and length 0 without headers."""
    if message.block is None:
        length[0] = 0
        return NULL
    length[0] = PyBytes_GET_SIZE(message.block)
    return PyBytes_AS_STRING(message.block)


cdef inline Py_ssize_t message_bytes(Message message) noexcept:
    """Returns the length of the value and of all headers in bytes, as counters count it."""
    return (
        message.length + (0 if message.block is None else PyBytes_GET_SIZE(message.block))
        + REQUEST_HEADER_BYTES * (message.kind == KIND_REQUEST) + GUARANTEED_HEADER_BYTES * (message.gmd_number != 0)
    )
