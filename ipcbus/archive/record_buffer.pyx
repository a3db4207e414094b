# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Where messages wait for the disk; see the stub for the words."""
cimport cython
from libc.stdint cimport INT64_MAX, UINT32_MAX, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from collections import deque

from ipcbus.archive._archive_layout cimport (
    BATCH_WAIT_BIT,
    BATCH_WAIT_NS,
    SEGMENT_BYTES_MAX,
    TYPE_BOS,
    TYPE_EOS,
    TYPE_LOSS_RECORDER,
    TYPE_REQUEST,
    TYPE_RESPONSE,
    TYPE_UNRECOVERABLE_LOSS,
    TYPE_UNRECOVERABLE_LOSS_BURST,
    Row,
)
from ipcbus.archive.row_block cimport RowBlock, filled_of, new_buffer
from ipcbus.delivery.received_message cimport Message, Origin, message_block, message_bytes, message_value
from ringbuf.clock cimport clock_kind, epoch_ns, ns_per_tick, read_ticks

BUFFER_BYTES_MIN = 1 << 17

cdef enum:
    PART_MIN = 1 << 16
    PART_MAX = 1 << 22
    LONG_COPY = 1 << 20     # a longer one lets other threads run
    CLOCKS_APART_NS = 1000000000
    NOTES_MAX = 1 << 16     # more of them are told more coarsely

GIVE_WAY_S = 0.01

cdef uint32_t BATCH_WAIT = <uint32_t>1 << BATCH_WAIT_BIT     # no enum: it is too large for an int


# Two threads use a stage, without a lock of their own: between a look at it and what is done after that no Python runs,
# and nothing is freed that could, so that no other thread comes in between. What lets others in is named where it does.


cdef class Line:
    """A topic of a session."""


