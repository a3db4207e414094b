from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

from ringbuf.lending cimport Lender, Loan

cdef class Origin:
    cdef readonly str topic
    cdef readonly str source

# What a compiled callback may read: the fields of `origin`, `kind`, `sequence`, `first_sequence`, `send_ticks`,
# `published_ticks`, `flags`, `following` and `fragment`, of whatever it is given; and where its bytes are by `message_value` and `message_block`, never by
# `start` and `own`, of which only one may be there. Both stay where they are until the callback returns.
cdef class Message:
    cdef Origin origin
    cdef int kind
    cdef uint64_t sequence, first_sequence, send_ticks
    cdef uint64_t published_ticks   # when its datagram was; 0 where that is not known
    cdef uint64_t following     # of EOS: the number that the next message would have had; 0 when that is not known
    cdef readonly int flags
    cdef const char *start      # in the ring or in the reader's copy, valid while `lent`
    cdef Py_ssize_t length      # of the value, without the header block
    cdef bint lent
    cdef Lender lender          # of the ring that `start` lies in; None when it lies in the reader's copy
    cdef Loan loan              # what `shown` shows, where that is the ring
    cdef bytes own              # the value, where the message has a copy of its own
    cdef bytes block            # the header block, checked; None without headers
    cdef object shown           # the memoryview given out, if any
    cdef object fragment        # a FragmentInfo, or None

    cdef int take_back(self) except -1
    cdef int keep(self) except -1
    cdef int take_view(self) except -1

cdef Message own_message(Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                         uint64_t send_ticks)
cdef Message message_with_headers(Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                                  uint64_t send_ticks)


cdef inline const char *message_value(Message message, Py_ssize_t *length) noexcept:
    """Where the bytes of a message are, without its headers; an event has none."""
    length[0] = message.length
    if message.own is None:
        return message.start
    return PyBytes_AS_STRING(message.own)


cdef inline const char *message_block(Message message, Py_ssize_t *length) noexcept:
    """Where the header block of a message is; NULL and 0 without headers."""
    if message.block is None:
        length[0] = 0
        return NULL
    length[0] = PyBytes_GET_SIZE(message.block)
    return PyBytes_AS_STRING(message.block)


cdef inline Py_ssize_t message_bytes(Message message) noexcept:
    """Length of value and header block, as counters count it."""
    return message.length + (0 if message.block is None else PyBytes_GET_SIZE(message.block))
