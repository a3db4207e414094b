# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Messages into the open record; see the stub for the words."""
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cimport cython

from ipcbus.errors import ClosedError, MessageTooLarge, ReservationError, WouldBlock, WrongProcess
from ipcbus.wire._layout cimport (
    FLAG_END_BATCH, FLAG_START_BATCH, MESSAGE_HEADER_BYTES, TOPIC_BITS, MessageHeader, TopicLine,
)
from ringbuf cimport _atomics
from ringbuf._layout cimport RECORD_HEADER
from ringbuf.clock cimport ns_per_tick
from ringbuf.memory cimport window_view
from ringbuf.ring cimport RingWriter, Writer, aligned, writer_claim, writer_drop_empty, writer_publish

cdef enum:
    GATE_CLOSED = 1
    GATE_FORKED = 2
    GATE_RESERVED = 4


cdef class BatchWriter:
    def __init__(
        self, RingWriter ring, policy, *, uint64_t minimum_length, uint64_t datagram_max, uint32_t topics_max,
        uint64_t topics_offset,
    ):
        self.record_limit = RECORD_HEADER + aligned(datagram_max)
        if self.record_limit > ring.w.record_max or topics_max & (topics_max - 1):
            raise ValueError(f"datagrams of {datagram_max} bytes or {topics_max} topics do not fit the ring")
        self.ring = ring
        self.w = &ring.w
        self.policy = policy
        self.minimum_length = minimum_length
        self.datagram_max = datagram_max
        self.topics_max = topics_max
        self.lines = <TopicLine *>(ring.ring.base + topics_offset)
        self.record_number = 1
        self.touched = <TopicLine **>malloc(topics_max * sizeof(TopicLine *))
        if self.touched == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.touched)

    @cython.final
    cdef int publish(self) except -1:
        cdef uint64_t parked = writer_publish(self.w)
        cdef uint32_t i
        for i in range(self.touched_count):
            _atomics.store_release64(&self.touched[i].published, self.touched[i].sequence_next)  # SYNC published
        self.touched_count = 0
        self.record_number += 1
        if parked:
            self.policy.parked(parked)
        return 0

    @cython.final
    cdef char *reserve_slowly(self, TopicSource source, uint64_t need, bint block) except NULL:
        """A place for `need` bytes when there is none at once: passes the gate, publishes, waits as the policy says.

        Each of these may let another thread send, so after each of them everything is looked at again.
        """
        cdef char *place
        while True:
            if self.gate or source.closed:
                source.check_open()
                self.pass_gate(source, block)
            elif self.w.used + need > self.record_limit:
                self.publish()
            else:
                place = writer_claim(self.w, need)
                if place != NULL:
                    return place
                if self.w.used and self.w.messages:
                    # Readers that wait for the batch are the ones who make room.
                    self.publish()
                else:
                    self.wait_for_room(source, need, block)

    @cython.final
    cdef int wait_for_room(self, TopicSource source, uint64_t need, bint block) except -1:
        """Asks the policy, and counts for the topic what came of it."""
        cdef TopicLine *line = source.line
        try:
            if self.policy.full(need, block, source):
                _atomics.store_relaxed64(&line.send_blocked, line.send_blocked + 1)
        except WouldBlock:
            _atomics.store_relaxed64(&line.send_would_block, line.send_would_block + 1)
            raise
        return 0

    @cython.final
    cdef int pass_gate(self, TopicSource source, bint block) except -1:
        while self.gate:
            if self.gate & GATE_FORKED:
                raise WrongProcess(
                    f"the source of topic {source.topic!r} belongs to the parent of this forked process; make a new "
                    "Context in the child"
                )
            if self.gate & GATE_CLOSED:
                raise ClosedError(f"the context of the source of topic {source.topic!r} is closed; make a new one")
            if self.reserver == PyThread_get_thread_ident():
                raise ReservationError(
                    f"topic {source.topic!r}: this thread is inside an acquire() block on the same session; leave the "
                    "block before the next send, or send from a source with another transport_*_id"
                )
            self.policy.reserved(block)
        return 0

    def flush(self):
        if self.gate & GATE_RESERVED or self.gate & GATE_FORKED or not self.w.used:
            return False
        writer_drop_empty(self.w)
        if not self.w.used:
            return False
        self.publish()
        return True

    def flush_older(self, uint64_t now_ticks, int64_t age_ns):
        cdef int64_t age
        if not self.w.used or self.gate or self.held:
            return -1
        age = <int64_t>(<double>(<int64_t>(now_ticks - self.w.open_ticks)) * ns_per_tick())
        if age < age_ns:
            return age_ns - age
        self.flush()
        return -1

    def settle(self):
        while self.gate & GATE_RESERVED and not self.gate & GATE_FORKED:
            if self.reserver == PyThread_get_thread_ident():
                return  # its own block is left after the close, and quietly
            self.policy.reserved(True)
        self.flush()

    def close(self):
        self.gate |= GATE_CLOSED

    def fork_child(self):
        self.gate |= GATE_FORKED


