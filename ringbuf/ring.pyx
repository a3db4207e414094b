# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The rare half of the ring and its Python interface; the stub has the documentation, ring.pxd the hot half."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from ringbuf cimport _atomics
from ringbuf._checksum cimport crc32c
from ringbuf._layout cimport (
    RECEIVER_PACED, RECEIVER_PACED_EVICTS, RECORD_TRAILER, SKIP, SKIPS_KEPT, SLOT_ACTIVE, SOURCE_PACED, WRITER_RUNS, WRITER_SLEEPS,
    WRITER_WANTS_EVENT, ControlHeader, Record, RingHeader, Trailer,
)
from ringbuf._long_copy cimport LONG_MESSAGE, past_caches_from
from ringbuf._room cimport SLOT_BYTES, find_room, is_possible, published, slot_at, writer_wait
from ringbuf._skips cimport may_go_back
from ringbuf.clock cimport clock_kind, read_ticks
from ringbuf.headers cimport check_control, check_ring
from ringbuf.memory cimport Mapping, window_view
from ringbuf.wake cimport asymmetric, barrier, futex_wake_all

from ringbuf.ring_errors import SegmentMismatch

cdef enum:
    LAPS_MAX = 1000             # a source-paced ring is damaged after this number of laps in a row


cdef bint writer_find_room(Writer *w, uint64_t need) noexcept nogil:
    return find_room(w, need)


cdef void writer_put_skip(Writer *w) noexcept nogil:
    """Publishes the skip to the record that was just published."""
    cdef Record *record = <Record *>(w.data + (w.skip_at & w.mask))
    cdef uint32_t i = w.skips % SKIPS_KEPT
    record.messages, record.send_ticks = SKIP, w.head - w.skip_at
    _atomics.store_relaxed64(&w.header.skips_from[i], w.skip_at)
    _atomics.store_relaxed64(&w.header.skips_to[i], w.head)
    w.skips += 1
    _atomics.store_release32(&record.frame, RECORD_HEADER)  # SYNC frame
    w.skip_at = NO_SKIP


cdef uint32_t checksum_of(const Record *record, uint32_t frame, uint32_t length) noexcept nogil:
    cdef uint32_t sum = crc32c(0, &frame, sizeof(frame))
    sum = crc32c(sum, &record.messages, aligned(length) - sizeof(frame))
    return crc32c(sum, &length, sizeof(length))


cdef void writer_seal(Writer *w) noexcept nogil:
    """Appends the trailer to the open record."""
    cdef Record *record = <Record *>(w.data + (w.head & w.mask))
    cdef uint32_t length = <uint32_t>w.used
    cdef Trailer *trailer = <Trailer *>(<char *>record + aligned(length))
    memset(<char *>record + length, 0, aligned(length) - length)
    w.used = aligned(length) + RECORD_TRAILER
    trailer.length = length
    trailer.checksum = checksum_of(record, <uint32_t>w.used, length)


cdef uint32_t sealed_length(const Record *record, uint32_t frame) noexcept nogil:
    """Returns the length in the trailer of a record; 0 when the checksum does not match the record."""
    cdef const Trailer *trailer = <const Trailer *>(<const char *>record + frame - RECORD_TRAILER)
    cdef uint32_t length
    if frame & (RECORD_ALIGN - 1) or frame < RECORD_HEADER + RECORD_TRAILER:
        return 0
    length = trailer.length
    if length < RECORD_HEADER or aligned(length) != frame - RECORD_TRAILER:
        return 0
    return length if trailer.checksum == checksum_of(record, frame, length) else 0


cdef inline uint64_t skip_distance(const Reader *r, const Record *record) noexcept nogil:
    """Returns how many bytes behind a skip the next record begins; 0 if it says what no writer writes."""
    cdef uint64_t distance = record.send_ticks
    return distance if RECORD_HEADER <= distance <= r.mask and not distance & (RECORD_ALIGN - 1) else 0


