# The hot path of the ring: inline, without the GIL, on plain structs. ring.pyi has the rules, layout.py the bytes, and
# _atomics.pxd the memory orders and their sync points.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stddef cimport size_t

from ringbuf cimport _atomics
from ringbuf._layout cimport (
    HISTOGRAM_BUCKETS, HISTOGRAM_SUB_BITS, SLOTS_MAX, RECORD_ALIGN, RECORD_HEADER, ControlHeader, Record, RingHeader, Slot,
)
from ringbuf.clock cimport ns_per_tick, read_ticks
from ringbuf.memory cimport Mapping

cdef enum:
    PAGE = 4096             # the real page size or less: touching a page twice does no harm
    VIRTUAL_CLOCK = 2       # the time that `RingWriter.set_time` set last; ringbuf.clock has the other kinds

cdef extern from "<stdint.h>":
    const uint64_t NOTHING_HELD "UINT64_MAX"
    const uint64_t NO_SKIP "UINT64_MAX"

cdef struct Writer:
    RingHeader *header
    ControlHeader *control
    char *slots
    char *data
    uint64_t mask
    uint64_t head           # position of the open record, or of the next one
    uint64_t limit          # bytes below this position may be written
    uint64_t used           # bytes of the open record, its header included; 0 when none is open
    uint64_t open_ticks
    uint64_t virtual_ticks
    uint64_t sent_records
    uint64_t sent_bytes
    uint64_t sent_messages
    uint64_t intent_step
    const uint32_t *ring_cut                # not 0: the shared object was cut short
    const uint32_t *control_cut
    uint64_t accepted[SLOTS_MAX]                # by slot: the last position that was accepted
    uint32_t accepted_generation[SLOTS_MAX]     # generation of the reader whose position was accepted; 0 for none
    uint64_t past_caches_from       # length from which messages are copied past the caches
    uint64_t skip_at        # position of the skip that is published with the next record; or NO_SKIP
    uint64_t round_begin    # where the present round through the memory began
    uint64_t skip_begin     # position of the last skip back
    uint64_t skip_end       # where it leads; 0 if all readers have passed it
    uint64_t second_skip_end        # where the skip leads that followed it; 0 without one, and if all have passed it
    uint64_t longest        # bytes of the longest record, where the writer may go back; or 0
    uint64_t long_from      # bytes from which a record is worth going back
    uint64_t promised       # bytes of records that must fit whatever the readers have read
    uint32_t skips          # that were published
    uint32_t messages       # in the open record
    uint32_t record_max
    uint32_t clock
    uint32_t slots_max
    uint32_t trailing_bytes         # bytes that must be free behind a record: the frame of the next record (or a whole skip), and the trailer
    bint source_paced
    bint checksums          # each record ends with a trailer
    bint fences             # each publication executes a fence, as there is no asymmetric one

cdef struct Reader:
    const RingHeader *header
    ControlHeader *control
    Slot *slot
    const char *data
    const uint32_t *ring_cut    # not 0: the shared object was cut short
    const uint32_t *control_cut
    char *copy              # buffer for the copy of a record that may be overwritten
    uint64_t mask
    uint64_t position       # of the next record
    uint64_t shown          # the position that the slot shows, or would show if nothing were held
    uint64_t held           # of the oldest record that is still looked at, which the slot does not pass; or NOTHING_HELD
    bint leases             # other threads release what is held, so that they show positions too
    uint64_t show_step      # the most bytes that the slot lags behind while records arrive
    uint64_t records
    uint64_t bytes
    uint64_t overruns
    uint64_t sample_every
    uint64_t since_sample   # records since the last latency sample
    uint64_t sample_weight  # messages in them
    uint32_t record_max
    uint32_t frame          # frame of the record that reader_next returned, read once and checked
    uint32_t clock
    bint copies             # records are copied before use, as the writer may overwrite them at any time
    bint checksums          # each record ends with a trailer
    bint evicts             # it overwrites them only after it evicted this reader; otherwise the ring is source-paced
    bint fences             # each `reader_show` executes a fence, as there is no asymmetric one
    bint stopped            # nothing more is read: this reader was evicted, or the ring is damaged
    bint evicted

