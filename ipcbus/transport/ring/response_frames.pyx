# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Responses straight into pipes and out of them; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from ipcbus.delivery.pump cimport Pump
from ringbuf cimport _atomics
from ringbuf.pipe cimport Pipe
from ringbuf.shared_words cimport SharedWords

from ipcbus.wire import control_messages

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

cdef enum:
    FRAME_HEADER = 8            # of recovery.control_channel; `remaining` counts from its end
    FRAMES_MAX = 64             # of one pipe in one call, so that one receiver can keep no context busy

cdef uint8_t RESPONSE = control_messages.RESPONSE


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
        cdef uint64_t length = PyBytes_GET_SIZE(data), were
        if self.urgent or sizeof(front) + length > <uint64_t>self.pipe.frame_max:
            return False
        memset(&front, 0, sizeof(front))
        front.first = 1
        front.remaining = <uint32_t>(sizeof(front) - FRAME_HEADER + length)
        front.kind = RESPONSE
        front.request = request
        if not self.pipe.put_parts(<const char *>&front, sizeof(front), PyBytes_AS_STRING(data), length):
            return False
        were = _atomics.or64(self.calls, self.bit)  # SYNC call
        # If the bit was set, this receiver has called already and the source has not looked since.
        if not were & self.bit and _atomics.load_acquire32(self.parked):  # SYNC call
            self.ring()
        return True


cdef class ResponseReader:
    def __init__(self, SharedWords words, size_t calls_at, list channel_words_at):
        cdef int slot
        self.slots = len(channel_words_at)
        if self.slots > 64:
            raise ValueError(f"{self.slots} slots do not fit the 64 bits of the calls")
        self.calls = <uint64_t *>words._at(calls_at, 8, True)
        for slot in range(self.slots):
            self.channel_words[slot] = <const uint64_t *>words._at(channel_words_at[slot], 8, False)
        self.pipes, self.call_receivers = [None] * self.slots, [None] * self.slots
        self.keeps = words

    def serve(self, int slot, Pipe pipe, uint64_t settled_word, call_receiver):
        if not 0 <= slot < self.slots:
            raise IndexError(f"slot {slot} of {self.slots}")
        self.pipes[slot], self.call_receivers[slot] = pipe, call_receiver
        self.settled_words[slot] = settled_word

    def take(self, respond):
        cdef uint64_t calls, left = 0
        cdef int slot
        if not _atomics.load_relaxed64(self.calls):
            return False
        calls = _atomics.and64(self.calls, 0)
        try:
            for slot in range(self.slots):
                if calls >> slot & 1 and not self.take_all(slot, respond):
                    left |= <uint64_t>1 << slot
                calls &= ~(<uint64_t>1 << slot)
        finally:
            left |= calls
            if left:
                _atomics.or64(self.calls, left)
        return left != 0

    cdef bint take_all(self, int slot, respond) except? True:
        """Takes the responses of one receiver; returns False when there is more to do."""
        cdef Pipe pipe = self.pipes[slot]
        cdef int taken
        if pipe is None or _atomics.load_acquire64(self.channel_words[slot]) != self.settled_words[slot]:
            return False
        for taken in range(FRAMES_MAX):
            if not self.take_one(pipe, respond):
                return not pipe.ready()
            if pipe.room_wanted:
                self.call_receivers[slot]()
        return False

    cdef bint take_one(self, Pipe pipe, respond) except? True:
        """Takes the next frame, if it holds a whole response."""
        cdef ResponseFront front
        cdef uint64_t length = <uint64_t>pipe.next_length()
        if length < sizeof(front):
            return False
        pipe.copy_out(0, <char *>&front, sizeof(front))
        if (
            front.lane or front.first != 1 or front.reserved or front.remaining != length - FRAME_HEADER
            or front.kind != RESPONSE or front.zeros[0] or front.zeros[1] or front.zeros[2] or front.topic
        ):
            return False
        data = PyBytes_FromStringAndSize(NULL, length - sizeof(front))
        pipe.copy_out(sizeof(front), PyBytes_AS_STRING(data), length - sizeof(front))
        if not pipe.end_frame(length):
            return False
        respond(front.request, data)
        return True
