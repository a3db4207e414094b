from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

from ipcbus.wire._wire_layout cimport GUARANTEED_HEADER_BYTES, REQUEST_HEADER_BYTES
from ipcbus.wire.control_front cimport EntryFront
from ringbuf.lending cimport Lender, Loan

cdef enum:
    KIND_REQUEST = 2
    KIND_RESPONSE = 3
    KIND_GMD_FAILURE = 100
    UMQ_REASSIGNED = 0x20000    # MessageFlag.UMQ_REASSIGNED
    UMQ_ULB = 0x40000           # MessageFlag.UMQ_ULB

cdef class QuickResponder:
    cdef bint respond_now(self, uint64_t request, bytes data) except? True

cdef class Origin:
    cdef readonly str topic
    cdef readonly str source
    cdef readonly int64_t number    # of the topic in its session, which gives none twice; -1 where it does not matter
    cdef public object responder    # takes the responses to its requests (delivery.slow_path.Responder); None without one
    cdef readonly str gmd_sender    # the gmd_name of the source, once a named receiver is registered there; else None
    cdef readonly uint64_t gmd_incarnation      # of its area; 0 without one

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
    cdef bint has_sender        # it is guaranteed to its receiver, which has a name: the origin says by whom
    cdef bint lent
    cdef Lender lender          # lends parts of the ring that `start` lies in; None for the reader's copy
    cdef Loan loan              # the loan behind `given_view`, where it shows the ring
    cdef bytes own              # the value, where the message has a copy of its own
    cdef bytes block            # the header block, checked; None without headers
    cdef object given_view      # the memoryview that `view` returned, if any
    cdef object fragment        # a FragmentInfo, or None

    cdef bytes own_data(self)
    cdef object make_view(self)
    cdef object take_gate(self)
    cdef object gate_now(self)
    cdef bint withdraw(self, gate) except -1
    cdef object require_request(self)
    cdef int reset(self) except -1
    cdef Message copy(self)
    cdef int copy_to(self, Message message) except -1
    cdef int detach(self) except -1
    cdef int release_view(self) except -1

cdef Message own_message(Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                         uint64_t send_ticks)
cdef int fill_own(Message message, Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                  uint64_t send_ticks) except -1
cpdef Message whole_message(
    Origin origin, bytes own, uint64_t first, uint64_t last, int flags, uint64_t send_ticks, fragment, bytes block=*,
    uint64_t published_ticks=*, request=*, uint64_t gmd_number=*,
)
cpdef Message response(Origin origin, data, uint64_t request)
cdef Message message_with_front(Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                                uint64_t send_ticks)


cdef Message resent_copy(Origin origin, const EntryFront *front, uint64_t opening)


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


cdef inline bint make_spare(Message message) noexcept:
    """Makes a message without other references ready for `fill_own`; returns False if it was more than its bytes."""
    if message.kind != 0 or message.block is not None or message.gmd_number or message.fragment is not None or message.lent:
        return False
    message.given_view = None
    message.own = None
    message.origin = None   # leads to the session
    message.published_ticks = 0
    return True


cdef inline Py_ssize_t value_and_headers(Message message) noexcept:
    return message.length + (0 if message.block is None else PyBytes_GET_SIZE(message.block))


cdef inline size_t bytes_of(object message) noexcept:
    """Returns the bytes that what waits in a queue takes, about; an event takes none."""
    return value_and_headers(<Message>message) if isinstance(message, Message) else 0


cdef inline Py_ssize_t message_bytes(Message message) noexcept:
    """Returns the length of the value and of all headers in bytes, as counters count it."""
    return (
        value_and_headers(message)
        + REQUEST_HEADER_BYTES * (message.kind == KIND_REQUEST) + GUARANTEED_HEADER_BYTES * (message.gmd_number != 0)
    )