cdef const Record *reader_short(Reader *r, uint32_t frame) noexcept nogil:
    """Returns the record that follows a skip, or one without a body; NULL without one, or if the ring is damaged."""
    cdef const Record *record = <const Record *>(r.data + (r.position & r.mask))
    cdef uint64_t distance
    if frame == RECORD_HEADER and record.messages == SKIP:
        distance = skip_distance(r, record)
        if not distance:
            r.stopped = True
            return NULL
        r.position += distance
        record = <const Record *>(r.data + (r.position & r.mask))
        frame = _atomics.load_acquire32(&record.frame)  # SYNC frame
    if frame < RECORD_HEADER or frame > r.record_max or record.messages == SKIP:
        r.stopped = frame != 0
        return NULL
    r.frame = frame
    return record


cdef const Record *reader_copy(Reader *r) noexcept nogil:
    """Returns a validated copy of the next record of a ring that is not read in place; NULL without a record."""
    return copy_unless_evicted(r) if r.evicts else copy_unless_lapped(r)


cdef const Record *copy_unless_evicted(Reader *r) noexcept nogil:
    cdef const Record *record = <const Record *>(r.data + (r.position & r.mask))
    cdef uint32_t frame = _atomics.load_acquire32(&record.frame)  # SYNC frame
    cdef bint possible = RECORD_HEADER <= frame and frame <= r.record_max
    if possible:
        memcpy(r.copy, record, frame)
    _atomics.fence_acquire()  # SYNC evict
    if _atomics.load_relaxed32(&r.slot.state) != SLOT_ACTIVE:
        r.stopped = r.evicted = True
        return NULL
    if possible:
        r.frame = frame
        return <const Record *>r.copy
    r.stopped = frame != 0
    return NULL


cdef const Record *copy_unless_lapped(Reader *r) noexcept nogil:
    cdef uint64_t capacity = r.mask + 1
    cdef const Record *record
    cdef uint32_t frame
    cdef int lap
    for lap in range(LAPS_MAX):
        record = <const Record *>(r.data + (r.position & r.mask))
        frame = _atomics.load_acquire32(&record.frame)  # SYNC frame
        if _atomics.load_relaxed64(&r.header.intent) <= r.position + capacity:
            if frame == 0:
                return NULL
            if frame < RECORD_HEADER or frame > r.record_max:
                r.stopped = True
                return NULL
            memcpy(r.copy, record, frame)
            _atomics.fence_acquire()  # SYNC intent
            if _atomics.load_relaxed64(&r.header.intent) <= r.position + capacity:
                r.frame = frame
                return <const Record *>r.copy
        r.overruns += 1
        r.position = _atomics.load_acquire64(&r.header.tail)  # SYNC tail
    # Lapped at each new tail at once: no valid writer is a ring ahead of its own tail.
    r.stopped = True
    return NULL


cdef bint reader_was_overtaken(const Reader *r) noexcept nogil:
    """Returns whether a reader that copies was evicted or lapped."""
    if r.evicts:
        return _atomics.load_relaxed32(&r.slot.state) != SLOT_ACTIVE
    return _atomics.load_relaxed64(&r.header.intent) > r.position + r.mask + 1


cdef inline uint64_t most_ahead(const Reader *r) noexcept nogil:
    """Returns how far the tail may be ahead of a reader that reads in place: a ring, and another one by skips."""
    return (1 if r.copies else 2) * (r.mask + 1)


cdef bint records_reach(const Reader *r, uint64_t position, uint64_t tail) noexcept nogil:
    """Returns whether a chain of records leads from a position exactly to the tail."""
    cdef const Record *record
    cdef uint32_t frame
    cdef uint64_t step
    while <int64_t>(tail - position) > 0:
        if tail - position > most_ahead(r):
            return False
        record = <const Record *>(r.data + (position & r.mask))
        frame = _atomics.load_acquire32(&record.frame)  # SYNC frame
        if frame < RECORD_HEADER or frame > r.record_max:
            return False
        if frame == RECORD_HEADER and record.messages == SKIP:
            step = skip_distance(r, record)
            if not step:
                return False
        else:
            step = aligned(frame)
        position += step
    return position == tail


