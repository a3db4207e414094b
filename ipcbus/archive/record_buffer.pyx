# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The memory in which messages wait for the disk; the stub documents it."""
cimport cython
from libc.stdint cimport INT64_MAX, UINT32_MAX, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from collections import deque

from ipcbus.archive.resume_positions import ResumePosition

from ipcbus.archive._archive_layout cimport (
    BATCH_WAIT_BIT,
    BATCH_WAIT_NS,
    CLOCK_SKEW_MAX_NS,
    REQUEST_FLAG,
    SEGMENT_BYTES_MAX,
    TYPE_BOS,
    TYPE_DATA,
    TYPE_EOS,
    TYPE_LOSS_RECORDER,
    TYPE_REQUEST,
    TYPE_RESPONSE,
    TYPE_UNRECOVERABLE_LOSS,
    TYPE_UNRECOVERABLE_LOSS_BURST,
    Row,
)
from ipcbus.archive.row_block cimport RowBlock, filled_of, new_row_block
from ipcbus.delivery.received_message cimport Message, Origin, message_block, message_bytes, message_value
from ringbuf.clock cimport clock_kind, epoch_ns, ns_per_tick, read_ticks

BUFFER_BYTES_MIN = 1 << 17

cdef enum:
    BLOCK_MIN = 1 << 16
    BLOCK_MAX = 1 << 22
    LONG_COPY = 1 << 20     # other threads run during a longer copy
    NOTES_MAX = 1 << 16     # beyond this number, notes of one topic are joined

PAUSE_S = 0.01
cdef uint32_t BATCH_WAIT = <uint32_t>1 << BATCH_WAIT_BIT     # not in the enum: it is too large for an int


# Two threads use a record buffer, each in a critical section of it: between a check and the action after it no Python code
# runs, and no object is freed that could run some. Functions that let other threads run say so.


cdef class TopicState:
    """What the record buffer knows of a topic of a session."""


cdef class NewestRows:
    """Which topic number the newest rows of a topic name and a session are of."""


