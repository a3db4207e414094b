# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True, auto_pickle=False
"""Puts messages into the open datagram; the stub has the documentation."""
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, strchr
cimport cython

from ipcbus.errors import WouldBlock
from ipcbus.topic import send_errors, send_modes
from ipcbus.topic.batch cimport (
    GATE_FORKED, GATE_RESERVED, BatchWriter, batch_publish, batch_publish_at, batch_publish_complete, bears_stamp, bytes_for,
    follows_a_burst, waits_to_be_filled,
)
from ipcbus.topic.message_front cimport copy_part
from ipcbus.topic.message_retention cimport Retention, retain
from ipcbus.topic.message_saver cimport MessageSaver
from ipcbus.wire._wire_layout cimport (
    FLAG_END_BATCH, FLAG_FRAGMENT, FLAG_GUARANTEED, FLAG_PROPERTIES, FLAG_REQUEST, FLAG_STAMPED, FLAG_START_BATCH,
    FLAG_TSNI, FRAGMENT_HEADER_BYTES, GUARANTEED_HEADER_BYTES, MESSAGE_HEADER_BYTES, MESSAGE_MAX, REQUEST_HEADER_BYTES,
    RETAINED_HEADER_BYTES, STAMP_BYTES, TOPIC_BITS, FragmentHeader, MessageHeader, TopicLine,
)
from ipcbus.wire.properties import pack
from ipcbus.wire.stamps cimport put_stamp, stride
from ringbuf cimport _atomics
from ringbuf._layout cimport RECORD_ALIGN, RECORD_HEADER
from ringbuf._long_copy cimport copy_message
from ringbuf.clock cimport clock_kind, epoch_ns, read_ticks
from ringbuf.free_threads cimport share_methods
from ringbuf.ring cimport Writer, aligned, writer_claim, writer_drop_empty, writer_ticks


