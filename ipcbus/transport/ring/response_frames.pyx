# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Responses straight into pipes; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from ipcbus.delivery.pump cimport Pump
from ringbuf cimport _atomics
from ringbuf.pipe cimport Pipe
from ringbuf.shared_words cimport SharedWords

from ipcbus.wire import control_messages, gmd_messages

cdef extern from *:
    """
typedef struct {
    uint8_t lane, first;
    uint16_t reserved;
    uint32_t remaining;
    uint8_t kind, zeros[3];
    uint32_t topic;
    uint64_t request;
} ipcbus_ResponseFront;
_Static_assert(sizeof(ipcbus_ResponseFront) == 24, "ResponseFront size");
    """
    ctypedef struct ResponseFront "ipcbus_ResponseFront":
        uint8_t lane
        uint8_t first
        uint16_t reserved
        uint32_t remaining
        uint8_t kind
        uint8_t zeros[3]
        uint32_t topic
        uint64_t request

cdef extern from *:
    """
typedef struct {
    uint8_t lane, first;
    uint16_t reserved;
    uint32_t remaining;
    uint8_t kind, detail;
    uint16_t zeros;
    uint32_t topic;
    uint64_t instance, incarnation, first_number, last_number;
} ipcbus_AckFrame;
_Static_assert(sizeof(ipcbus_AckFrame) == 48, "AckFrame size");
    """
    ctypedef struct AckFrame "ipcbus_AckFrame":
        uint8_t lane
        uint8_t first
        uint16_t reserved
        uint32_t remaining
        uint8_t kind
        uint8_t detail
        uint16_t zeros
        uint32_t topic
        uint64_t instance
        uint64_t incarnation
        uint64_t first_number
        uint64_t last_number

cdef enum:
    FRAME_HEADER = 8            # of recovery.control_channel; `remaining` counts from its end

cdef uint8_t RESPONSE = control_messages.RESPONSE
cdef uint8_t GMD_ACK = gmd_messages.GMD_ACK


cdef bint put_ack(
    ResponseWriter writer, uint32_t topic, uint64_t instance, uint64_t incarnation, uint64_t first, uint64_t last
) except? True:
    """Puts a GMD_ACK with one range; returns False when that is not possible now."""
    cdef AckFrame frame
    memset(&frame, 0, sizeof(frame))
    frame.first = 1
    frame.remaining = sizeof(frame) - FRAME_HEADER
    frame.kind = GMD_ACK
    frame.topic, frame.instance, frame.incarnation = topic, instance, incarnation
    frame.first_number, frame.last_number = first, last
    return writer.put_frame(<const char *>&frame, sizeof(frame), NULL, 0)


cdef class ResponseWriter:
    def __init__(
        self, Pipe pipe, SharedWords words, size_t calls_at, size_t parked_at, uint64_t bit, ring, urgent, Pump pump,
        bint sequential,
    ):
        self.pipe = pipe
        self.calls = <uint64_t *>words._at(calls_at, 8, True)
        self.parked = <const uint32_t *>words._at(parked_at, 4, False)
        self.keeps = words
        self.bit = bit
        self.ring, self.urgent, self.pump, self.sequential = ring, urgent, pump, sequential

    def send(self, uint64_t request, bytes data not None):
        cdef Pump pump = self.pump
        if pump.drives():
            return bool(self.put(request, data))
        if not self.sequential or not pump.take_if_free():
            return False
        try:
            return bool(self.put(request, data))
        finally:
            pump.leave()

    cdef bint put(self, uint64_t request, bytes data) except? True:
        cdef ResponseFront front
        cdef uint64_t length = PyBytes_GET_SIZE(data)
        memset(&front, 0, sizeof(front))
        front.first = 1
        front.remaining = <uint32_t>(sizeof(front) - FRAME_HEADER + length)
        front.kind = RESPONSE
        front.request = request
        return self.put_frame(<const char *>&front, sizeof(front), PyBytes_AS_STRING(data), length)

    cdef bint put_frame(self, const char *front, uint64_t front_length, const char *rest, uint64_t rest_length) except? True:
        """Puts an urgent message of one frame, in two parts; the thread drives the context."""
        cdef uint64_t were
        if self.urgent or front_length + rest_length > <uint64_t>self.pipe.frame_max:
            return False
        if not self.pipe.put_parts(front, front_length, rest, rest_length):
            return False
        were = _atomics.or64(self.calls, self.bit)  # SYNC call
        # If the bit was set, this receiver has called already and the source has not looked since.
        if not were & self.bit and _atomics.load_acquire32(self.parked):  # SYNC call
            self.ring()
        return True
