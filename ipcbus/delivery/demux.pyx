# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Reads datagrams and gives each message to its topic's receivers; the stub has the documentation."""
cimport cython
from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from ipcbus.delivery.datagram_walk cimport completes, count_messages, flags_of, published_after, sent_after
from ipcbus.delivery.leasing cimport LeasedMessage, RecordHolder
from ipcbus.delivery.message_queue cimport PASS_BYTES, PASS_MESSAGES
from ipcbus.delivery.received_message cimport Message, Origin, message_with_front, own_message
from ipcbus.delivery.sink cimport MESSAGES, Sink, sink_count, sink_enqueue_copy, sink_is_full, sink_row
from ipcbus.wire._wire_layout cimport (
    FLAG_FRAGMENT, FLAG_GUARANTEED, FLAG_PROPERTIES, FLAG_REQUEST, FLAG_TSNI, MESSAGE_HEADER_BYTES, STAMP_NS, TOPIC_BITS,
    TOPIC_MASK, MessageHeader,
)
from ipcbus.wire.stamps cimport STAMPED, body_bytes, stamp_ticks, stride
from ringbuf cimport _atomics
from ringbuf._layout cimport RECORD_HEADER, Record
from ringbuf.clock cimport ns_per_tick
from ringbuf.free_threads cimport is_sole
from ringbuf.lending cimport Lender, own_pages
from ringbuf.ring cimport (
    Reader, RingReader, reader_done, reader_in_sync, reader_is_cut, reader_is_whole, reader_next, reader_sample,
    reader_show, record_length,
)

cdef extern from "Python.h":
    void Py_DECREF(PyObject *o) noexcept
    PyObject *PyObject_CallOneArg(PyObject *callable, PyObject *argument) noexcept

cdef enum:
    UNUSUAL = FLAG_FRAGMENT | FLAG_TSNI | FLAG_PROPERTIES | FLAG_REQUEST | FLAG_GUARANTEED
    DROPPED_NUMBER = -1
    IN_PLACE_NUMBER = -2
    NOT_NEXT = -1       # of take_fragment

cdef uint64_t ANY_NUMBER = <uint64_t>1 << 40
DROPPED, IN_PLACE = DROPPED_NUMBER, IN_PLACE_NUMBER


cdef class Tally:
    pass


cdef class Controller:
    def __init__(self, Origin origin, uint32_t topic_number):
        self.origin = origin
        self.topic_number = topic_number
        self._order_map = {}
        self.sinks = []

    def set_sinks(self, sinks):
        self.sinks = list(sinks)
        self.single_sink = self.sinks[0] if len(self.sinks) == 1 else None
        self.pulls = any(sink.pulls for sink in self.sinks)

    @cython.final
    cdef inline bint has_full_sink(self) except? True:
        cdef Sink sink = self.single_sink
        if sink is not None:
            return not sink.closed and sink_is_full(sink)
        for sink in self.sinks:
            if sink.pulls and not sink.closed and sink_is_full(sink):
                return True
        return False

    def take_assembly(self):
        assembly, self.assembly = self.assembly, None
        return assembly

    def take_slowly(self, uint64_t sequence, int flags, payload, uint64_t send_ticks, int64_t now_ns):
        raise NotImplementedError("this controller takes only messages in order")

    def deliver_waiting(self, int unusual, int shown, failures):
        cdef Message message
        cdef tuple found, times
        cdef bytes own
        cdef int flags
        while self._order_map:
            found = self._order_map.get(self._next)
            if found is None:
                return
            flags, own, times = found
            if flags & unusual:
                return
            message = own_message(self.origin, PyBytes_AS_STRING(own), len(own), self._next, flags & shown, times[0])
            message.published_ticks = times[1]
            # Before the callback, which may end this.
            del self._order_map[self._next]
            self._next += 1
            self._delivered += 1
            self.deliver(message, failures)

    def deliver(self, Message message, failures):
        for sink in list(self.sinks):
            (<Sink>sink).take(message, failures)