cdef class TopicSource:
    """The sending handle of one topic.

    `message_max` is the length in bytes of the longest message in one piece; on LBT-SMX of the longest message at all.
    """
    def __init__(self, BatchWriter batch, str topic, uint32_t topic_number, uint64_t message_max=0):
        self.batch = batch
        self.topic = topic
        self.topic_number = topic_number
        self.line = batch.lines + (topic_number & (batch.topics_max - 1))
        self.line_record = batch.line_records + (topic_number & (batch.topics_max - 1))
        self.message_max = message_max or batch.datagram_max - MESSAGE_HEADER_BYTES
        # Where each message is a datagram of its own (LBT-SMX), messages are not fragmented.
        if batch.minimum_length:
            self.fragment_max = (self.message_max - FRAGMENT_HEADER_BYTES) & ~<uint64_t>(RECORD_ALIGN - 1)

    @property
    def _batch(self):
        return self.batch

    @property
    def sequence_number(self):
        """The sequence number of the last message; -1 before the first message."""
        return <int64_t>self.next_sequence - 1

    @property
    def closed(self):
        """Whether the source, or its context, is closed."""
        return bool(self.gate & SOURCE_CLOSED)

    @cython.final
    cdef inline char *place(self, BatchWriter batch, uint64_t length, bint flush, bint block) except NULL:
        """Returns the place of a message of `length` bytes.

        The caller is in a critical section of the batch. Until `put`, no call may let another thread run.
        """
        # The batch is an argument, as in all calls for each message: a new reference would cost as much as the rest.
        cdef Writer *w = batch.w
        cdef uint64_t need = bytes_for(batch, length, flush)
        cdef char *place
        if batch.gate or self.gate or w.used + need > batch.record_limit:
            return self.reserve_slowly(length, flush, block, 0, 0)
        place = writer_claim(w, need)
        return place if place != NULL else self.reserve_slowly(length, flush, block, 0, 0)

    @cython.final
    cdef char *reserve_slowly(self, uint64_t length, bint flush, bint block, int own_gates, int own_batch_gates) except NULL:
        """Returns a place for a message after passing gates, publishing, and waiting as the policy says.

        Each of these steps may let another thread send, so after each of them all is checked again. The caller itself has
        shut the gates in `own_gates` and `own_batch_gates`.
        """
        cdef BatchWriter batch = self.batch
        cdef uint64_t need
        cdef char *place
        while True:
            need = bytes_for(batch, length, flush)
            if batch.gate & ~own_batch_gates:
                self.pass_session_gate(block)
            elif self.gate & ~own_gates:
                self.pass_gate(block)
            elif batch.w.used + need > batch.record_limit:
                batch_publish_complete(batch, writer_ticks(batch.w), False)
            else:
                place = writer_claim(batch.w, need)
                if place != NULL:
                    return place
                if batch.w.used and batch.w.messages:
                    # The readers that have to make room wait for this batch.
                    batch_publish(batch)
                else:
                    self.wait_for_room(need, block)

    @cython.final
    cdef int wait_for_room(self, uint64_t need, bint block) except -1:
        """Waits as the policy says, and counts the result for the topic."""
        if self.batch.tell_held():
            return 0
        try:
            if self.batch.policy.ring_full(need, block, self):
                _atomics.store_relaxed64(&self.line.send_blocked, self.line.send_blocked + 1)
        except WouldBlock:
            _atomics.store_relaxed64(&self.line.send_would_block, self.line.send_would_block + 1)
            raise
        self.batch.go_on()
        return 0

    @cython.final
    cdef int pass_session_gate(self, bint block) except -1:
        """Passes the gate of the session; a closed source is reported first, as its session may be closed too."""
        if self.gate & SOURCE_CLOSED and not self.batch.gate & GATE_FORKED:
            raise self._closed_error()
        return self.batch.pass_gate(self.topic, block)

    @cython.final
    cdef int pass_gate(self, bint block) except -1:
        if self.gate & SOURCE_CLOSED:
            raise self._closed_error()
        if self.gate:
            self.batch.policy.wait_for_release(block, self._is_shut)
        return 0

    @cython.final
    cdef inline void put(self, BatchWriter batch, char *place, uint64_t length, uint32_t flags, bint flush) noexcept:
        """Makes the bytes behind the header at `place` the next message; `length` and `flush` are those of the `place` call."""
        cdef Writer *w = batch.w
        cdef uint64_t need = stride(length)
        self.sent_ticks = w.open_ticks
        if bears_stamp(batch, length, flush):
            need = stride(length + STAMP_BYTES)
            flags |= FLAG_STAMPED
            if w.used == RECORD_HEADER:
                batch.publication_stamp = place + MESSAGE_HEADER_BYTES + length
            else:
                self.sent_ticks = writer_ticks(w)
                batch.sent_ticks_sum += self.sent_ticks - w.open_ticks
            put_stamp(place + MESSAGE_HEADER_BYTES + length, self.sent_ticks - w.open_ticks, batch.stamps_per_tick)
        self.write_header(place, length, flags, self.next_sequence)
        if self.retained != NULL:
            retain(self.retained, self.sent_ticks, place)
        self.count_messages(batch, 1, length, need)

    @cython.final
    cdef inline void write_header(self, char *place, uint64_t length, uint32_t flags, uint64_t sequence) noexcept:
        """Writes the header of a message."""
        cdef MessageHeader *header = <MessageHeader *>place
        header.length = <uint32_t>length
        header.topic = self.topic_number | flags << TOPIC_BITS
        header.sequence = sequence

    @cython.final
    cdef inline void count_messages(self, BatchWriter batch, uint32_t messages, uint64_t length, uint64_t need) noexcept:
        """Counts messages of the open record: `length` bytes of payload, `need` bytes of the record."""
        cdef Writer *w = batch.w
        self.next_sequence += messages
        self.bytes_sent += length
        _atomics.store_relaxed64(&self.line.sequence_next, self.next_sequence)
        _atomics.store_relaxed64(&self.line.bytes_sent, self.bytes_sent)
        w.used += need
        w.messages += messages
        if self.line_record[0] != batch.record_number:
            self.line_record[0] = batch.record_number
            batch.publish_pairs[batch.publish_pair_count] = &self.line.sequence_next
            batch.publish_pair_count += 1

    @cython.final
    cdef inline int publish_if_complete(self, BatchWriter batch, bint flush) except -1:
        """Publishes if the message just put completes the datagram."""
        # A full datagram is complete also in an explicit batch: no message fits, nor perhaps the time of publication.
        if flush or (batch.w.used - RECORD_HEADER >= batch.minimum_length and (
            not batch.explicit_batches or (batch.stamps_messages and batch.w.used + MESSAGE_HEADER_BYTES > batch.record_limit)
        )) or follows_a_burst(batch):
            batch_publish_complete(batch, self.sent_ticks, flush)
        elif not batch.timer_runs or (not batch.burst_watched and waits_to_be_filled(batch)):
            batch.ask_timer()
        return 0

    @cython.final
    cdef inline int append(self, const char *data, uint64_t length, uint32_t flags, bint flush, bint block) except -1:
        cdef BatchWriter batch = self.batch
        cdef char *place
        with cython.critical_section(batch):
            if length > self.message_max:
                append_fragments(self, None, data, length, flags, flush, block)
            else:
                place = self.place(batch, length, flush, block)
                copy_message(place + MESSAGE_HEADER_BYTES, data, length, batch.w.past_caches_from)
                self.put(batch, place, length, flags, flush)
                self.publish_if_complete(batch, flush)
        return 0

    @cython.final
    cdef int append_with_front(
        self, bytes front, const char *data, uint64_t length, uint32_t flags, bint flush, bint block
    ) except -1:
        """Sends a message with bytes before its value: a request header, a header block, or both in this order."""
        cdef BatchWriter batch = self.batch
        cdef char *place
        length += PyBytes_GET_SIZE(front)
        with cython.critical_section(batch):
            if length > self.message_max:
                append_fragments(self, front, data, length, flags, flush, block)
            else:
                place = self.place(batch, length, flush, block)
                copy_part(place + MESSAGE_HEADER_BYTES, front, data, 0, length, batch.w.past_caches_from)
                self.put(batch, place, length, flags, flush)
                if flags & FLAG_GUARANTEED:
                    self.note_put(self.next_sequence - 1)
                self.publish_if_complete(batch, flush)
        return 0

    @cython.final
    cdef inline void note_put(self, uint64_t first) noexcept:
        """Notes that the guaranteed message just put has the numbers from `first` on."""
        self.guaranteed_first, self.guaranteed_last, self.guaranteed_is_put = first, self.next_sequence - 1, True
        self._guaranteed_numbers += self.next_sequence - first

    def send(
        self, data, *, headers=None, bint flush=False, bint start_batch=False, bint end_batch=False, bint block=True,
        delivery_mode=None, delivery_timeout=None,
    ):
        """Sends one message; the source has copied the bytes before the call returns.

        A message longer than `message_max`, headers included, is sent in fragments, each with a number of its own.

        Args:
            data: bytes-like and contiguous; may be empty.
            headers: names and bytes-like values that go with the message, as a mapping or as pairs; a name may come
                more than once. A name has 1 to 255 bytes of UTF-8. The names and values of a message, 3 bytes for each
                header and 2 bytes for all of them are limited to 65535 bytes, and count as bytes of the message.
            flush: publish the message at once, with the batch before it (intelligent batching).
            start_batch: begin an explicit batch: the messages of the session wait for its end, for a full datagram, for
                a `flush`, or for `explicit_batching_interval`; on LBT-SMX none waits. The receiver sees the flag.
            end_batch: end the explicit batch with this message; the batch then leaves by size and age, or at once with
                `flush`. The receiver sees the flag.
            block: wait while a receiver-paced ring is full. If false, raise `WouldBlock` then.
            delivery_mode: `best_effort`, `ordered`, `some` or `all`; None takes that of the source (option
                delivery_mode). The last two need option `gmd_name`: a copy of the message is in the GMD area when the
                call returns, until one expected receiver (`some`) or each of them (`all`) has acknowledged it.
            delivery_timeout: seconds after which a `some` or `all` message that was not acknowledged is a failure
                (event GMD_FAILURE); 0: never; None takes that of the source (option delivery_timeout).

        Raises:
            ipcbus.MessageTooLarge: the message with its headers is longer than 2**31 - 1 bytes, or on LBT-SMX than
                `message_max`; the headers take more than 65535 bytes; a message in fragments must not wait (`block` is
                false, or the caller is inside a message callback) and is longer than a receiver-paced window; or a
                share has had a member, and the message takes more than `retransmit_retention_size_limit` bytes.
            ipcbus.WouldBlock: the ring is full, and `block` is false or the caller is inside a message callback.
            ipcbus.ClosedError, ipcbus.WrongProcess: the source is closed, or belongs to the parent of a fork.
            ipcbus.ReservationError: this thread is inside an `acquire` block of the session.
            ipcbus.SegmentDamaged: another program has cut the shared memory of the session short.
            TypeError, BufferError: `data` is not bytes-like and contiguous, or a header is not a text and bytes.
            ValueError: the name of a header is empty, too long, or not valid in UTF-8; or the timeout is negative.
            ipcbus.ConfigError: there is no such delivery mode, or a `some` or `all` message needs a `gmd_name`; or a
                message that is not guaranteed has a timeout.
            ipcbus.GmdAreaFull, ipcbus.GmdError: the GMD area has no room, or cannot be written. A message whose send
                raises is not sent, and no copy of it is kept.
        """
        cdef bint was_open
        cdef bytes header_block
        cdef uint32_t flags
        cdef int mode = 0
        cdef int64_t timeout_ns = 0
        if self.gmd_mode or delivery_mode is not None or delivery_timeout is not None:
            mode = mode_of(self, delivery_mode, delivery_timeout, &timeout_ns)
        if headers is None and not (start_batch or end_batch or mode):
            if PyBytes_CheckExact(data):
                self.append(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0, flush, block)
            else:
                self.send_flagged(data, None, 0, flush, block)
            return
        header_block = None if headers is None else pack(headers) or None
        flags = FLAG_PROPERTIES * (header_block is not None)
        if not (start_batch or end_batch):
            self.send_in_mode(data, header_block, flags, flush, block, mode, timeout_ns)
            return
        was_open = self.in_explicit_batch
        # Where each message is a datagram of its own, the flags are sent and no batch is kept open.
        self.set_explicit_batch(not end_batch and (was_open or self.batch.minimum_length != 0))
        flags |= FLAG_START_BATCH * start_batch | FLAG_END_BATCH * end_batch
        try:
            self.send_in_mode(data, header_block, flags, flush, block, mode, timeout_ns)
        except BaseException:
            self.set_explicit_batch(was_open)  # a message that was not sent neither begins nor ends a batch
            raise
        if end_batch:
            self.batch.explicit_batch_ended()

    @cython.final
    cdef inline int send_in_mode(
        self, data, bytes header_block, uint32_t flags, bint flush, bint block, int mode, int64_t timeout_ns
    ) except -1:
        if mode:
            return send_guaranteed(self, data, header_block, flags, flush, block, mode, timeout_ns)
        return self.send_flagged(data, header_block, flags, flush, block)

    cpdef _send_request(self, data, uint64_t number, headers=None, bint block=True):
        cdef bytes front = PyBytes_FromStringAndSize(<const char *>&number, REQUEST_HEADER_BYTES)
        cdef bytes header_block = b"" if headers is None else pack(headers)
        self.send_flagged(data, front + header_block, FLAG_REQUEST | FLAG_PROPERTIES * (len(header_block) > 0), True, block)

    @cython.final
    cdef int send_flagged(self, data, bytes front, uint32_t flags, bint flush, bint block) except -1:
        cdef Py_buffer view
        if not PyObject_CheckBuffer(data):
            raise send_errors.not_bytes(self.topic, data)
        # An array says in its format whether it holds references to objects.
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE if PyBytes_CheckExact(data) else PyBUF_ND | PyBUF_FORMAT)
        try:
            if view.format != NULL and strchr(view.format, b"O") != NULL:
                send_errors.check_references(data, "send")
            if front is not None:
                return self.append_with_front(front, <const char *>view.buf, view.len, flags, flush, block)
            return self.append(<const char *>view.buf, view.len, flags, flush, block)
        finally:
            PyBuffer_Release(&view)

    @cython.final
    cdef void set_explicit_batch(self, bint begins) noexcept:
        """Begins or ends this source's explicit batch."""
        with cython.critical_section(self.batch):
            if begins != self.in_explicit_batch:
                self.in_explicit_batch = begins
                self.batch.explicit_batches += 1 if begins else -1

    def send_many(
        self, messages, *, bint flush=False, bint block=True, delivery_mode=None, delivery_timeout=None
    ):
        """Sends many messages in one call, and returns how many were sent.

        Args:
            messages: an iterable of bytes-like objects; or a C-contiguous array, of which each row is a message: a 2-D
                array of uint8, or a 1-D array of structured or other items.
            flush: publish the last batch at the end of the call. LBT-SMX always does.
            block: as in `send`. After `WouldBlock`, `sequence_number` shows how far the call came.
            delivery_mode: of each message, as in `send`.
            delivery_timeout: of each message, as in `send`.

        Raises:
            TypeError: an item is not bytes-like (the text names its index; those before it were sent), or the array
                has another shape, or holds references to objects.
            ipcbus.IpcBusError: as in `send`.
        """
        cdef Py_buffer view
        cdef Py_ssize_t sent = 0
        cdef int64_t timeout_ns = 0
        cdef int mode = mode_of(self, delivery_mode, delivery_timeout, &timeout_ns)
        # With a minimum of 0 each message would be a datagram; if all messages are there, a datagram takes those that fit.
        cdef bint is_buffer = PyObject_CheckBuffer(messages)
        cdef bint at_once = self.batch.minimum_length == 0 and (is_buffer or isinstance(messages, (list, tuple)))
        self.batch.count_explicit(at_once)
        try:
            if is_buffer:
                send_errors.check_references(messages, "send_many")
                PyObject_GetBuffer(messages, &view, PyBUF_C_CONTIGUOUS)
                try:
                    sent = self.append_rows(&view, block, mode, timeout_ns)
                finally:
                    PyBuffer_Release(&view)
            else:
                for message in messages:
                    if not PyObject_CheckBuffer(message):
                        raise send_errors.not_bytes(self.topic, message, sent)
                    self.send_in_mode(message, None, 0, False, block, mode, timeout_ns)
                    sent += 1
        finally:
            self.batch.count_explicit(-<int>at_once)
            if flush or at_once:
                self.batch.flush()
        return sent

    @cython.final
    cdef Py_ssize_t append_rows(self, Py_buffer *view, bint block, int mode, int64_t timeout_ns) except -1:
        cdef Py_ssize_t rows, length, i
        cdef const char *data = <const char *>view.buf
        if view.ndim == 2 and view.itemsize == 1:
            rows, length = view.shape[0], view.shape[1]
        elif view.ndim == 1 and view.itemsize > 1:
            rows, length = view.shape[0], view.itemsize
        else:
            raise send_errors.not_rows(self.topic, view.ndim, view.itemsize)
        if mode:
            for i in range(rows):
                send_guaranteed(
                    self, PyBytes_FromStringAndSize(data + i * length, length), None, 0, False, block, mode, timeout_ns
                )
            return rows
        if <uint64_t>length > self.message_max:
            for i in range(rows):
                self.append(data + i * length, length, 0, False, block)
            return rows
        i = 0
        while i < rows:
            with cython.critical_section(self.batch):
                i += self.put_rows(data + i * length, length, rows - i, block)
        return rows

    @cython.final
    cdef Py_ssize_t put_rows(self, const char *data, uint64_t length, uint64_t rows, bint block) except -1:
        """Sends as many rows as fit into the open datagram, publishes it if it is complete, and returns their number.

        The caller is in a critical section of the batch.

        All of them have the send time of the first one, as no other thread can run in between. If they begin the
        datagram, only the first one has a stamp, which is the datagram's; otherwise each has a stamp of that time.
        """
        cdef BatchWriter batch = self.batch
        cdef Writer *w = batch.w
        cdef char *place = self.place(batch, length, False, block)
        cdef bint stamped = batch.stamps_messages and w.used > RECORD_HEADER
        cdef uint64_t need = stride(length + STAMP_BYTES * stamped), left, more, i
        cdef uint32_t flags = FLAG_STAMPED * stamped
        copy_message(place + MESSAGE_HEADER_BYTES, data, length, w.past_caches_from)
        self.put(batch, place, length, 0, False)
        left = min(batch.record_limit - w.used, w.limit - w.head - w.used - w.trailing_bytes)
        if not batch.explicit_batches:
            # The last row is the one that completes the datagram.
            left = min(left, max(batch.minimum_length + RECORD_HEADER, w.used) - w.used + need - 1)
        more = min(rows - 1, left // need)
        place = w.data + (w.head & w.mask) + w.used
        for i in range(more):
            data += length
            copy_message(place + MESSAGE_HEADER_BYTES, data, length, w.past_caches_from)
            if stamped:
                put_stamp(place + MESSAGE_HEADER_BYTES + length, self.sent_ticks - w.open_ticks, batch.stamps_per_tick)
            self.write_header(place, length, flags, self.next_sequence + i)
            if self.retained != NULL:
                retain(self.retained, self.sent_ticks, place)
            place += need
        batch.sent_ticks_sum += more * (self.sent_ticks - w.open_ticks)
        self.count_messages(batch, <uint32_t>more, more * length, more * need)
        self.publish_if_complete(batch, False)
        return more + 1

    def acquire(self, length, *, delivery_mode=None, delivery_timeout=None):
        """Reserves `length` bytes in the ring, in which the caller writes a message without a copy.

        Use it as `with src.acquire(n) as buf:`. `buf` is a writable memoryview; overwrite all of its old bytes. The end
        of the block publishes the message; an exception cancels it. After the block `buf` is released, and using it
        raises ValueError. An array made from `buf` may be kept: after the block it has memory of its own.

        If another thread closes the source or the context during the block, that thread waits for
        `acquire_close_timeout` (ms). After this time the message is not sent, and the block ends with `ClosedError`. So
        does a block in which the source or the context is closed.

        Args:
            length: bytes of the message, 0 to `message_max`, or 8 less for a guaranteed message.
            delivery_mode: as in `send`. A guaranteed message is copied into the GMD area at the end of the block, which
                raises the errors of that copy; the message is then not sent.
            delivery_timeout: as in `send`.

        Raises:
            ipcbus.MessageTooLarge: `length` exceeds `message_max`; a message that is written in place has no fragments.
            TypeError, ValueError: `length` is not a whole number, or is negative.
            ipcbus.IpcBusError: as in `send`, when the block begins.
        """
        cdef Reservation reservation = Reservation.__new__(Reservation)
        if not PyLong_CheckExact(length) or length < 0 or length > MESSAGE_MAX:
            length = send_errors.checked_length(self.topic, length, self.message_max, in_fragments=self.fragment_max != 0)
        reservation.source = self
        reservation.length = length
        reservation.mode = mode_of(self, delivery_mode, delivery_timeout, &reservation.timeout_ns)
        return reservation

    def flush(self):
        """Publishes the open batch of the session, which all its sources share; raises errors as `send` does."""
        if self.batch.gate:
            self.pass_session_gate(True)
        self.batch.flush()

    def _guarantee(self, MessageSaver saver, int mode, int64_t timeout_ns):
        self.saver, self.gmd_mode, self.gmd_timeout_ns = saver, mode, timeout_ns

    def _is_guaranteeing(self):
        return self.guaranteeing_thread != 0

    def _retain(self, Retention retention):
        with cython.critical_section(self.batch):
            before = self.retention     # freed behind the section
            self.retention = retention
            self.retained = NULL if retention is None else &retention.retained
            if retention is not None:
                retention.attach(self.next_sequence, self.batch.ns_per_tick(), &self.line.published, self.batch)

    def _feed_shares(self):
        with cython.critical_section(self.batch):
            self.feeds_shares = True
            # Longer ones take the way of messages in fragments, which looks at the limit: others need no look for it.
            self.message_max = min(self.message_max, (self.retained.size_limit - RETAINED_HEADER_BYTES) & ~<uint64_t>7)

    def _hold(self, bint holds):
        with cython.critical_section(self.batch):
            self.gate = self.gate | SOURCE_HELD if holds else self.gate & ~SOURCE_HELD

    def _is_shut(self):
        return self.gate != 0

    def _closed_error(self):
        return send_errors.closed(self.topic)

    def _refuse_sends(self):
        self.set_explicit_batch(False)
        with cython.critical_section(self.batch):
            self.gate |= SOURCE_CLOSED

    def _idle_ns(self, uint64_t now_ticks):
        if self.next_sequence == 0:
            return None
        return <int64_t>(<double>(<int64_t>(now_ticks - self.sent_ticks)) * self.batch.ns_per_tick())

    def _ns_since_info(self, uint64_t now_ticks):
        cdef uint64_t since = max(self.sent_ticks, self.info_ticks)
        return <int64_t>(<double>(<int64_t>(now_ticks - since)) * self.batch.ns_per_tick())

    def _put_info(self):
        with cython.critical_section(self.batch):
            return self.put_info()

    @cython.final
    cdef bint put_info(self) except -1:
        """Appends the next number of the topic for receivers; returns False if there is no room for more now."""
        cdef BatchWriter batch = self.batch
        cdef MessageHeader *header
        if self.gate:
            return True  # it sends a message just now, or is closed
        while batch.w.used + MESSAGE_HEADER_BYTES > batch.record_limit:
            batch_publish(batch)
            # Another thread may have begun to write in place, or an explicit batch.
            if batch.gate or batch.explicit_batches:
                return False
            if self.gate:
                return True
        header = <MessageHeader *>writer_claim(batch.w, MESSAGE_HEADER_BYTES)
        if header == NULL:
            return False
        header.length = 0
        header.topic = self.topic_number | <uint32_t>FLAG_TSNI << TOPIC_BITS
        header.sequence = self.next_sequence
        batch.w.used += MESSAGE_HEADER_BYTES
        batch.infos_sent += 1
        self.info_ticks = writer_ticks(batch.w)
        return True


include "fragmented_send.pxi"
include "guaranteed_send.pxi"
include "reservation.pxi"

share_methods(TopicSource)
share_methods(Reservation)
