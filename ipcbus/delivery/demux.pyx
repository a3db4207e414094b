# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""From records to receivers; see the stub for the words."""
cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from collections import deque

from ipcbus.delivery.message cimport Message, Origin, own_message
from ipcbus.wire._layout cimport MESSAGE_HEADER_BYTES, TOPIC_BITS, TOPIC_MASK, MessageHeader, RegistryEntry
from ringbuf cimport _atomics
from ringbuf._layout cimport RECORD_HEADER, Record
from ringbuf.clock cimport ns_per_tick
from ringbuf.memory cimport Mapping
from ringbuf.ring cimport (
    Reader, RingReader, aligned, reader_done, reader_next, reader_sample, reader_show,
)

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *o) noexcept
    void Py_DECREF(PyObject *o) noexcept
    PyObject *PyObject_CallOneArg(PyObject *callable, PyObject *argument) noexcept


cdef int pending_error() except -1:
    """Hands the error that a C call has set to Cython."""
    return -1


cdef class Sink:
    def __init__(self, callback, uint64_t queue_max):
        self.callback = callback
        self.pulls = callback is None
        self.queue = deque()
        self.queue_max = queue_max

    def count_into(self, Mapping mapping, size_t offset):
        self.line_mapping = mapping
        self.line = <RegistryEntry *>(mapping.base + offset)

    def stop_counting(self):
        self.line = NULL
        self.line_mapping = None

    @cython.final
    cdef inline void count(self, uint64_t length) noexcept:
        self.delivered += 1
        self.bytes_delivered += length
        if self.line != NULL:
            _atomics.store_relaxed64(&self.line.lbm_msgs_rcved, self.delivered)
            _atomics.store_relaxed64(&self.line.bytes_rcved, self.bytes_delivered)

    @cython.final
    cdef inline bint is_full(self) noexcept:
        """Whether one more message has no place now."""
        if self.rows_open:
            return self.row_next >= self.row_count
        return <uint64_t>len(self.queue) >= self.queue_max

    def is_full_now(self):
        return bool(self.is_full())

    @cython.final
    cdef int accept(
        self, Controller controller, const MessageHeader *header, uint32_t length, Demux demux
    ) except -1:
        """Takes a message into a row or the queue."""
        cdef const char *payload = <const char *>header + MESSAGE_HEADER_BYTES
        if self.closed:
            return 0
        if self.rows_open and <Py_ssize_t>length == self.row_bytes and self.row_next < self.row_count:
            memcpy(self.rows + self.row_next * self.row_bytes, payload, self.row_bytes)
            self.row_next += 1
        else:
            # A message that fits no row goes to the queue, and everything after it behind it.
            self.rows_open = False
            self.queue.append(own_message(
                controller.origin, payload, length, header.sequence, header.topic >> TOPIC_BITS, demux.send_ticks
            ))
        self.count(length)
        return 0

    def event(self, Message message, rare):
        if self.closed:
            return
        self.events += 1
        if message.kind in (4, 5):
            self.lost += message.sequence - message.first_sequence + 1
        if self.line != NULL:
            _atomics.store_relaxed64(&self.line.events, self.events)
            _atomics.store_relaxed64(&self.line.lost, self.lost)
        if self.pulls:
            self.rows_open = False
            self.queue.append(message)
            return
        try:
            self.callback(message)
        except Exception as error:
            self.fail(error, rare)

    cdef int fail(self, error, rare) except -1:
        self.callback_errors += 1
        if self.line != NULL:
            _atomics.store_relaxed64(&self.line.callback_errors, self.callback_errors)
        rare.failed(self, error)
        return 0

    def rows_from(self, buffer):
        # Held until rows_done, so that nobody resizes what is being filled.
        cdef Py_buffer *view = &self.row_view
        PyObject_GetBuffer(buffer, view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        if view.ndim == 2 and view.itemsize == 1:
            self.row_count, self.row_bytes = view.shape[0], view.shape[1]
        elif view.ndim == 1 and view.itemsize > 1:
            self.row_count, self.row_bytes = view.shape[0], view.itemsize
        else:
            dimensions, itemsize = view.ndim, view.itemsize
            PyBuffer_Release(view)
            raise TypeError(
                f"receive_into takes a 2-D uint8 array or a 1-D array of items; this buffer has {dimensions} dimensions "
                f"of {itemsize}-byte items"
            )
        self.rows = <char *>view.buf
        self.row_next = 0
        self.rows_open = False
        return self.row_count

    def rows_filled(self):
        return self.row_next

    def rows_done(self):
        self.rows_open = False
        if self.rows != NULL:
            self.rows = NULL
            PyBuffer_Release(&self.row_view)

    def row_accepts(self, Message message):
        if message.kind != 0 or message.length != self.row_bytes or self.row_next >= self.row_count:
            return False
        memcpy(self.rows + self.row_next * self.row_bytes, <const char *>message.own, self.row_bytes)
        self.row_next += 1
        return True

    def row_queue_taken(self):
        self.rows_open = not self.queue


cdef class Controller:
    def __init__(self, Origin origin, uint32_t topic_number, uint64_t floor):
        self.origin = origin
        self.topic_number = topic_number
        self.floor = floor
        self.sinks = []

    def set_sinks(self, sinks):
        self.sinks = list(sinks)
        self.only = self.sinks[0] if len(self.sinks) == 1 else None
        self.pulls = any(sink.pulls for sink in self.sinks)

    @cython.final
    cdef inline bint must_wait(self) noexcept:
        cdef Sink sink = self.only
        if sink is not None:
            return sink.is_full() and not sink.closed
        for sink in self.sinks:
            if sink.pulls and not sink.closed and sink.is_full():
                return True
        return False

    def missing_until(self, uint64_t published):
        cdef uint64_t next = self.expected if self.started else self.floor
        return published - next if published > next else 0

    def skip_to(self, uint64_t sequence):
        self.expected = sequence
        self.started = True


cdef class Demux:
    def __init__(self, RingReader ring, uint32_t topics_max, rare):
        self.ring = ring
        self.r = &ring.r
        self.topics_max = topics_max
        self.controllers = [None] * topics_max
        self.table = <PyObject **>calloc(topics_max, sizeof(PyObject *))
        if self.table == NULL:
            raise MemoryError()
        self.rare = rare

    def __dealloc__(self):
        free(self.table)

    def set_controller(self, Controller controller):
        self.controllers[controller.topic_number & (self.topics_max - 1)] = controller
        self.table[controller.topic_number & (self.topics_max - 1)] = <PyObject *>controller

    def controller(self, uint32_t topic_number):
        found = self.controllers[topic_number & (self.topics_max - 1)]
        return found if found is not None and (<Controller>found).topic_number == topic_number else None

    def remove_controller(self, uint32_t topic_number):
        found = self.controller(topic_number)
        if found is not None:
            self.table[topic_number & (self.topics_max - 1)] = NULL
            self.controllers[topic_number & (self.topics_max - 1)] = None
        return found

    def line_taken(self, uint32_t topic_number):
        found = self.controllers[topic_number & (self.topics_max - 1)]
        return found is not None and (<Controller>found).topic_number != topic_number

    def controller_list(self):
        return [controller for controller in self.controllers if controller is not None]

    def poll_once(self, long limit):
        return self.poll(limit)

    def count_lost(self, uint64_t messages):
        self.lost += messages
        _atomics.store_relaxed64(&self.r.slot.lost, self.lost)

    def show(self):
        if self.left:
            return False
        self.show_counters()
        return bool(reader_show(self.r))

    cdef void show_counters(self) noexcept:
        _atomics.store_relaxed64(&self.r.slot.lbm_msgs_rcved, self.messages)
        _atomics.store_relaxed64(&self.r.slot.lbm_msgs_no_topic_rcved, self.no_topic)
        _atomics.store_relaxed64(&self.r.slot.malformed, self.malformed)

    @cython.final
    cdef inline bint next_record(self) except -1:
        """Takes the next record in hand; False when there is none."""
        cdef Reader *r = self.r
        cdef const Record *record = reader_next(r)
        if record == NULL:
            if r.broken or _atomics.load_acquire32(&r.header.closed):  # SYNC closed
                self.attention = True
            return False
        if not self.begun:
            self.begun = True
            self.rare.begin()
        self.cursor = <const char *>record + RECORD_HEADER
        self.end = <const char *>record + r.frame
        self.send_ticks = record.send_ticks
        r.since_sample += 1
        if r.since_sample >= r.sample_every:
            reader_sample(r, record, ns_per_tick())
        return True

    @cython.final
    cdef inline void finish_record(self) noexcept:
        self.cursor = NULL
        if self.left:
            return  # the slot may be another context's by now
        if reader_done(self.r):
            self.wakes_writer = True

    @cython.final
    cdef long poll(self, long limit) except -1:
        """Takes up to `limit` messages and delivers what somebody receives; returns how many were delivered.

        May stop within a record and go on there the next time.
        """
        cdef long handled = 0, taken = 0
        cdef const MessageHeader *header
        cdef Controller controller
        cdef PyObject *found
        cdef uint32_t number, length
        cdef int64_t left   # signed: the padding of the last message may reach past the end
        self.stop = False
        while taken < limit and not self.blocked and not self.stop and not self.left:
            if self.cursor == NULL and not self.next_record():
                break
            while True:
                left = self.end - self.cursor
                if left < MESSAGE_HEADER_BYTES:
                    self.finish_record()
                    break
                header = <const MessageHeader *>self.cursor
                length = header.length
                if <int64_t>length > left - MESSAGE_HEADER_BYTES:
                    self.malformed += 1
                    self.finish_record()
                    break
                number = header.topic & TOPIC_MASK
                found = self.table[number & (self.topics_max - 1)]
                if found == NULL or (<Controller>found).topic_number != number:
                    self.no_topic += 1
                    taken += 1
                    self.cursor += MESSAGE_HEADER_BYTES + aligned(length)
                    continue
                controller = <Controller>found
                if controller.pulls and controller.must_wait():
                    self.blocked = True
                    break
                self.cursor += MESSAGE_HEADER_BYTES + aligned(length)
                if header.sequence != controller.expected or not controller.started:
                    if not self.jump(controller, header.sequence):
                        taken += 1
                        continue
                controller.expected += 1
                self.messages += 1
                handled += 1
                taken += 1
                self.give(controller, header, length)
                if taken >= limit or self.stop or self.left:
                    break
        # Without a message, too: a lapped reader may stand somewhere else now.
        if not self.left and (taken or self.r.position != self.r.shown):
            self.show_counters()
            # A writer without room, or an idle ring: now is the time to say how far this reader is.
            if reader_show(self.r):
                self.wakes_writer = True
        return handled

    @cython.final
    cdef bint jump(self, Controller controller, uint64_t sequence) except -1:
        """A number that is not the expected one; False when the message is to be dropped."""
        cdef uint64_t first = controller.expected if controller.started else controller.floor
        if sequence >> 63:
            self.malformed += 1
            return False
        if controller.started and sequence < first:
            controller.duplicates += 1
            return False
        controller.started = True
        controller.expected = sequence
        if sequence > first:
            self.rare.gap(controller, first, sequence - 1)
        return True

    @cython.final
    cdef inline int give(self, Controller controller, const MessageHeader *header, uint32_t length) except -1:
        cdef Sink sink = controller.only
        if sink is not None:
            if sink.pulls:
                return sink.accept(controller, header, length, self)
            return self.call(sink, controller, header, length)
        for each in controller.sinks:
            sink = <Sink>each
            if sink.pulls:
                sink.accept(controller, header, length, self)
            else:
                self.call(sink, controller, header, length)
        return 0

    @cython.final
    cdef inline int call(
        self, Sink sink, Controller controller, const MessageHeader *header, uint32_t length
    ) except -1:
        """Calls back with a message that looks into the ring."""
        cdef Message message = self.spare
        cdef PyObject *result
        if sink.closed:
            return 0
        if message is None:
            message = Message.__new__(Message)
            if not self.r.source_paced:
                message.mapping = self.ring.ring
        else:
            self.spare = None
        if message.origin is not controller.origin:
            message.origin = controller.origin
        message.start = <const char *>header + MESSAGE_HEADER_BYTES
        message.length = length
        message.sequence = header.sequence
        message.first_sequence = header.sequence
        message.flags = header.topic >> TOPIC_BITS
        message.send_ticks = self.send_ticks
        message.lent = True
        sink.count(message.length)
        # Called without Cython's own exception frame around it: that costs as much as half the call.
        result = PyObject_CallOneArg(<PyObject *>sink.callback, <PyObject *>message)
        if result == NULL:
            return self.callback_raised(sink, message)
        Py_DECREF(result)
        if Py_REFCNT(<PyObject *>message) == 1:
            message.take_back()
            self.spare = message
        else:
            message.keep()
        return 0

    cdef int callback_raised(self, Sink sink, Message message) except -1:
        """Counts and logs what a callback raised; what is no Exception goes on to whoever drives."""
        try:
            pending_error()
        except Exception as error:
            message.keep()
            sink.fail(error, self.rare)
        except BaseException:
            message.keep()
            raise
        return 0