cdef bint reader_in_sync(Reader *r) noexcept nogil:
    """Returns whether the current record ends where the next one begins; stops the reader otherwise (see `resync`)."""
    # A writer that has published the record may not have moved its tail yet: `out_of_sync` notices that.
    r.stopped = not records_reach(r, r.position + aligned(r.frame), _atomics.load_acquire64(&r.header.tail))  # SYNC tail
    return not r.stopped


cdef const Record *next_record(RingReader reader, uint32_t *length) noexcept:
    """Returns the next record as `reader_next` does, but steps over records whose checksum is wrong."""
    cdef Reader *r = &reader.r
    cdef const Record *record
    while True:
        record = reader_next(r)
        if record == NULL or not reader_is_whole(r, record):
            return NULL
        length[0] = record_length(r, record)
        if length[0]:
            return record
        if not r.stopped:
            _atomics.store_relaxed64(&r.slot.malformed, r.slot.malformed + 1)
        if not reader_in_sync(r):
            return NULL
        if reader_done(r):
            reader.owes_event = True


cdef uint64_t reader_bytes_since(const Reader *r, uint64_t position) noexcept nogil:
    """Returns how many bytes of records lie between a position and that of the next record."""
    cdef uint64_t bytes = r.position - position, at, to
    cdef int i
    for i in range(SKIPS_KEPT):
        at, to = _atomics.load_relaxed64(&r.header.skips_from[i]), _atomics.load_relaxed64(&r.header.skips_to[i])
        if position <= at and at < to and to <= r.position and to - at <= bytes:
            bytes -= to - at
    return bytes


cdef bint reader_show(Reader *r) noexcept nogil:
    """Publishes position and counters, and wakes a sleeping writer; returns True when the writer waits for an event."""
    cdef uint64_t position = min(r.position, _atomics.load_relaxed64(&r.held))
    _atomics.store_relaxed64(&r.slot.msgs_rcved, r.records)
    _atomics.store_relaxed64(&r.slot.bytes_rcved, r.bytes)
    _atomics.store_relaxed64(&r.slot.overruns, r.overruns)
    _atomics.raise_release64(&r.slot.position, position, r.leases)  # SYNC position
    r.shown = r.position
    return let_writer_go_on(r, position)


cdef bint reader_release(Reader *r) noexcept nogil:
    """Shows how far the ring is free in a thread that does not read it; returns True when the writer waits for an event."""
    cdef uint64_t position = min(_atomics.load_relaxed64(&r.position), _atomics.load_relaxed64(&r.held))
    _atomics.raise_release64(&r.slot.position, position, True)  # SYNC position
    return let_writer_go_on(r, position)


cdef inline bint let_writer_go_on(Reader *r, uint64_t position) noexcept nogil:
    """Wakes a sleeping writer that waits for this position; returns True when it waits for an event."""
    cdef uint32_t was
    # SYNC wait
    if r.fences:
        _atomics.fence_full()
    else:
        _atomics.compiler_fence()
    if _atomics.load_relaxed32(&r.control.writer_waits) == WRITER_RUNS:
        return False
    if position < _atomics.load_relaxed64(&r.control.wanted):
        return False
    was = _atomics.exchange32(&r.control.writer_waits, WRITER_RUNS)
    if was & WRITER_SLEEPS:
        futex_wake_all(&r.control.writer_waits)
    return was & WRITER_WANTS_EVENT


