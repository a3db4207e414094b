# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Delivers the messages that a source has sent again; the stub has the documentation."""
cimport cython
from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.delivery.demux cimport Controller, Demux
from ipcbus.delivery.received_message cimport Message
from ipcbus.delivery.sink cimport MESSAGES, Arrival, Sink, sink_count, sink_enqueue_copy, sink_row
from ipcbus.wire._wire_layout cimport (
    FLAG_END_BATCH, FLAG_FRAGMENT, FLAG_START_BATCH, FLAG_STAMPED, FLAG_TSNI, RETAINED_HEADER_BYTES, TOPIC_BITS,
    TOPIC_MASK, RetainedHeader,
)
from ringbuf.clock cimport ticks_of
from ringbuf.free_threads cimport is_sole
from ringbuf.ring cimport aligned

cdef extern from "Python.h":
    void Py_DECREF(PyObject *o) noexcept
    PyObject *PyObject_CallOneArg(PyObject *callable, PyObject *argument) noexcept

cdef enum:
    PLAIN_FLAGS = FLAG_START_BATCH | FLAG_END_BATCH
    NEVER_RETAINED = FLAG_TSNI | FLAG_STAMPED
    DROPPED_NUMBER = -1     # demux.DROPPED


cdef class RetransmittedFeed:
    def __init__(self, Demux demux, Controller controller):
        self.demux = demux
        self.controller = controller

    @property
    def busy(self):
        return self.entries is not None

    def begin(self, uint64_t first, uint64_t last, bytes entries, int flag, *, bint epoch=False):
        if self.entries is not None:
            raise ValueError("the previous retransmission is not finished; call run() until it returns True")
        self.entries = entries
        self.cursor = PyBytes_AS_STRING(entries)
        self.end = self.cursor + PyBytes_GET_SIZE(entries)
        self.reached = first
        self.last = last
        self.flag = flag
        self.epoch = epoch

    def run(self, int64_t now_ns):
        cdef Demux demux = self.demux
        cdef Controller controller = self.controller
        if self.entries is None:
            return True
        if not demux.begun:
            demux.begun = True
            demux.slow_path.begin()
        demux.stop = False
        try:
            while self.cursor != NULL and self.cursor < self.end and not demux.stop and not demux.detached:
                if controller.pulls and controller.has_full_sink():
                    break
                if not self.next_entry(now_ns):
                    demux.tally.malformed += 1
                    self.entries = None
                    return True
            if self.cursor < self.end and not demux.detached:
                return False
            self.entries = None
            if self.reached <= self.last and not demux.detached:
                first, self.reached = self.reached, self.last + 1
                controller.give_up_missing(first, self.last, now_ns)
            return True
        finally:
            # Behind the last message, others may have waited for it.
            if not demux.detached:
                controller.check(now_ns)
                demux.show_tally()

    @cython.final
    cdef inline bint next_entry(self, int64_t now_ns) except -1:
        """Takes one entry; returns False when it contradicts itself."""
        cdef const RetainedHeader *header = <const RetainedHeader *>self.cursor
        cdef const char *payload = self.cursor + RETAINED_HEADER_BYTES
        cdef Controller controller = self.controller
        cdef int64_t left = self.end - payload
        cdef uint32_t length, flags
        cdef uint64_t sequence, before, send_ticks
        cdef long given
        if left < 0 or <int64_t>aligned(header.length) > left:
            return False
        length, sequence, flags = header.length, header.sequence, header.topic >> TOPIC_BITS
        if (
            header.topic & TOPIC_MASK != controller.topic_number or flags & NEVER_RETAINED
            or sequence < self.reached or sequence > self.last
        ):
            return False
        send_ticks = ticks_of(<int64_t>header.send_ticks) if self.epoch else header.send_ticks
        if sequence > self.reached:
            before = self.reached
            self.reached = sequence
            controller.give_up_missing(before, sequence - 1, now_ns)
        self.cursor = payload + aligned(length)
        self.reached = sequence + 1
        if sequence == controller.retransmitted_next and sequence < controller.retransmitted_end and not flags & ~PLAIN_FLAGS:
            controller.retransmitted_next += 1
            self.demux.messages += 1
            self.messages += 1
            return self.give(payload, length, sequence, flags | self.flag, send_ticks) == 0
        view = PyMemoryView_FromMemory(<char *>payload, length, PyBUF_READ)
        try:
            given = controller.take_retransmitted(sequence, flags | self.flag, view, send_ticks, now_ns)
        finally:
            view.release()
        if given != DROPPED_NUMBER:
            self.messages += 1
            if flags & FLAG_FRAGMENT:
                self.demux.tally.fragments_rcved += 1
            else:
                self.demux.messages += 1
        return True

    @cython.final
    cdef inline int give(
        self, const char *payload, Py_ssize_t length, uint64_t sequence, int flags, uint64_t send_ticks
    ) except -1:
        cdef Controller controller = self.controller
        if controller.single_sink is not None:
            return self.give_to(controller.single_sink, payload, length, sequence, flags, send_ticks)
        for each in list(controller.sinks):
            self.give_to(<Sink>each, payload, length, sequence, flags, send_ticks)
        return 0

    @cython.final
    cdef inline int give_to(
        self, Sink sink, const char *payload, Py_ssize_t length, uint64_t sequence, int flags, uint64_t send_ticks
    ) except -1:
        cdef Arrival arrival
        if sink.closed:
            return 0
        if not sink.pulls:
            return self.call_back(sink, payload, length, sequence, flags, send_ticks)
        if not sink_row(sink, payload, length):
            arrival.ticks = 0
            sink_enqueue_copy(sink, self.controller.origin, payload, length, sequence, flags, send_ticks, &arrival)
        sink_count(sink, 1, length)
        return 0

    @cython.final
    cdef inline int call_back(
        self, Sink sink, const char *payload, Py_ssize_t length, uint64_t sequence, int flags, uint64_t send_ticks
    ) except -1:
        """Calls the callback with a message that points into the entries."""
        cdef Message message = self.spare_message
        cdef PyObject *result
        if sink.takes != MESSAGES:
            return sink.give_data(payload, length, None, self.demux.slow_path)
        if message is None:
            message = Message.__new__(Message)
            message.origin = self.controller.origin
        else:
            self.spare_message = None
        message.start = payload
        message.length = length
        message.sequence = sequence
        message.first_sequence = sequence
        message.flags = flags
        message.send_ticks = send_ticks
        message.lent = True
        sink_count(sink, 1, length)
        # As in the demux: Cython's own exception frame would cost as much as half the call.
        result = PyObject_CallOneArg(<PyObject *>sink.callback, <PyObject *>message)
        if result == NULL:
            return sink.count_raised(message, self.demux.slow_path)
        Py_DECREF(result)
        if is_sole(<PyObject *>message):
            if message.given_view is not None or message.own is not None:
                message.reset()
            self.spare_message = message
        else:
            message.detach()
        return 0