cdef class RecordBuffer:
    def __init__(self, size_t buffer_bytes, wake, room, *, bint waits=False, known={},
                 size_t message_max=SEGMENT_BYTES_MAX, size_t parts=16):
        if buffer_bytes < BUFFER_BYTES_MIN:
            raise ValueError(
                f"{buffer_bytes} bytes of memory are too few to record with; give {BUFFER_BYTES_MIN} or more"
            )
        self.limit = buffer_bytes
        # Rows lie at the end, so that this has to be a multiple of their alignment.
        self.size = min(max(buffer_bytes // parts, <size_t>PART_MIN), <size_t>PART_MAX) & ~<size_t>15
        self.wake, self.room = wake, room
        self.waits = waits
        self.message_max = message_max
        self.known = dict(known)
        self.topics, self.sources, self.lines = {}, {}, {}
        self.full, self.free = deque(), []

    def __dealloc__(self):
        free(self.notes)

    # ------------------------------------------------------------------ what comes

    def stage(self, Message message not None):
        cdef size_t need = message_bytes(message) + sizeof(Row)
        cdef RowBlock here
        if message.origin is not self.origin:
            self.turn_to(message.origin)
        here = self.open
        if (message.kind or self.notes_count or self.line.next >= 0 or here is None
                or <size_t>(<char *>here.back - here.front) < need):
            self.slow(message, need)
        else:
            self.put(message)

    @cython.final
    cdef inline void put(self, Message message) noexcept:
        """Writes a message where there is room for it."""
        cdef RowBlock here = self.open
        cdef Row *row
        cdef Py_ssize_t length, headers
        cdef const char *value = message_value(message, &length)
        cdef const char *block = message_block(message, &headers)
        here.back -= 1
        row = here.back
        row.position = <uint32_t>(here.front - here.base)
        row.length = <uint32_t>length
        row.topic = self.line.topic
        row.session = self.line.session
        row.headers = <uint16_t>headers
        row.flags = message.flags
        row.type = message.kind
        row.sequence = <int64_t>message.sequence
        row.send_ns = epoch_ns(message.send_ticks) if message.send_ticks else 0
        row.receive_ns = self.now()
        row.numbers = numbers_of(message, row.receive_ns - row.send_ns)
        if not self.copying:
            if headers:
                memcpy(here.front, block, headers)
            memcpy(here.front + headers, value, length)
        here.front += headers + length
        here.messages += 1
        here.bytes += headers + length

    @cython.final
    cdef inline int64_t now(self) noexcept:
        """The time; never before that of an earlier row, so that a log can be searched by time."""
        cdef int64_t now = epoch_ns(read_ticks(clock_kind()))
        if now > self.last_ns:
            self.last_ns = now
        return self.last_ns

    @cython.final
    cdef int slow(self, Message message, size_t need) except -1:
        """Takes what is no message, or what does not simply go into the open buffer."""
        try:
            self.take_in(message, need)
        finally:
            self.copying = False
        if self.pushed:
            self.pushed = False
            self.wake()
        return 0

    @cython.final
    cdef int take_in(self, Message message, size_t need) except -1:
        if message.kind and message.kind != TYPE_REQUEST and message.kind != TYPE_RESPONSE:
            self.event(message)
            self.wait(None, 0)
            return 0
        if self.line.next >= 0:
            self.tell_absence(<int64_t>message.first_sequence)
        if need - sizeof(Row) > self.message_max:
            self.too_large += message.sequence - message.first_sequence + 1
            self.drop(message)
            self.wait(None, 0)
        elif self.wait(message, need):
            if need > LONG_COPY:
                self.copy_without_gil(message)
            self.put(message)
        return 0

    @cython.final
    cdef int wait(self, Message message, size_t need) except -1:
        """Puts what was noted and finds room for a message; one that finds none is dropped.

        Lets other threads in, but not after it has found room.
        """
        try:
            if not (self.waits or self.gave_way) and self.used * 2 > self.limit:
                # Both threads want the interpreter; without this one that never pauses the other gets little of it.
                self.gave_way = True
                self.room.clear()
                self.room.wait(GIVE_WAY_S)
            while True:
                if self.waits:
                    self.room.clear()
                if self.put_notes() and (message is None or self.open_room(need)):
                    self.starving = False
                    return True
                self.starving = True
                if not self.waits:
                    break
                self.wake()
                self.room.wait(0.1)
        except BaseException:   # what a signal handler raised ends the wait
            if message is not None:
                self.drop(message)
            raise
        if message is not None:
            self.drop(message)
        return False

    @cython.final
    cdef int copy_without_gil(self, Message message) except -1:
        """Copies what takes long while other threads run; nobody takes the open buffer, or puts rows, meanwhile."""
        cdef char *to = self.open.front
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
            if self.line.next >= 0:
                self.tell_absence(first)
            self.losses += 1
            self.lost += last - first + 1
            self.note(message.kind, first, last)
        elif message.kind == TYPE_BOS:
            self.note(TYPE_BOS, 0, -1)
        elif message.kind == TYPE_EOS:
            if self.line.next >= 0:
                if message.following:
                    self.tell_absence(<int64_t>message.following)
                else:   # perhaps it is joined again, and tells then
                    self.known[message.origin.topic, message.origin.source] = self.line.next
            self.note(TYPE_EOS, 0, -1)
            self.lines.pop(message.origin, None)
            self.origin = None
        return 0

    # ------------------------------------------------------------------ topics of sessions

    @cython.final
    cdef int turn_to(self, Origin origin) except -1:
        cdef Line line = self.lines.get(origin)
        if line is None:
            line = Line()
            line.topic = number_of(self.topics, origin.topic)
            line.session = number_of(self.sources, origin.source)
            line.next = self.known.pop((origin.topic, origin.source), -1)
            self.lines[origin] = line
        self.line = line
        self.origin = origin
        return 0

    @cython.final
    cdef int tell_absence(self, int64_t until) except -1:
        """A topic of a session that an earlier recorder has met, too, begins with this number."""
        cdef int64_t missed = self.line.next
        self.line.next = -1
        if until > missed:
            self.missed += until - missed
            self.note(TYPE_LOSS_RECORDER, missed, until - 1)
        return 0

    # ------------------------------------------------------------------ what cannot be put at once

    @cython.final
    cdef int drop(self, Message message) except -1:
        cdef int64_t first = <int64_t>message.first_sequence, last = <int64_t>message.sequence
        self.dropped += last - first + 1
        self.note(TYPE_LOSS_RECORDER, first, last)
        return 0

    @cython.final
    cdef int note(self, int kind, int64_t first, int64_t last) except -1:
        """Keeps a row without bytes until `put_notes`; one that goes on where the line's last one ends is one with it."""
        cdef uint64_t numbers = last - first + 1
        cdef Line line = self.line
        cdef Row *row
        cdef void *more
        if line.noted > self.notes_gone and numbers:
            row = self.notes + self.notes_first + (line.noted - self.notes_gone - 1)
            if row.numbers and ((row.type == kind and row.sequence + 1 == first) or self.notes_count >= NOTES_MAX):
                # Nothing of the line was put since, so that all between is lost, to whomever.
                if row.type != kind:
                    row.type = TYPE_LOSS_RECORDER
                row.numbers = <uint32_t>min(row.numbers + numbers, <uint64_t>UINT32_MAX)
                row.sequence = last
                return 0
        if self.notes_first + self.notes_count == self.notes_max:
            more = realloc(self.notes, max(self.notes_max * 2, <size_t>64) * sizeof(Row))
            if more == NULL:
                raise MemoryError()
            self.notes = <Row *>more
            self.notes_max = max(self.notes_max * 2, <size_t>64)
        row = self.notes + self.notes_first + self.notes_count
        row.position = row.length = 0
        row.topic, row.session = line.topic, line.session
        row.numbers = <uint32_t>min(numbers, <uint64_t>UINT32_MAX)
        row.headers = row.flags = 0
        row.type = kind
        row.sequence = last
        row.send_ns = 0
        row.receive_ns = self.now()
        self.notes_count += 1
        line.noted = self.notes_gone + self.notes_count
        return 0

    @cython.final
    cdef bint put_notes(self) except -1:
        """Puts the rows that were noted, as far as there is memory; returns whether all are."""
        cdef RowBlock here
        while self.notes_count:
            if not self.open_room(sizeof(Row)):
                return False
            here = self.open
            here.back -= 1
            here.back[0] = self.notes[self.notes_first]
            here.back.position = <uint32_t>(here.front - here.base)
            self.notes_first += 1
            self.notes_gone += 1
            self.notes_count -= 1
        self.notes_first = 0
        return True

    # ------------------------------------------------------------------ buffers

    @cython.final
    cdef bint open_room(self, size_t need) except -1:
        """Makes sure that so many bytes fit into the open buffer; returns whether they do."""
        cdef RowBlock here = self.open, next
        if here is not None and <size_t>(<char *>here.back - here.front) >= need:
            return True
        next = self.allocate(self.size if need <= self.size else (need + 15) & ~<size_t>15)
        if next is None:
            return False
        here = self.open
        if here is not None:
            self.full.append(here)
            self.full_bytes += filled_of(here)
        self.open = next
        self.pushed = True
        self.gave_way = False
        return True

    @cython.final
    cdef RowBlock allocate(self, size_t size):
        """A buffer; None when there is no memory for it."""
        cdef RowBlock found
        cdef bint fits = self.used + size <= self.limit
        if not fits and (size == self.size or self.large):
            return None
        if size == self.size and self.free:
            found = self.free.pop()
        else:
            while self.free and self.allocated + size > self.limit:
                self.allocated -= (<RowBlock>self.free.pop()).size
            found = new_buffer(size)
            if found is None:
                return None
            self.allocated += size
        # What is longer than all of the memory lies beside it, and takes no room from what comes after it.
        found.counted = size if fits else 0
        self.used += found.counted
        self.large += not fits
        return found

    def take(self, bint partly=True):
        cdef RowBlock found = self.open
        if self.full:
            return self.full.popleft()
        if not partly or found is None or self.copying or found.back == found.end:
            return None
        self.open = None
        self.full_bytes += filled_of(found)
        return found

    def give_back(self, RowBlock buffer not None):
        self.full_bytes -= filled_of(buffer)
        self.used -= buffer.counted
        self.large -= not buffer.counted
        if buffer.size == self.size:
            buffer.empty()
            self.free.append(buffer)
        else:
            self.allocated -= buffer.size
        self.room.set()

    def settle(self):
        return not self.copying and self.put_notes()

    @property
    def filled(self):
        return self.full_bytes + (filled_of(self.open) if self.open is not None else 0)

    @property
    def first_ns(self):
        if self.full:
            return self.full[0].first_ns
        return self.open.first_ns if self.open is not None else 0


cdef inline uint32_t numbers_of(Message message, int64_t latency_ns) noexcept:
    """How many numbers a message spans; of one number with its wait in the batch, where that can be what is said of it."""
    cdef uint64_t numbers = message.sequence - message.first_sequence + 1
    cdef double wait_ns
    if numbers != 1 or message.send_ticks == 0 or message.published_ticks < message.send_ticks:
        return <uint32_t>min(numbers, <uint64_t>(BATCH_WAIT - 1))
    if message.published_ticks == message.send_ticks:
        return BATCH_WAIT
    wait_ns = <double>(message.published_ticks - message.send_ticks) * ns_per_tick()
    # What was received before it was published; the clocks of two hosts may disagree, but seldom by that much.
    if wait_ns > <double>latency_ns + CLOCKS_APART_NS:
        return 1
    return BATCH_WAIT | <uint32_t>min(wait_ns / BATCH_WAIT_NS, <double>(BATCH_WAIT - 1))


cdef uint32_t number_of(dict numbers, str name) except? 0xFFFFFFFF:
    """The number of a name; a new one gets the next."""
    return <uint32_t>numbers.setdefault(name, len(numbers))