cdef class TopicSource:
    def __init__(self, BatchWriter batch, str topic, uint32_t topic_number):
        self.batch = batch
        self.topic = topic
        self.topic_number = topic_number
        self.line = batch.lines + (topic_number & (batch.topics_max - 1))
        self.message_max = batch.datagram_max - MESSAGE_HEADER_BYTES

    @property
    def sequence_number(self):
        return <int64_t>self.next_sequence - 1

    @cython.final
    cdef inline char *place(self, uint64_t length, bint block) except NULL:
        """Where a message of `length` bytes goes. Between this and `put` nothing may let another thread run."""
        cdef BatchWriter batch = self.batch
        cdef Writer *w = batch.w
        cdef uint64_t need = MESSAGE_HEADER_BYTES + aligned(length)
        cdef char *place
        if length > self.message_max:
            self.too_large(length)
        if batch.gate or self.closed or w.used + need > batch.record_limit:
            return batch.reserve_slowly(self, need, block)
        place = writer_claim(w, need)
        return place if place != NULL else batch.reserve_slowly(self, need, block)

    @cython.final
    cdef inline void put(self, char *place, uint64_t length, uint32_t flags) noexcept:
        """Makes the bytes behind the header at `place` the next message."""
        cdef BatchWriter batch = self.batch
        cdef Writer *w = batch.w
        cdef MessageHeader *header = <MessageHeader *>place
        header.length = <uint32_t>length
        header.topic = self.topic_number | flags << TOPIC_BITS
        header.sequence = self.next_sequence
        self.next_sequence += 1
        self.bytes_sent += length
        _atomics.store_relaxed64(&self.line.sequence_next, self.next_sequence)
        _atomics.store_relaxed64(&self.line.bytes_sent, self.bytes_sent)
        w.used += MESSAGE_HEADER_BYTES + aligned(length)
        w.messages += 1
        if self.record_number != batch.record_number:
            self.record_number = batch.record_number
            batch.touched[batch.touched_count] = self.line
            batch.touched_count += 1

    @cython.final
    cdef inline int after(self, bint flush) except -1:
        """Publishes if the message just put completes the datagram."""
        cdef BatchWriter batch = self.batch
        if flush or (batch.w.used - RECORD_HEADER >= batch.minimum_length and not batch.held):
            batch.publish()
        elif not batch.on_timer:
            batch.on_timer = True
            batch.policy.opened()
        return 0

    @cython.final
    cdef inline int append(self, const char *data, uint64_t length, uint32_t flags, bint flush, bint block) except -1:
        cdef char *place = self.place(length, block)
        memcpy(place + MESSAGE_HEADER_BYTES, data, length)
        self.put(place, length, flags)
        return self.after(flush)

    def send(self, data, *, bint flush=False, bint start_batch=False, bint end_batch=False, bint block=True):
        cdef bint held
        if not (start_batch or end_batch):
            self.send_flagged(data, 0, flush, block)
            return
        held = self.holds
        # Where each message is a datagram of its own the flags are carried, and nothing is held.
        self.hold(not end_batch and (held or self.batch.minimum_length != 0))
        try:
            self.send_flagged(
                data, (FLAG_START_BATCH if start_batch else 0) | (FLAG_END_BATCH if end_batch else 0), flush, block
            )
        except BaseException:
            self.hold(held)  # a message that was not sent neither begins nor ends a batch
            raise

    @cython.final
    cdef inline int send_flagged(self, data, uint32_t flags, bint flush, bint block) except -1:
        cdef Py_buffer view
        if PyBytes_CheckExact(data):
            return self.append(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), flags, flush, block)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return self.append(<const char *>view.buf, view.len, flags, flush, block)
        finally:
            PyBuffer_Release(&view)

    @cython.final
    cdef void hold(self, bint holds) noexcept:
        """Begins or ends this source's explicit batch."""
        if holds != self.holds:
            self.holds = holds
            self.batch.held += 1 if holds else -1

    def send_many(self, messages, *, bint flush=False, bint block=True):
        cdef uint64_t first = self.next_sequence
        cdef Py_buffer view
        # With a minimum of 0 each message would be a datagram; of messages that are all there a datagram takes what fits.
        cdef bint is_buffer = PyObject_CheckBuffer(messages)
        cdef bint at_once = self.batch.minimum_length == 0 and (is_buffer or isinstance(messages, (list, tuple)))
        self.batch.held += at_once
        try:
            if is_buffer:
                PyObject_GetBuffer(messages, &view, PyBUF_C_CONTIGUOUS)
                try:
                    self.append_rows(&view, block)
                finally:
                    PyBuffer_Release(&view)
            else:
                for message in messages:
                    PyObject_GetBuffer(message, &view, PyBUF_SIMPLE)
                    try:
                        self.append(<const char *>view.buf, view.len, 0, False, block)
                    finally:
                        PyBuffer_Release(&view)
        finally:
            self.batch.held -= at_once
            if flush or at_once:
                self.batch.flush()
        return self.next_sequence - first

    @cython.final
    cdef int append_rows(self, Py_buffer *view, bint block) except -1:
        cdef Py_ssize_t rows, length, i
        cdef const char *data = <const char *>view.buf
        if view.ndim == 2 and view.itemsize == 1:
            rows, length = view.shape[0], view.shape[1]
        elif view.ndim == 1 and view.itemsize > 1:
            rows, length = view.shape[0], view.itemsize
        else:
            raise TypeError(
                f"send_many takes a 2-D uint8 array, a 1-D array of items, or an iterable of bytes-like; this buffer "
                f"has {view.ndim} dimensions of {view.itemsize}-byte items (for one message use send)"
            )
        for i in range(rows):
            self.append(data + i * length, length, 0, False, block)
        return 0

    def acquire(self, length):
        cdef Reservation reservation = Reservation.__new__(Reservation)
        if length < 0:
            raise ValueError(f"cannot reserve {length} bytes")
        reservation.source = self
        reservation.length = length
        return reservation

    def flush(self):
        if self.batch.gate:
            self.batch.pass_gate(self, True)
        self.batch.flush()

    def drop(self):
        if self.holds:
            self.holds = False
            self.batch.held -= 1
        self.closed = True

    @cython.final
    cdef int too_large(self, uint64_t length) except -1:
        raise MessageTooLarge(
            f"topic {self.topic!r}: a message of {length} bytes exceeds {self.message_max}, the datagram maximum of "
            f"{self.batch.datagram_max} less {MESSAGE_HEADER_BYTES} for its header; raise transport_lbtsmx_datagram_max_size "
            "(LBT-SMX) or transport_lbtipc_datagram_max_size (LBT-IPC), or split the message"
        )

    @cython.final
    cdef int check_open(self) except -1:
        if self.closed and not self.batch.gate & GATE_FORKED:
            raise ClosedError(f"the source of topic {self.topic!r} is closed; make a new one with ctx.source")
        return 0


cdef class Reservation:
    def __enter__(self):
        cdef char *place = self.source.place(self.length, True)
        cdef BatchWriter batch = self.source.batch
        batch.gate |= GATE_RESERVED
        batch.reserver = PyThread_get_thread_ident()
        self.view = window_view(batch.ring.ring, place + MESSAGE_HEADER_BYTES, self.length, True)
        return self.view

    def __exit__(self, kind, error, trace):
        cdef BatchWriter batch = self.source.batch
        cdef char *place
        if batch.gate & GATE_FORKED:
            return
        batch.gate &= ~GATE_RESERVED
        batch.reserver = None
        try:
            self.view.release()
        except BufferError:
            # An array made from the view lives on; it holds the mapping and looks at whatever comes there next.
            pass
        if kind is None:
            place = batch.w.data + (batch.w.head & batch.w.mask) + batch.w.used
            self.source.put(place, self.length, 0)
            batch.publish()
        else:
            writer_drop_empty(batch.w)
        batch.policy.released()
