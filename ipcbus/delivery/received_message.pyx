# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, auto_pickle=False
"""What an application gets; see the stub for the words."""
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from ipcbus.delivery.message_types import MessageType
from ipcbus.wire._wire_layout cimport FLAG_PROPERTIES
from ipcbus.wire.properties cimport block_copy
from ipcbus.wire.properties import unpack
from ringbuf.clock cimport epoch_ns

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *o) noexcept

cdef dict _types = {int(kind): kind for kind in MessageType}
cdef object _data = MessageType.DATA


cdef class Origin:
    def __init__(self, str topic, str source):
        self.topic = topic
        self.source = source


cdef class Message:
    @property
    def type(self):
        return _data if self.kind == 0 else _types[self.kind]

    @property
    def data(self):
        if self.own is None:
            self.own = PyBytes_FromStringAndSize(self.start, self.length)
        return self.own

    @property
    def view(self):
        if self.shown is None:
            if self.lent and self.lender is not None:
                self.loan = self.lender.lend(self.start, self.length)
            self.shown = PyMemoryView_FromObject(self.loan if self.loan is not None else self.data)
        return self.shown

    @property
    def headers(self):
        return unpack(self.block) if self.block is not None else ()

    @property
    def properties_block(self):
        return self.block if self.block is not None else b""

    @property
    def topic(self):
        return self.origin.topic

    @property
    def source(self):
        return self.origin.source

    @property
    def sequence_number(self):
        return <int64_t>self.sequence

    @property
    def first_sequence_number(self):
        return <int64_t>self.first_sequence

    @property
    def send_time_ns(self):
        return epoch_ns(self.send_ticks) if self.send_ticks else 0

    @property
    def fragment_info(self):
        return self.fragment

    def ack(self):
        pass

    def __reduce__(self):
        raise TypeError(
            "a Message cannot be pickled or copied: to another process or thread hand what you need of it, such as "
            "(msg.topic, msg.sequence_number, msg.data); a message that you keep owns its bytes and needs no copy"
        )

    def __bool__(self):
        return True

    def __len__(self):
        return self.length

    def __repr__(self):
        kind = self.type.name
        if self.kind == 0:
            more = f" and {len(self.block)} of headers" if self.block is not None else ""
            return f"<Message {self.topic!r} {self.sequence_number} of {self.length} bytes{more} from {self.source}>"
        return f"<Message {kind} {self.topic!r} {self.first_sequence_number}..{self.sequence_number} from {self.source}>"

    cdef int keep(self) except -1:
        """Makes the message independent of the ring; its callback has returned and somebody still has it."""
        if self.own is None:
            self.own = PyBytes_FromStringAndSize(self.start, self.length)
        self.take_view()
        self.start = NULL
        self.lent = False
        self.lender = None
        return 0

    cdef int take_back(self) except -1:
        """Makes the message ready to carry the next one; nobody else has it."""
        if self.shown is not None:
            self.take_view()
        if self.own is not None:
            self.own = None
        return 0

    cdef int take_view(self) except -1:
        if self.shown is not None:
            # One that nobody else has goes with the line after this.
            if self.lent and self.lender is not None and Py_REFCNT(<PyObject *>self.shown) > 1:
                try:
                    self.shown.release()
                except BufferError:
                    pass  # an array made from it lives on
            self.shown = None
            if self.loan is not None:
                loan, self.loan = self.loan, None
                loan.settle()
        return 0


cdef Message own_message(Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                         uint64_t send_ticks):
    """A message with its own copy of the bytes."""
    cdef Message message = Message.__new__(Message)
    message.origin = origin
    message.own = PyBytes_FromStringAndSize(start, length)
    message.length = length
    message.sequence = sequence
    message.first_sequence = sequence
    message.flags = flags
    message.send_ticks = send_ticks
    return message


cdef Message message_with_headers(Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                                  uint64_t send_ticks):
    """The same of bytes that begin with a header block; None when that contradicts itself."""
    cdef bytes block = block_copy(start, length)
    cdef Py_ssize_t front
    cdef Message message
    if block is None:
        return None
    front = PyBytes_GET_SIZE(block)
    message = own_message(origin, start + front, length - front, sequence, flags & ~FLAG_PROPERTIES, send_ticks)
    message.block = block
    return message


def whole_message(
    Origin origin, bytes own, uint64_t first, uint64_t last, int flags, uint64_t send_ticks, fragment, bytes block=None,
    uint64_t published_ticks=0,
):
    cdef Message message = Message.__new__(Message)
    message.origin = origin
    message.own = own
    message.block = block
    message.length = len(own)
    message.first_sequence = first
    message.sequence = last
    message.flags = flags if block is None else flags & ~FLAG_PROPERTIES
    message.send_ticks = send_ticks
    message.published_ticks = published_ticks
    message.fragment = fragment
    return message


def event(Origin origin, int kind, int64_t first, int64_t last, uint64_t following=0):
    cdef Message message = Message.__new__(Message)
    message.origin = origin
    message.kind = kind
    message.own = b""
    message.sequence = <uint64_t>last
    message.first_sequence = <uint64_t>first
    message.following = following
    return message