cdef class RecordBuffer:
    def __init__(self, size_t buffer_bytes, wake, freed, *, bint waits=False, resume_positions={},
                 size_t message_max=SEGMENT_BYTES_MAX, size_t parts=16):
        if buffer_bytes < BUFFER_BYTES_MIN:
            raise ValueError(
                f"{buffer_bytes} bytes of memory are not enough to record; give {BUFFER_BYTES_MIN} or more"
            )
        self.limit = buffer_bytes
        # Rows lie at the end of a block, so its size is a multiple of their alignment.
        self.size = min(max(buffer_bytes // parts, <size_t>BLOCK_MIN), <size_t>BLOCK_MAX) & ~<size_t>15
        self.wake, self.freed = wake, freed
        self.waits = waits
        self.message_max = message_max
        self.resume_positions = dict(resume_positions)
        self.topics, self.sources, self.topic_states, self.newest_rows = {}, {}, {}, {}
        self.full_blocks, self.free_blocks = deque(), []

    def __dealloc__(self):
        free(self.notes)

    # ------------------------------------------------------------------ messages and events

    def record(self, Message message not None):
        cdef size_t need = message_bytes(message) + sizeof(Row)
        cdef RowBlock target
        with cython.critical_section(self):
            if message.origin is not self.origin:
                self.select_origin(message.origin)
                if self.topic_state.newest.number != message.origin.number:
                    self.tell_topic_number(message)
            target = self.open_block
            if (message.kind or self.notes_count or self.topic_state.resume_at >= 0 or target is None
                    or <size_t>(<char *>target.back - target.front) < need):
                self.append_slow(message, need)
            else:
                self.append(message)

    @cython.final
    cdef inline void append(self, Message message) noexcept:
        """Appends a message to the open block, which has room for it."""
        cdef RowBlock target = self.open_block
        cdef Row *row
        cdef Py_ssize_t length, headers
        cdef const char *value = message_value(message, &length)
        cdef const char *block = message_block(message, &headers)
        target.back -= 1
        row = target.back
        row.position = <uint32_t>(target.front - target.base)
        row.length = <uint32_t>length
        row.topic = self.topic_state.topic
        row.session = self.topic_state.session
        row.headers = <uint16_t>headers
        # A row has 8 bits for flags. A reader of the archive cannot answer a request: to it, it is a message like any other.
        row.flags = (message.flags | REQUEST_FLAG * (message.kind == TYPE_REQUEST)) & 0xFF
        row.type = message.kind if message.kind != TYPE_REQUEST else TYPE_DATA
        row.sequence = <int64_t>message.sequence
        row.send_ns = epoch_ns(message.send_ticks) if message.send_ticks else 0
        row.receive_ns = self.now()
        row.numbers = numbers_field(message, row.receive_ns - row.send_ns)
        if not self.copying:
            if headers:
                memcpy(target.front, block, headers)
            memcpy(target.front + headers, value, length)
        target.front += headers + length
        target.messages += 1
        target.bytes += headers + length

    @cython.final
    cdef inline int64_t now(self) noexcept:
        """Returns the time, never one before that of an earlier row, so that a log can be searched by time."""
        cdef int64_t now = epoch_ns(read_ticks(clock_kind()))
        if now > self.last_ns:
            self.last_ns = now
        return self.last_ns

    @cython.final
    cdef int append_slow(self, Message message, size_t need) except -1:
        """Records an event, or a message that does not simply fit into the open block."""
        try:
            self.process(message, need)
        finally:
            self.copying = False
        if self.added:
            self.added = False
            self.wake()
        return 0

    @cython.final
    cdef int process(self, Message message, size_t need) except -1:
        if message.kind and message.kind != TYPE_REQUEST and message.kind != TYPE_RESPONSE:
            self.event(message)
            self.make_room(None, 0)
            return 0
        if self.topic_state.resume_at >= 0:
            if self.is_known(message):
                return 0
            self.note_missed(<int64_t>message.first_sequence)
        if need - sizeof(Row) > self.message_max:
            self.too_large += message.sequence - message.first_sequence + 1
            self.drop(message)
            self.make_room(None, 0)
        elif self.make_room(message, need):
            if need > LONG_COPY:
                self.copy_without_gil(message)
            self.append(message)
        return 0

    @cython.final
    cdef int make_room(self, Message message, size_t need) except -1:
        """Appends the notes and makes room for a message; drops the message where there is no room.

        Lets other threads run, but not after it has found room.
        """
        try:
            if not (self.waits or self.paused) and self.used * 2 > self.limit:
                # The writer thread gets little of the interpreter while this thread never pauses.
                self.paused = True
                self.freed.clear()
                self.freed.wait(PAUSE_S)
            while True:
                if self.waits:
                    self.freed.clear()
                if self.append_notes() and (message is None or self.reserve(need)):
                    self.out_of_memory = False
                    return True
                self.out_of_memory = True
                if not self.waits:
                    break
                self.wake()
                self.freed.wait(0.1)
        except BaseException:   # an exception of a signal handler ends the wait
            if message is not None:
                self.drop(message)
            raise
        if message is not None:
            self.drop(message)
        return False

    @cython.final
    cdef int copy_without_gil(self, Message message) except -1:
        """Copies a long message while other threads run; meanwhile no thread takes the open block or appends rows."""
        cdef char *to = self.open_block.front
        cdef Py_ssize_t length, headers
        cdef const char *value = message_value(message, &length)
        cdef const char *block = message_block(message, &headers)
        self.copying = True
        with nogil:
            if headers:
                memcpy(to, block, headers)
            memcpy(to + headers, value, length)
        return 0

    @cython.final
    cdef int event(self, Message message) except -1:
        cdef int64_t first = <int64_t>message.first_sequence, last = <int64_t>message.sequence
        if message.kind == TYPE_UNRECOVERABLE_LOSS or message.kind == TYPE_UNRECOVERABLE_LOSS_BURST:
            if last < self.topic_state.resume_at:
                return 0
            if self.topic_state.resume_at >= 0:
                first = max(first, self.topic_state.resume_at)
                self.note_missed(first)
            self.losses += 1
            self.lost += last - first + 1
            self.note(message.kind, first, last)
        elif message.kind == TYPE_BOS:
            # Its number says whether the topic began again when a later recorder goes on.
            self.note(TYPE_BOS, -1 - message.origin.number, -2 - message.origin.number)
        elif message.kind == TYPE_EOS:
            if self.topic_state.resume_at >= 0:
                if message.following:
                    self.note_missed(<int64_t>message.following)
                else:   # the session may be joined again, and shows it then
                    self.resume_positions[message.origin.topic, message.origin.source] = ResumePosition(
                        self.topic_state.resume_at, self.topic_state.until_ns, frozenset((message.origin.number,))
                    )
            self.note(TYPE_EOS, 0, -1)
            self.topic_states.pop(message.origin, None)
            self.origin = None
        return 0

    # ------------------------------------------------------------------ topics of sessions

    @cython.final
    cdef int tell_topic_number(self, Message message) except -1:
        """Notes a BOS row before rows of another topic number.

        Where a topic began again in its session, its events may come before the last messages of the one before.
        """
        if message.kind != TYPE_EOS:
            self.topic_state.newest.number = message.origin.number
            if message.kind != TYPE_BOS:
                self.note(TYPE_BOS, -1 - message.origin.number, -2 - message.origin.number)
        return 0

    @cython.final
    cdef int select_origin(self, Origin origin) except -1:
        cdef TopicState topic_state = self.topic_states.get(origin)
        if topic_state is None:
            topic_state = TopicState()
            topic_state.topic = number_of_name(self.topics, origin.topic)
            topic_state.session = number_of_name(self.sources, origin.source)
            key = <uint64_t>topic_state.topic << 32 | topic_state.session
            topic_state.newest = self.newest_rows.get(key)
            if topic_state.newest is None:
                topic_state.newest = self.newest_rows[key] = NewestRows()
                topic_state.newest.number = origin.number
            position = self.resume_positions.pop((origin.topic, origin.source), None)
            topic_state.resume_at, topic_state.until_ns = (-1, 0) if position is None else position.of(origin.number)
            self.topic_states[origin] = topic_state
        self.topic_state = topic_state
        self.origin = origin
        return 0

    @cython.final
    cdef bint is_known(self, Message message) except -1:
        """Returns whether an earlier recorder has a message, as the source sent it again from its retention."""
        cdef TopicState topic_state = self.topic_state
        if <int64_t>message.first_sequence >= topic_state.resume_at:
            return False
        if message.send_ticks and epoch_ns(message.send_ticks) > topic_state.until_ns:
            return False    # the topic ended meanwhile and began again in the same session: a topic of its own
        if <int64_t>message.sequence >= topic_state.resume_at:  # a part of its fragments was reported lost
            self.note_missed(<int64_t>message.sequence + 1)
        return True

    @cython.final
    cdef int note_missed(self, int64_t until) except -1:
        """Notes what was missed since an earlier recorder, where the topic of the session goes on at this number."""
        cdef int64_t missed = self.topic_state.resume_at
        self.topic_state.resume_at = -1
        if until > missed:
            self.missed += until - missed
            self.note(TYPE_LOSS_RECORDER, missed, until - 1)
        return 0

    # ------------------------------------------------------------------ rows that cannot be appended at once

    @cython.final
    cdef int drop(self, Message message) except -1:
        cdef int64_t first = <int64_t>message.first_sequence, last = <int64_t>message.sequence
        self.dropped += last - first + 1
        self.note(TYPE_LOSS_RECORDER, first, last)
        return 0

    @cython.final
    cdef int note(self, int kind, int64_t first, int64_t last) except -1:
        """Keeps a row without bytes until `append_notes`; joins it with the topic's last note where it continues that
        one."""
        cdef uint64_t numbers = last - first + 1
        cdef TopicState topic_state = self.topic_state
        cdef Row *row
        cdef void *larger
        if topic_state.noted > self.notes_appended and numbers:
            row = self.notes + self.notes_first + (topic_state.noted - self.notes_appended - 1)
            if row.numbers and ((row.type == kind and row.sequence + 1 == first) or self.notes_count >= NOTES_MAX):
                # No row of the topic was appended since, so all numbers between are lost.
                if row.type != kind:
                    row.type = TYPE_LOSS_RECORDER
                row.numbers = <uint32_t>min(row.numbers + numbers, <uint64_t>UINT32_MAX)
                row.sequence = last
                return 0
        if self.notes_first + self.notes_count == self.notes_max:
            larger = realloc(self.notes, max(self.notes_max * 2, <size_t>64) * sizeof(Row))
            if larger == NULL:
                raise MemoryError()
            self.notes = <Row *>larger
            self.notes_max = max(self.notes_max * 2, <size_t>64)
        row = self.notes + self.notes_first + self.notes_count
        row.position = row.length = 0
        row.topic, row.session = topic_state.topic, topic_state.session
        row.numbers = <uint32_t>min(numbers, <uint64_t>UINT32_MAX)
        row.headers = row.flags = 0
        row.type = kind
        row.sequence = last
        row.send_ns = 0
        row.receive_ns = self.now()
        self.notes_count += 1
        topic_state.noted = self.notes_appended + self.notes_count
        return 0

    @cython.final
    cdef bint append_notes(self) except -1:
        """Appends the noted rows, as far as there is memory; returns whether all are appended."""
        cdef RowBlock target
        while self.notes_count:
            if not self.reserve(sizeof(Row)):
                return False
            target = self.open_block
            target.back -= 1
            target.back[0] = self.notes[self.notes_first]
            target.back.position = <uint32_t>(target.front - target.base)
            self.notes_first += 1
            self.notes_appended += 1
            self.notes_count -= 1
        self.notes_first = 0
        return True

    # ------------------------------------------------------------------ blocks of memory

    @cython.final
    cdef bint reserve(self, size_t need) except -1:
        """Makes sure that the open block has room for `need` bytes; returns whether it has."""
        cdef RowBlock target = self.open_block, next
        if target is not None and <size_t>(<char *>target.back - target.front) >= need:
            return True
        next = self.new_block(self.size if need <= self.size else (need + 15) & ~<size_t>15)
        if next is None:
            return False
        target = self.open_block
        if target is not None:
            self.full_blocks.append(target)
            self.full_bytes += filled_of(target)
        self.open_block = next
        self.added = True
        self.paused = False
        return True

    @cython.final
    cdef RowBlock new_block(self, size_t size):
        """Returns an empty block; None when there is no memory for it."""
        cdef RowBlock made
        cdef bint fits = self.used + size <= self.limit
        if not fits and (size == self.size or self.large):
            return None
        if size == self.size and self.free_blocks:
            made = self.free_blocks.pop()
        else:
            while self.free_blocks and self.allocated + size > self.limit:
                self.allocated -= (<RowBlock>self.free_blocks.pop()).size
            made = new_row_block(size)
            if made is None:
                return None
            self.allocated += size
        # A block larger than the limit is not counted, so it takes no room from later messages.
        made.counted = size if fits else 0
        self.used += made.counted
        self.large += not fits
        return made

    def take(self, bint partly=True):
        cdef RowBlock made
        with cython.critical_section(self):
            if self.full_blocks:
                return self.full_blocks.popleft()
            made = self.open_block
            if not partly or made is None or self.copying or made.back == made.end:
                return None
            self.open_block = None
            self.full_bytes += filled_of(made)
            return made

    def give_back(self, RowBlock block not None):
        with cython.critical_section(self):
            self.full_bytes -= filled_of(block)
            self.used -= block.counted
            self.large -= not block.counted
            if block.size == self.size:
                block.empty()
                self.free_blocks.append(block)
            else:
                self.allocated -= block.size
        self.freed.set()

    def flush_notes(self):
        with cython.critical_section(self):
            return not self.copying and self.append_notes()

    @property
    def filled(self):
        with cython.critical_section(self):
            return self.full_bytes + (filled_of(self.open_block) if self.open_block is not None else 0)

    @property
    def first_ns(self):
        with cython.critical_section(self):
            if self.full_blocks:
                return self.full_blocks[0].first_ns
            return self.open_block.first_ns if self.open_block is not None else 0


cdef inline uint32_t numbers_field(Message message, int64_t latency_ns) noexcept:
    """Returns the field `numbers` of a row: how many the message spans, or for one number its wait in the batch."""
    cdef uint64_t numbers = message.sequence - message.first_sequence + 1
    cdef double wait_ns
    if numbers != 1 or message.send_ticks == 0 or message.published_ticks < message.send_ticks:
        return <uint32_t>min(numbers, <uint64_t>(BATCH_WAIT - 1))
    if message.published_ticks == message.send_ticks:
        return BATCH_WAIT
    wait_ns = <double>(message.published_ticks - message.send_ticks) * ns_per_tick()
    # Then it was received before it was published; clocks of two hosts seldom disagree by that much.
    if wait_ns > <double>latency_ns + CLOCK_SKEW_MAX_NS:
        return 1
    return BATCH_WAIT | <uint32_t>min(wait_ns / BATCH_WAIT_NS, <double>(BATCH_WAIT - 1))


cdef uint32_t number_of_name(dict numbers, str name) except? 0xFFFFFFFF:
    """Returns the number of a name; a new name gets the next number."""
    return <uint32_t>numbers.setdefault(name, len(numbers))