cdef void reader_sample(Reader *r, uint64_t send_ticks, double ns_per_tick) noexcept nogil:
    """Puts the age of a message into the latency histogram, with the weight of all messages since the last sample."""
    cdef int64_t age = <int64_t>(read_ticks(r.clock) - send_ticks)
    cdef uint64_t ns = 0
    cdef uint32_t bucket
    if age < 0:
        _atomics.store_relaxed64(&r.slot.clock_faults, r.slot.clock_faults + 1)
    else:
        ns = <uint64_t>(<double>age * ns_per_tick)
    bucket = bucket_of(ns)
    _atomics.store_relaxed64(&r.slot.latency[bucket], r.slot.latency[bucket] + r.sample_weight)
    _atomics.store_relaxed64(&r.slot.latency_samples, r.slot.latency_samples + 1)
    if ns > r.slot.latency_max:
        _atomics.store_relaxed64(&r.slot.latency_max, ns)
    r.since_sample = r.sample_weight = 0


cdef class RingWriter:
    def __init__(self, Mapping ring, Mapping control):
        cdef RingHeader header
        cdef ControlHeader shared
        check_ring(ring, &header)
        check_control(control, header.session_id, &shared)
        self.ring = ring
        self.control = control
        self.capacity = header.capacity
        self.w.header = <RingHeader *>ring.base
        self.w.control = <ControlHeader *>control.base
        self.w.slots = control.base + shared.slots_offset
        self.w.slots_max = shared.slots_max
        self.w.data = ring.base + header.data_offset
        self.w.ring_cut, self.w.control_cut = &ring.cut_short, &control.cut_short
        self.w.mask = header.capacity - 1
        self.w.past_caches_from = past_caches_from(header.capacity)
        self.w.record_max = header.record_max
        self.w.clock = clock_kind()
        self.w.source_paced = header.pacing == SOURCE_PACED
        self.w.checksums = header.checksums != 0
        self.w.trailing_bytes = RECORD_ALIGN + (RECORD_TRAILER if self.w.checksums else 0)
        self.w.fences = not asymmetric()
        self.w.intent_step = min(header.capacity // 16, 65536)
        self.w.skip_at = NO_SKIP

    @property
    def head(self):
        return published(&self.w)

    @property
    def open_bytes(self):
        return self.w.used

    def go_back(self, uint64_t message_max, uint64_t messages, uint64_t long_from=LONG_MESSAGE):
        cdef uint64_t record
        if self.w.header.pacing != RECEIVER_PACED or self.w.checksums:
            return
        if not self.w.longest:
            self.w.trailing_bytes += RECORD_ALIGN   # room for a skip behind each record
        record = aligned(RECORD_HEADER + message_max) + self.w.trailing_bytes
        self.w.longest, self.w.long_from = max(self.w.longest, record), long_from
        self.w.promised = max(self.w.promised, messages * record)
        # Then two records are in use by turns: the one that is read, and the next one.
        self.w.past_caches_from = past_caches_from(2 * self.w.longest if may_go_back(&self.w) else self.capacity)

    def set_time(self, uint64_t ticks):
        self.w.clock = VIRTUAL_CLOCK
        self.w.virtual_ticks = ticks

    def write(self, bytes body, uint32_t messages=1):
        cdef Py_ssize_t n = PyBytes_GET_SIZE(body)
        place = self.claim(n)
        if place is None:
            return False
        memcpy(self.w.data + (self.w.head & self.w.mask) + RECORD_HEADER, PyBytes_AS_STRING(body), n)
        self.w.messages = messages
        writer_publish(&self.w)
        return True

    def claim(self, Py_ssize_t length):
        cdef char *place
        cdef uint64_t around = RECORD_HEADER + self.w.trailing_bytes - RECORD_ALIGN
        if length < 0 or around + length > self.w.record_max:
            raise ValueError(
                f"a record of {length} bytes exceeds the ring's maximum of {self.w.record_max - around} bytes; claim less"
            )
        if self.w.used:
            raise ValueError("a record is open already; commit or cancel it first")
        place = writer_claim(&self.w, aligned(length))
        if place == NULL:
            return None
        self.w.used += length
        self.w.messages = 1
        return window_view(self.ring, place, length, True)

    def commit(self):
        if not self.w.used:
            raise ValueError("no record is open; claim one first")
        return writer_publish(&self.w)

    def cancel(self):
        writer_drop(&self.w)

    def has_room(self, uint64_t length):
        cdef uint64_t used = self.w.used if self.w.used else RECORD_HEADER
        return bool(find_room(&self.w, used + aligned(length) + self.w.trailing_bytes))

    def wait_room(self, uint64_t length, uint64_t spins, int64_t timeout_ns):
        cdef uint64_t used = self.w.used if self.w.used else RECORD_HEADER
        cdef uint64_t end = self.w.head + used + aligned(length) + self.w.trailing_bytes
        with nogil:
            writer_wait(&self.w, end, spins, timeout_ns)
        return self.has_room(length)

    def want_event(self, uint64_t length):
        _atomics.store_relaxed64(&self.w.control.wanted, self.position_needed(length))
        _atomics.or32(&self.w.control.writer_waits, WRITER_WANTS_EVENT)
        barrier()  # SYNC wait
        return not self.has_room(length)

    def position_needed(self, uint64_t length):
        cdef uint64_t used = self.w.used if self.w.used else RECORD_HEADER
        cdef uint64_t end = self.w.head + used + aligned(length) + self.w.trailing_bytes
        return end - self.capacity if end > self.capacity else 0

    def accepted_position(self, uint32_t slot, uint64_t position, uint32_t generation):
        if slot >= self.w.slots_max:
            raise ValueError(f"slot {slot} does not exist; the ring has slots 0 to {self.w.slots_max - 1}")
        if is_possible(&self.w, position, self.w.accepted_generation[slot] == generation):
            return position
        return self.w.accepted[slot] if self.w.accepted_generation[slot] == generation else None

    def count_blocked(self, uint64_t blocked_ns):
        _atomics.add64(&self.w.header.send_blocked, 1)
        _atomics.add64(&self.w.header.blocked_ns, blocked_ns)

    def count_would_block(self):
        _atomics.add64(&self.w.header.send_would_block, 1)

    cpdef void count_wakes(self, uint64_t wakes) noexcept:
        _atomics.add64(&self.w.header.wakes_sent, wakes)

    def count_reclaimed(self):
        _atomics.add64(&self.w.header.slots_reclaimed, 1)

    def count_evicted(self):
        _atomics.add64(&self.w.header.receivers_evicted, 1)

    def touch(self):
        _atomics.store_relaxed32(&self.w.header.activity, self.w.header.activity + 1)

    def close(self):
        _atomics.store_release32(&self.w.header.closed, 1)  # SYNC closed


cdef class RingReader:
    def __init__(self, Mapping ring, Mapping control, int slot_index, uint64_t sample_every=16):
        cdef RingHeader header
        cdef ControlHeader shared
        check_ring(ring, &header)
        check_control(control, header.session_id, &shared)
        if slot_index < 0 or <uint32_t>slot_index >= shared.slots_max:
            raise ValueError(f"slot {slot_index} does not exist; the ring has slots 0 to {shared.slots_max - 1}")
        if header.clock != clock_kind():
            raise SegmentMismatch(
                "the ring's source measures time with another clock than this process; restart both on one host"
            )
        self.ring = ring
        self.control = control
        self.capacity = header.capacity
        self.slot_index = slot_index
        self.r.header = <const RingHeader *>ring.base
        self.r.control = <ControlHeader *>control.base
        self.r.slot = slot_at(control.base + shared.slots_offset, slot_index)
        self.r.data = ring.base + header.data_offset
        self.r.ring_cut, self.r.control_cut = &ring.cut_short, &control.cut_short
        self.r.mask = header.capacity - 1
        self.r.record_max = header.record_max
        self.r.held = NOTHING_HELD
        self.r.clock = clock_kind()
        self.r.checksums = header.checksums != 0
        self.r.copies = header.pacing != RECEIVER_PACED
        self.r.evicts = header.pacing == RECEIVER_PACED_EVICTS
        self.r.show_step = header.capacity // 32
        self.r.fences = not asymmetric()
        self.r.sample_every = sample_every
        if self.r.copies:
            self.r.copy = <char *>malloc(header.record_max)
            if self.r.copy == NULL:
                raise MemoryError()

    def __dealloc__(self):
        free(self.r.copy)

    @property
    def position(self):
        return self.r.position

    @property
    def tail(self):
        return _atomics.load_acquire64(&self.r.header.tail)

    @property
    def overruns(self):
        return self.r.overruns

    @property
    def cut_short(self):
        return bool(reader_is_cut(&self.r))

    @property
    def broken(self):
        return self.r.stopped and not self.r.evicted

    @property
    def evicted(self):
        # The slot is checked as well, for a reader that does not read now.
        return self.r.evicted or (self.r.evicts and reader_was_overtaken(&self.r))

    @property
    def ended(self):
        # The end is read first: all records before it are visible then.
        cdef bint closed = _atomics.load_acquire32(&self.r.header.closed) != 0  # SYNC closed
        return closed and self.r.position >= _atomics.load_acquire64(&self.r.header.tail)  # SYNC tail

    @property
    def activity(self):
        return _atomics.load_relaxed32(&self.r.header.activity)

    @property
    def slot(self):
        return window_view(self.control, <char *>self.r.slot, SLOT_BYTES, False)

    def check(self):
        cdef RingHeader header
        cdef ControlHeader shared
        check_ring(self.ring, &header)
        check_control(self.control, header.session_id, &shared)

    def start(self, uint64_t position):
        self.r.position = position
        self.r.shown = position

    def read(self):
        cdef uint32_t length
        cdef const Record *record = next_record(self, &length)
        if record == NULL:
            return None
        body = PyBytes_FromStringAndSize(<const char *>record + RECORD_HEADER, length - RECORD_HEADER)
        step_over(self, record, 1)
        return body

    cpdef arm(self, bint mask_on):
        cdef uint64_t bit = <uint64_t>1 << self.slot_index
        if mask_on:
            _atomics.or64(&self.r.control.parked, bit)
            _atomics.store_relaxed64(&self.r.slot.parks, self.r.slot.parks + 1)
        elif _atomics.load_relaxed64(&self.r.control.parked) & bit:
            _atomics.and64(&self.r.control.parked, ~bit)

    def ready(self):
        return bool(reader_ready(&self.r))

    def show(self):
        return bool(show_steps(self))

    @property
    def out_of_sync(self):
        cdef uint64_t tail = _atomics.load_acquire64(&self.r.header.tail)  # SYNC tail
        cdef int64_t behind = <int64_t>(tail - self.r.position)
        if behind < 0:
            # One record ahead is possible for a moment, as the writer publishes a record with two words.
            return not records_reach(&self.r, tail, self.r.position)
        if self.r.stopped:
            return behind > 0 and not self.r.evicted
        if self.r.copies and reader_was_overtaken(&self.r):
            return False
        return behind > 0 and _atomics.load_acquire32(self.r.data + (self.r.position & self.r.mask)) == 0  # SYNC frame

    def resync(self):
        cdef uint64_t tail = _atomics.load_acquire64(&self.r.header.tail)  # SYNC tail
        cdef int64_t behind = <int64_t>(tail - self.r.position)
        cdef bint follows = behind > 0 and records_reach(&self.r, self.r.position, tail)
        # A tail that is far away is damaged itself; the writer corrects it with the next record.
        if behind == 0 or behind < -<int64_t>(self.r.mask + 1) or (
            behind > <int64_t>most_ahead(&self.r) and not (self.r.copies and not self.r.evicts)
        ):
            return None
        self.r.stopped = False
        if not follows:
            self.r.position = tail
        return not follows


def bucket(uint64_t ns):
    return bucket_of(ns)


def nudge_writer(Mapping control):
    cdef ControlHeader *shared = <ControlHeader *>control.base
    cdef uint32_t was = _atomics.exchange32(&shared.writer_waits, WRITER_RUNS)
    if was & WRITER_SLEEPS:
        futex_wake_all(&shared.writer_waits)
    return bool(was & WRITER_WANTS_EVENT)
