# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Responses straight into pipes; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

cimport cython

from ipcbus.delivery.pump cimport Pump
from ipcbus.delivery.received_message cimport QuickResponder
from ipcbus.transport.ring.frame_front cimport FRAME_HEADER, FrameFront
from ipcbus.wire.control_front cimport AckRange
from ringbuf cimport _atomics
from ringbuf.pipe cimport Pipe
from ringbuf.shared_words cimport SharedWords

from ipcbus.wire import control_messages, gmd_messages

cdef extern from *:
    """
typedef struct {
    ipcbus_FrameFront head;
    ipcbus_AckRange numbers;
} ipcbus_AckFrame;
_Static_assert(sizeof(ipcbus_AckFrame) == 48, "AckFrame size");
    """
    ctypedef struct AckFrame "ipcbus_AckFrame":
        FrameFront head
        AckRange numbers

cdef uint8_t RESPONSE = control_messages.RESPONSE
cdef uint8_t GMD_ACK = gmd_messages.GMD_ACK


cdef bint put_ack(
    ResponseWriter writer, uint32_t topic, uint64_t instance, uint64_t incarnation, uint64_t first, uint64_t last
) except? True:
    """Puts a GMD_ACK with one range; returns False when that is not possible now."""
    cdef AckFrame frame
    memset(&frame, 0, sizeof(frame))
    frame.head.first = 1
    frame.head.remaining = sizeof(frame) - FRAME_HEADER
    frame.head.front.kind, frame.head.front.topic, frame.head.front.number = GMD_ACK, topic, instance
    frame.numbers.incarnation, frame.numbers.first, frame.numbers.last = incarnation, first, last
    return writer.put_frame(<const char *>&frame, sizeof(frame), NULL, 0)


cdef class ResponseWriter:
    def __init__(
        self, Pipe pipe, SharedWords words, size_t calls_at, size_t parked_at, uint64_t bit, ring, urgent, Pump pump,
        uint64_t frame_max,
    ):
        self.pipe = pipe
        self.calls = <uint64_t *>words._at(calls_at, 8, True)
        self.parked = <const uint32_t *>words._at(parked_at, 4, False)
        self.keeps = words
        self.bit = bit
        self.ring, self.urgent, self.pump, self.frame_max = ring, urgent, pump, frame_max

    def send(self, uint64_t request, bytes data not None):
        return bool(self.send_now(request, data))

    cdef bint send_now(self, uint64_t request, bytes data) except? True:
        cdef Pump pump = self.pump
        if pump.drives():
            return self.put(request, data)
        if not pump.take_if_free():
            return False
        try:
            return self.put(request, data)
        finally:
            pump.leave()

    cdef bint put(self, uint64_t request, bytes data) except? True:
        cdef FrameFront head
        cdef uint64_t length = PyBytes_GET_SIZE(data)
        memset(&head, 0, sizeof(head))
        head.first = 1
        head.remaining = <uint32_t>(sizeof(head) - FRAME_HEADER + length)
        head.front.kind, head.front.number = RESPONSE, request
        return self.put_frame(<const char *>&head, sizeof(head), PyBytes_AS_STRING(data), length)

    cdef bint put_frame(self, const char *front, uint64_t front_length, const char *rest, uint64_t rest_length) except? True:
        """Puts an urgent message of one frame, in two parts; the thread drives the context."""
        cdef uint64_t were
        if self.urgent or front_length + rest_length > self.frame_max:
            return False
        if not self.pipe.put_parts(front, front_length, rest, rest_length):
            return False
        were = _atomics.or64(self.calls, self.bit)  # SYNC call
        # If the bit was set, this receiver has called already and the source has not looked since.
        if not were & self.bit and _atomics.load_acquire32(self.parked):  # SYNC call
            self.ring()
        return True


cdef class ResponseCount:
    pass


cdef class PipeResponder(QuickResponder):
    def __init__(self, ResponseCount count not None):
        self.count = count

    cdef bint respond_now(self, uint64_t request, bytes data) except? True:
        cdef ResponseWriter writer
        with cython.critical_section(self):
            writer = self.writer    # another thread may replace it meanwhile
        if writer is None or not writer.send_now(request, data):
            return False
        with cython.critical_section(self.count):
            self.count.sent += 1
        return True

    @property
    def _writer(self):
        with cython.critical_section(self):
            return self.writer

    @_writer.setter
    def _writer(self, ResponseWriter writer):
        with cython.critical_section(self):
            before, self.writer = self.writer, writer   # freed behind the section