cdef inline bint reader_is_cut(const Reader *r) noexcept nogil:
    """Returns whether a shared object was cut short, so that the bytes read may be zeros."""
    return (_atomics.load_relaxed32(r.ring_cut) | _atomics.load_relaxed32(r.control_cut)) != 0


cdef inline bint reader_is_whole(const Reader *r, const Record *record) noexcept nogil:
    """Returns whether no missing page was found under the record that `reader_next` returned; touches its pages."""
    cdef const char *at = <const char *>((<size_t>record | (PAGE - 1)) + 1)
    if not r.copies:
        while at < <const char *>record + r.frame:
            _atomics.load_relaxed32(at)     # touching a missing page marks the mapping
            at += PAGE
    return not reader_is_cut(r)


cdef bint writer_find_room(Writer *w, uint64_t need) noexcept nogil
cdef void writer_put_skip(Writer *w) noexcept nogil
cdef const Record *reader_short(Reader *r, uint32_t frame) noexcept nogil
cdef const Record *reader_copy(Reader *r) noexcept nogil
cdef bint reader_was_overtaken(const Reader *r) noexcept nogil
cdef bint reader_in_sync(Reader *r) noexcept nogil
cdef void writer_seal(Writer *w) noexcept nogil
cdef uint32_t sealed_length(const Record *record, uint32_t frame) noexcept nogil
cdef uint64_t reader_bytes_since(const Reader *r, uint64_t position) noexcept nogil
cdef bint reader_show(Reader *r) noexcept nogil
cdef bint reader_release(Reader *r) noexcept nogil
cdef void reader_sample(Reader *r, uint64_t send_ticks, double ns_per_tick) noexcept nogil


cdef inline uint64_t aligned(uint64_t length) noexcept nogil:
    return (length + RECORD_ALIGN - 1) & ~<uint64_t>(RECORD_ALIGN - 1)


cdef inline uint64_t writer_ticks(const Writer *w) noexcept nogil:
    return w.virtual_ticks if w.clock == VIRTUAL_CLOCK else read_ticks(w.clock)


cdef inline char *writer_claim(Writer *w, uint64_t length) noexcept nogil:
    """Returns the place of `length` more bytes (a multiple of RECORD_ALIGN) in the open record, or NULL if the ring is full.

    It opens a record if there is no open one. The bytes are reserved when the caller adds `length` to `used`.
    """
    cdef uint64_t used = w.used if w.used else RECORD_HEADER
    # `trailing_bytes`: publishing this record clears the frame of the next one.
    if w.head + used + length + w.trailing_bytes > w.limit:
        if not writer_find_room(w, used + length + w.trailing_bytes):
            return NULL
    if w.used == 0:
        w.used = RECORD_HEADER
        w.messages = 0
        w.open_ticks = writer_ticks(w)
    return w.data + (w.head & w.mask) + used


cdef inline void writer_drop(Writer *w) noexcept nogil:
    """Closes the open record without publishing it."""
    w.used = w.messages = 0
    if w.skip_at != NO_SKIP:
        w.limit = w.head    # the next record asks for a place of its own


cdef inline void writer_drop_empty(Writer *w) noexcept nogil:
    """Closes the open record if it is empty."""
    if w.messages == 0:
        writer_drop(w)


cdef inline uint64_t writer_publish(Writer *w) noexcept nogil:
    """Publishes the open record; returns the mask of parked readers to wake."""
    cdef Record *record = <Record *>(w.data + (w.head & w.mask))
    cdef uint64_t next
    record.messages = w.messages
    record.send_ticks = w.open_ticks
    if w.checksums:
        writer_seal(w)
    next = w.head + aligned(w.used)
    _atomics.store_relaxed32(w.data + (next & w.mask), 0)
    _atomics.store_release32(&record.frame, <uint32_t>w.used)  # SYNC frame
    if w.skip_at != NO_SKIP:
        writer_put_skip(w)
    w.sent_records += 1
    w.sent_bytes += w.used
    w.sent_messages += w.messages
    _atomics.store_relaxed64(&w.header.msgs_sent, w.sent_records)
    _atomics.store_relaxed64(&w.header.bytes_sent, w.sent_bytes)
    _atomics.store_relaxed64(&w.header.lbm_msgs_sent, w.sent_messages)
    w.head = next
    w.used = 0
    _atomics.store_release64(&w.header.tail, next)  # SYNC tail
    # SYNC park
    if w.fences:
        _atomics.fence_full()
    else:
        _atomics.compiler_fence()
    return _atomics.load_relaxed64(&w.control.parked)