cdef class Demux(RecordHolder):
    def __init__(self, RingReader ring, uint32_t topics_max, slow_path):
        self.slow_path = slow_path
        if ring is not None:
            self.read_from(ring)
        self.topics_max = topics_max
        self.controllers = [None] * topics_max
        self.table = <PyObject **>calloc(topics_max, sizeof(PyObject *))
        if self.table == NULL:
            raise MemoryError()
        self.tally = Tally()
        self.ticks_per_stamp = STAMP_NS / ns_per_tick()

    def __dealloc__(self):
        free(self.table)

    def switch_ring(self, RingReader ring, upstream=None):
        if self.cursor != NULL:
            raise ValueError("the current datagram is not finished; call resume() before switching to another ring")
        self.own_leases()
        self.set_upstream(upstream)
        self.read_from(ring)
        self.spare_message = None   # it may point into the previous ring
        self.detached = False
        self.show_tally()

    def set_upstream(self, upstream):
        self.upstream = upstream
        self.counts_messages = upstream is not None and upstream.counts_messages

    def count_damage(self):
        self.skipped += ANY_NUMBER
        self.tally.malformed += 1
        self.show_tally()

    @cython.final
    cdef int read_from(self, RingReader ring) except -1:
        self.ring = ring
        self.r = &ring.r
        lends = not ring.r.copies
        self.lender = Lender(ring.ring, ring.r.data - ring.ring.base, False, self.slow_path.view_kept) if lends else None
        return 0

    def before_fork(self):
        self.own_leases()
        if self.cursor != NULL and self.lender is not None:
            self.record_copy = PyBytes_FromStringAndSize(self.r.data + (self.r.position & self.r.mask), self.r.frame)

    def secure(self):
        cdef char *place
        self.own_leases()
        if self.cursor == NULL or self.lender is None:
            return
        place = <char *>self.r.data + (self.r.position & self.r.mask)
        own_pages(place, self.r.frame, place if self.record_copy is None else PyBytes_AS_STRING(self.record_copy))
        self.lender.replace_pages()

    def after_fork(self):
        self.record_copy = None

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

    def line_in_use(self, uint32_t topic_number):
        found = self.controllers[topic_number & (self.topics_max - 1)]
        return found is not None and (<Controller>found).topic_number != topic_number

    def controller_list(self):
        return [controller for controller in self.controllers if controller is not None]

    def poll_once(self, long limit):
        return self.poll(limit)

    def feed(self, bytes datagram, uint64_t send_ticks, int64_t now_ns):
        cdef const char *start = PyBytes_AS_STRING(datagram)
        if self.cursor != NULL:
            raise ValueError("the current datagram is not finished; call resume() before feeding the next one")
        if not self.begun:
            self.begun = True
            self.slow_path.begin()
        if count_messages(start, start + PyBytes_GET_SIZE(datagram)) < 0:
            self.skip(PyBytes_GET_SIZE(datagram))
            return 0
        self.fed_datagram = datagram
        self.begin_datagram(start, start + PyBytes_GET_SIZE(datagram), send_ticks)
        return self.resume(now_ns)

    def resume(self, int64_t now_ns):
        self.now_ns = now_ns
        # Called from a callback, it would finish the datagram that the outer walk goes on with after the callback.
        if self.cursor == NULL or self.blocked or self.detached or self.in_resume:
            return 0
        self.in_resume = True
        try:
            return self.poll(0x7FFFFFFF, True)
        finally:
            self.in_resume = False

    @property
    def holds_datagram(self):
        return self.cursor != NULL

    def count_lost(self, uint64_t messages):
        self.lost += messages
        if self.r != NULL and not self.detached:
            _atomics.store_relaxed64(&self.r.slot.lost, self.lost)

    def show(self):
        if self.detached:
            return False
        self.show_counters()
        return bool(reader_show(self.r))

    cdef void show_counters(self) noexcept:
        _atomics.store_relaxed64(&self.r.slot.lbm_msgs_rcved, self.messages)
        _atomics.store_relaxed64(&self.r.slot.lbm_msgs_no_topic_rcved, self.no_topic)

    cpdef show_tally(self):
        cdef Tally tally = self.tally
        self.messages += tally.completed
        tally.completed = 0
        if self.r == NULL or self.detached:
            return
        self.show_counters()
        _atomics.store_relaxed64(&self.r.slot.fragments_rcved, tally.fragments_rcved)
        _atomics.store_relaxed64(&self.r.slot.malformed, tally.malformed)
        _atomics.store_relaxed64(&self.r.slot.duplicates, tally.duplicates)
        _atomics.store_relaxed64(&self.r.slot.msgs_reassembled, tally.msgs_reassembled)
        _atomics.store_relaxed64(&self.r.slot.reassembly_refused, tally.reassembly_refused)
        _atomics.store_relaxed64(&self.r.slot.views_kept, tally.views_kept)
        _atomics.store_relaxed64(&self.r.slot.lbm_reqs_rcved, tally.lbm_reqs_rcved)
        _atomics.store_relaxed64(&self.r.slot.order_map_entries, tally.order_map_entries)
        _atomics.store_relaxed64(&self.r.slot.reassembly_bytes, tally.reassembly_bytes)

    @cython.final
    cdef int skip(self, uint64_t length) except -1:
        """Counts a datagram that contradicts itself and is not read."""
        # Its own count of messages may be wrong, so its length decides.
        self.skipped += length // MESSAGE_HEADER_BYTES + 1
        self.tally.malformed += 1
        self.show_tally()
        return 0

    @cython.final
    cdef inline void begin_datagram(self, const char *start, const char *end, uint64_t send_ticks) noexcept:
        self.cursor = self.datagram_start = start
        self.end = end
        self.send_ticks = send_ticks
        self.published_ticks = send_ticks + published_after(start, end, self.ticks_per_stamp)

    @cython.final
    cdef inline bint next_record(self) except -1:
        """Makes the next record the current datagram; returns False when there is no record."""
        cdef Reader *r = self.r
        cdef const Record *record
        cdef uint32_t length
        cdef int64_t count
        while True:
            record = reader_next(r)
            if record == NULL:
                if r.stopped or reader_is_cut(r) or _atomics.load_acquire32(&r.header.closed):  # SYNC closed
                    self.attention = True
                return False
            if not reader_is_whole(r, record):
                self.attention = True
                return False
            length = record_length(r, record)
            count = count_messages(<const char *>record + RECORD_HEADER, <const char *>record + length) if length else -1
            if count >= 0 and (count == record.messages or not self.counts_messages):
                break
            if not r.stopped:
                self.skip(r.frame)
            if not reader_in_sync(r):
                self.attention = True
                return False
            self.finish_record()
        if not self.begun:
            self.begun = True
            self.slow_path.begin()
        self.begin_datagram(<const char *>record + RECORD_HEADER, <const char *>record + length, record.send_ticks)
        if count:
            r.since_sample += 1
            r.sample_weight += count
            if r.since_sample >= r.sample_every:
                self.sample(count)
        return True

    @cython.final
    cdef void sample(self, int64_t count) noexcept:
        """Puts the age of one random message of the current datagram into the histogram."""
        cdef double ns_each = ns_per_tick()
        cdef uint64_t sent = self.send_ticks
        self.ticks_per_stamp = STAMP_NS / ns_each
        if count > 1:
            self.random_state = self.random_state * <uint64_t>6364136223846793005ULL + 1
            sent += sent_after(self.cursor, self.end, <int64_t>((self.random_state >> 33) % <uint64_t>count), self.ticks_per_stamp)
        reader_sample(self.r, sent, ns_each)

    @cython.final
    cdef inline void finish_record(self) noexcept:
        self.cursor = NULL
        if self.r == NULL:
            self.fed_datagram = None
            return
        if self.detached:
            return  # the slot may belong to another context by now
        if reader_done(self.r):
            self.wakes_writer = True
            if self.called_back:
                self.stop = True    # the source is not to wait for further callbacks

    @cython.final
    cdef long poll(self, long limit, bint copies_all=False) except -1:
        """Takes up to `limit` messages and delivers those of received topics; returns how many were delivered.

        It may stop within a datagram and continue there the next time. One loop serves records and fed datagrams: a call
        for each record would cost as much as a tenth of a message.
        """
        cdef long handled = 0, taken = 0, more
        cdef const MessageHeader *header
        cdef Controller controller
        cdef PyObject *found
        cdef uint32_t word, length
        cdef uint64_t sequence, body
        cdef int64_t left   # signed: a wrong length may reach past the end
        self.stop, self.called_back, self.arrival.ticks, self.copied, self.copies_all = False, False, 0, 0, copies_all
        while taken < limit and not self.blocked and not self.stop and not self.detached:
            if self.cursor == NULL and (self.r == NULL or not self.next_record()):
                break
            while True:
                left = self.end - self.cursor
                if left < MESSAGE_HEADER_BYTES:
                    self.finish_record()
                    break
                header = <const MessageHeader *>self.cursor
                length, word = header.length, header.topic
                body = body_bytes(length, word)
                if <int64_t>body > left - MESSAGE_HEADER_BYTES:
                    # The datagram was valid before its first message was delivered; it has changed since.
                    self.skip(left)
                    self.finish_record()
                    break
                sequence = _atomics.load_relaxed64(&header.sequence)  # once: its source may change it
                found = self.table[word & TOPIC_MASK & (self.topics_max - 1)]
                if found == NULL or (<Controller>found).topic_number != word & TOPIC_MASK:
                    if not word >> TOPIC_BITS & UNUSUAL or completes(self.cursor + MESSAGE_HEADER_BYTES, length, word >> TOPIC_BITS):
                        self.no_topic += 1
                    else:
                        self.skipped += 1
                    taken += 1
                    self.cursor += stride(body)
                    continue
                controller = <Controller>found
                if controller.pulls and not controller_has_room(controller) and controller.has_full_sink():
                    # Full rows end with the call that gave them; a full queue waits for the application.
                    self.blocked, self.stop = controller.single_sink is None or not controller.single_sink.rows_open, True
                    break
                self.cursor += stride(body)
                taken += 1
                if sequence != controller.expected or not controller.fast_path or word >> TOPIC_BITS & UNUSUAL:
                    handled += self.give_slowly(controller, header, length, word, sequence)
                else:
                    controller.expected += 1
                    self.messages += 1
                    handled += 1
                    self.give(controller, header, length, word, sequence)
                    if controller.single_sink is not None and controller.single_sink.rows_open:
                        more = fill_rows(self, controller, limit - taken)
                        taken += more
                        handled += more
                if taken >= limit or self.stop or self.detached:
                    break
        self.taken = taken
        # Also without a message: the position of a lapped reader may have changed.
        if self.r != NULL and not self.detached and (taken or self.r.position != self.r.shown):
            self.show_counters()
            self.show_position()
        return handled

    @cython.final
    cdef inline int show_position(self) except -1:
        """Shows how far the ring is read, as a writer may wait for room, and an idle ring has time."""
        self.limit_leases()
        if self.cursor != NULL and self.end - self.cursor < MESSAGE_HEADER_BYTES:
            self.finish_record()    # its memory is not to wait for the next call
        if reader_show(self.r):
            self.wakes_writer = True
        return 0

    @cython.final
    cdef bint is_credible(self, Controller controller, uint64_t sequence, int flags) except -1:
        """Returns whether the source may have written a first number, or one that is ahead of the expected number.

        Messages do not overtake each other. So a number is missing only if its message was skipped or went to another
        topic here, or if the transport lost it. A larger jump is not accepted unless the next message continues from it:
        a receiver must not fall silent because of one damaged number, nor because of a mistake here. In that case one
        message too many is lost, with its number.
        """
        cdef bint informs = flags & FLAG_TSNI != 0
        cdef uint64_t skipped, known = controller.expected
        cdef bint knows = controller.has_trusted_number
        if sequence >= <uint64_t>self.upstream.sequence_limit(controller.topic_number) + informs:
            return False
        if not knows and not self.counts_messages:
            first = controller.first_number    # the source has said it
            if first is not None:
                knows, known = True, first
        # Wraps around after a switch to another upstream, which has its own counts: then every number is accepted once.
        skipped = self.skipped + self.no_topic + self.tally.duplicates + <uint64_t>self.upstream.missed_messages()
        if knows and sequence > known and sequence != controller.confirming_number:
            # Datagrams that this context puts into a ring of its own were missed some time before they are read here.
            if sequence - known > skipped - (controller.skipped_before if self.counts_messages else 0):
                controller.confirming_number = sequence + (not informs)
                return False
        controller.has_trusted_number = controller.has_trusted_number or not informs    # info is not where receivers begin
        controller.skipped_before = skipped
        controller.confirming_number = 0
        return True

    @cython.final
    cdef inline uint64_t sent_ticks(self, const MessageHeader *header, uint32_t length, uint32_t word) noexcept:
        """Returns when a message of the current datagram was sent."""
        # The stamp of the first message says when the datagram was published.
        if word & STAMPED and <const char *>header != self.datagram_start:
            return self.send_ticks + stamp_ticks(<const char *>header, length, self.ticks_per_stamp)
        return self.send_ticks

    @cython.final
    cdef int give_slowly(
        self, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1:
        """Gives the controller a message that is not in order; returns how many messages were delivered."""
        cdef char *start = <char *>header + MESSAGE_HEADER_BYTES
        cdef uint64_t sent_ticks = self.sent_ticks(header, length, word)
        cdef int flags = flags_of(word)
        cdef Message message
        cdef long given
        self.arrival.ticks = 0      # callbacks may run
        # Counting up from here in the fast path never reaches 2**63, where numbers turn negative.
        if self.upstream is not None and sequence > controller.expected:
            # The numbers before this one are missing since now, not since the time that was passed in last.
            self.now_ns = max(self.now_ns, <int64_t>self.upstream.newest_arrival_ns())
        if sequence >> 62 or (
            self.upstream is not None and (sequence > controller.expected or not controller.has_trusted_number)
            and not self.is_credible(controller, sequence, flags)
        ):
            self.skipped += 1
            self.tally.malformed += 1
            self.show_tally()
            return 0
        if controller.skips_live:
            controller.expected = max(controller.expected, sequence + (not flags & FLAG_TSNI))
            return 0
        if controller.may_wait > 0 and sequence == controller.expected and not flags & UNUSUAL:
            controller.may_wait -= 1
            controller._order_map[sequence] = flags, PyBytes_FromStringAndSize(start, length), (sent_ticks, self.published_ticks)
            controller.expected += 1
            self.messages += 1
            return 0
        if sequence == controller.expected and controller.fast_path and not flags & (FLAG_FRAGMENT | FLAG_TSNI):
            message = message_with_front(controller.origin, start, length, sequence, flags, sent_ticks)
            if message is not None:
                message.published_ticks = self.published_ticks
                controller.expected += 1
                self.messages += 1
                if flags & FLAG_REQUEST:
                    self.tally.lbm_reqs_rcved += 1
                    self.show_tally()
                controller.deliver(message, self.slow_path)
                return 1
        if flags & FLAG_FRAGMENT and sequence == controller.expected:
            given = take_fragment(self, controller, start, length, flags, sequence, sent_ticks)
            if given != NOT_NEXT:
                return given
        payload = PyMemoryView_FromMemory(start, length, PyBUF_READ)
        controller.published_ticks = self.published_ticks
        try:
            given = controller.take_slowly(sequence, flags, payload, sent_ticks, self.now_ns)
        finally:
            payload.release()
        if flags & FLAG_FRAGMENT and given != DROPPED_NUMBER:
            self.tally.fragments_rcved += 1
        self.show_tally()
        if given == DROPPED_NUMBER or flags & FLAG_TSNI:
            return max(given, 0)
        if not flags & FLAG_FRAGMENT:
            self.messages += 1
        if given == IN_PLACE_NUMBER:
            self.give(controller, header, length, word, sequence)
            return 1
        return given

    @cython.final
    cdef inline int give(
        self, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1:
        cdef Sink sink = controller.single_sink
        if sink is not None:
            if sink.pulls:
                return self.store(sink, controller, header, length, word, sequence)
            return self.call_back(sink, controller, header, length, word, sequence)
        for each in controller.sinks:
            sink = <Sink>each
            if sink.pulls:
                self.store(sink, controller, header, length, word, sequence)
            else:
                self.call_back(sink, controller, header, length, word, sequence)
        return 0

    @cython.final
    cdef inline int store(
        self, Sink sink, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1:
        """Puts a message into a row, or a copy of it into the queue."""
        cdef const char *payload = <const char *>header + MESSAGE_HEADER_BYTES
        if sink.closed:
            return 0
        if not sink_row(sink, payload, length) and not (
            sink.queue.leases and lease_in_place(self, sink, controller, header, length, word, sequence)
        ):
            if length > PASS_BYTES // PASS_MESSAGES:
                self.copied += length
                self.stop = self.stop or (self.copied >= PASS_BYTES and not self.copies_all)
            sink_enqueue_copy(
                sink, controller.origin, payload, length, sequence, flags_of(word), self.sent_ticks(header, length, word), &self.arrival,
            )
        sink_count(sink, 1, length)
        return 0

    @cython.final
    cdef inline int call_back(
        self, Sink sink, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1:
        """Calls the callback with a message that points into the datagram."""
        cdef Message message = self.spare_message
        cdef PyObject *result
        if sink.closed:
            return 0
        self.arrival.ticks, self.called_back = 0, True      # the callback may take long
        if sink.takes != MESSAGES:
            return sink.give_data(<const char *>header + MESSAGE_HEADER_BYTES, length, self.lender, self.slow_path)
        if message is None:
            message = Message.__new__(Message)
            message.lender = self.lender
        else:
            self.spare_message = None
        if message.origin is not controller.origin:
            message.origin = controller.origin
        message.start = <const char *>header + MESSAGE_HEADER_BYTES
        message.length = length
        message.sequence = message.first_sequence = sequence
        message.flags = flags_of(word)
        message.send_ticks = self.sent_ticks(header, length, word)
        message.published_ticks = self.published_ticks
        message.lent = True
        sink_count(sink, 1, length)
        # Called without Cython's own exception frame, which would cost as much as half the call.
        result = PyObject_CallOneArg(<PyObject *>sink.callback, <PyObject *>message)
        if result == NULL:
            return sink.count_raised(message, self.slow_path)
        Py_DECREF(result)
        if is_sole(<PyObject *>message):
            if message.given_view is not None or message.own is not None:
                message.reset()
            self.spare_message = message
        else:
            message.detach()
        return 0


include "fragments_in_order.pxi"
include "pulled_in_place.pxi"