cdef inline const Record *reader_next(Reader *r) noexcept nogil:
    """Returns the next record, whose end lies within the ring, or NULL when there is no record now."""
    cdef const Record *record = <const Record *>(r.data + (r.position & r.mask))
    cdef uint32_t frame
    if r.copies:
        return reader_copy(r)
    frame = _atomics.load_acquire32(&record.frame)  # SYNC frame
    if frame <= RECORD_HEADER or frame > r.record_max:
        return reader_short(r, frame) if frame else NULL
    r.frame = frame
    return record


cdef inline uint32_t record_length(const Reader *r, const Record *record) noexcept nogil:
    """Returns the length of the record of `reader_next` without its trailer; 0 when its checksum is wrong."""
    return sealed_length(record, r.frame) if r.checksums else r.frame


cdef inline bint reader_done(Reader *r) noexcept nogil:
    """Steps over the record that `reader_next` returned; returns True when the writer waits for an event."""
    r.records += 1
    r.bytes += r.frame
    r.position += aligned(r.frame)
    if r.position - r.shown >= r.show_step:
        return reader_show(r)
    return False


cdef inline bint reader_ready(Reader *r) noexcept nogil:
    """Returns whether there may be a record, an overrun, or an end; False is certain."""
    if r.stopped:
        return False
    if _atomics.load_acquire32(r.data + (r.position & r.mask)) != 0:  # SYNC frame
        return True
    if r.copies and reader_was_overtaken(r):
        return True
    return _atomics.load_acquire32(&r.header.closed) != 0  # SYNC closed


cdef inline uint32_t bucket_of(uint64_t ns) noexcept nogil:
    """Returns the index of the latency bucket of `ns`; `layout.bucket_edges` has the edges."""
    cdef uint32_t octave, index
    if ns < (1 << HISTOGRAM_SUB_BITS):
        return <uint32_t>ns
    octave = 63 - __builtin_clzll(ns) - HISTOGRAM_SUB_BITS
    index = ((octave + 1) << HISTOGRAM_SUB_BITS) + <uint32_t>((ns >> octave) & ((1 << HISTOGRAM_SUB_BITS) - 1))
    return index if index < HISTOGRAM_BUCKETS else HISTOGRAM_BUCKETS - 1

cdef extern from *:
    int __builtin_clzll(unsigned long long value) noexcept nogil


cdef class RingWriter:
    cdef Writer w
    cdef readonly Mapping ring, control
    cdef readonly uint64_t capacity

    cpdef void count_wakes(self, uint64_t wakes) noexcept

cdef class RingReader:
    cdef Reader r
    cdef readonly Mapping ring, control
    cdef readonly uint64_t capacity
    cdef readonly int slot_index
    cpdef arm(self, bint mask_on)
    cdef bint owes_event    # a step found that the writer waits for an event; the next `show` returns that


cdef const Record *next_record(RingReader reader, uint32_t *length) noexcept


cdef inline void step_over(RingReader reader, const Record *record, uint32_t messages) noexcept:
    """Steps over the record of `next_record`, and samples its latency with its messages as the weight."""
    reader.r.sample_weight = messages
    reader_sample(&reader.r, record.send_ticks, ns_per_tick())
    if reader_done(&reader.r):
        reader.owes_event = True


cdef inline bint show_steps(RingReader reader) noexcept:
    """Shows the position; returns True when the writer waits for an event, or did so at a step since the last `show`."""
    cdef bint owed = reader.owes_event
    reader.owes_event = False
    return reader_show(&reader.r) or owed
