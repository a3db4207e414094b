from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.wire._wire_layout cimport STAMP_BYTES, TopicLine
from ipcbus.wire.stamps cimport stride
from ringbuf cimport _atomics
from ringbuf._layout cimport RECORD_HEADER
from ringbuf.lending cimport Lender
from ringbuf.ring cimport RingWriter, Writer, writer_publish, writer_ticks
from ringbuf.slot_doorbells cimport SlotDoorbells

cdef enum:
    GATE_CLOSED = 1
    GATE_FORKED = 2
    GATE_DAMAGED = 8    # another program cut the shared memory short
    GATE_RESERVED = 4   # one thread sends, the others wait for `policy.released`

# The lock of a session: what changes the open datagram, its gates or those of its sources is in a critical section of this
# object. As with the interpreter's lock, a thread that waits lets others in.
cdef class BatchWriter:
    cdef readonly RingWriter ring
    cdef Writer *w
    cdef object policy
    cdef object published           # called with the slots whose readers wait for a record
    cdef SlotDoorbells doorbells    # `published`, where it is compiled; else None
    cdef bint holds                 # fragments follow: `published` may wait until more records are published
    cdef uint64_t held              # the slots that it has not been called with, for that reason or in a fast burst
    cdef uint64_t told_at           # the position up to which it has been called
    cdef bint watched        # `published` is called for each record, also without such slots
    cdef uint64_t **publish_pairs         # pairs of words: publication copies the first word to the second
    cdef uint32_t publish_pair_count, topics_max
    cdef uint64_t record_number     # increases with each record
    cdef uint64_t *line_records            # by line: the last record with the line's pair in `publish_pairs`, which has it once
    cdef uint64_t minimum_length
    cdef uint64_t usual_length, burst_length    # what `minimum_length` is, and in bursts; 0 without
    cdef uint64_t published_ticks
    cdef uint64_t burst_ticks       # datagrams that follow each other within this time are a burst
    cdef uint64_t following         # datagrams that have followed each other as in a burst
    cdef uint64_t in_fast_burst     # datagrams that have followed each other as in a fast burst
    cdef uint64_t fast_bytes        # in a fast burst: `published` may wait until this many bytes are published
    cdef uint64_t looked_ticks      # when the timer looked last
    cdef bint burst_watched         # the timer looks often enough for a datagram that waits to be filled
    cdef uint64_t record_limit          # most bytes of a record, with its header and the last message's padding
    cdef readonly uint64_t datagram_max
    cdef readonly int gate
    cdef readonly int explicit_batches          # number of open explicit batches
    cdef unsigned long reserving_thread            # ident of the thread that GATE_RESERVED lets pass; 0 without one
    cdef object reservation         # the open acquire() block
    cdef Lender lender              # lends parts of the ring
    cdef TopicLine *lines
    cdef int64_t interval_ns        # age from which an explicit batch is published at its end; 0 for never
    cdef bint stamps_messages                # messages that share a datagram have send times of their own
    cdef double stamps_per_tick
    cdef uint64_t sent_ticks_sum           # sum over the open record's messages: ticks from its begin to the send
    cdef char *publication_stamp          # the stamp of the open record's first message; NULL without one
    cdef uint64_t wait_ticks_sum            # sum over all messages: ticks from the send to the publication
    cdef uint64_t longest_wait
    cdef readonly uint64_t infos_sent
    cdef public bint timer_runs
    cdef public uint64_t timer_head     # the head of the ring when the timer looked last

    cdef int pass_gate(self, str topic, bint block) except -1
    cdef double ns_per_tick(self) noexcept
    cdef int64_t age_ns(self, uint64_t now_ticks) noexcept
    cdef int explicit_batch_ended(self) except -1
    cdef void count_explicit(self, int more) noexcept
    cdef int end_reservation(self, bint cancelled) except -1
    cdef void note_wait(self, uint64_t now) noexcept
    cdef void note_burst(self, uint64_t now) noexcept
    cdef int tell(self, uint64_t parked, bint may_wait) except -1
    cdef bint publish_open(self) except -1
    cdef int watch_held(self) except -1
    cdef int ask_timer(self) except -1
    cdef int64_t publish_older(self, uint64_t now_ticks, int64_t age_ns, int64_t explicit_ns) except? -3
    cdef object put_infos(self, sources)
    cdef int await_reservation(self, int64_t timeout_ns) except -1
    cdef int tell_held(self) except -1
    cdef void go_on(self) noexcept


cdef inline bint waits_to_be_filled(BatchWriter batch) noexcept:
    """Returns whether the open record would be published, were it not one of a burst."""
    return (
        batch.minimum_length > batch.usual_length and not batch.explicit_batches and not batch.gate
        and batch.w.used >= RECORD_HEADER + batch.usual_length
    )


cdef inline bint follows_a_burst(BatchWriter batch) noexcept:
    """Returns whether the open record has the usual length, and began when the burst before it was over."""
    return waits_to_be_filled(batch) and <int64_t>(batch.w.open_ticks - batch.published_ticks) >= <int64_t>batch.burst_ticks


cdef inline bint bears_stamp(BatchWriter batch, uint64_t length, bint flush) noexcept:
    """Returns whether the next message of the open record gets a stamp.

    It gets one if its send time differs from the record's, or if it begins a record that others may join.
    """
    if not batch.stamps_messages or batch.w.used > RECORD_HEADER:
        return batch.stamps_messages
    if flush or (stride(length) >= batch.minimum_length and not batch.explicit_batches):
        return False
    return RECORD_HEADER + stride(length + STAMP_BYTES) <= batch.record_limit


cdef inline uint64_t bytes_for(BatchWriter batch, uint64_t length, bint flush) noexcept:
    """Returns the bytes that the next message takes in the open record."""
    return stride(length + STAMP_BYTES * bears_stamp(batch, length, flush))


cdef inline int batch_publish(BatchWriter batch) except -1:
    """Publishes the open record."""
    return batch_publish_at(batch, writer_ticks(batch.w) if batch.stamps_messages else 0)


cdef inline int batch_publish_at(BatchWriter batch, uint64_t now, bint may_wait=False) except -1:
    """Publishes the open record at a known time, which matters only where messages have stamps."""
    cdef uint64_t parked
    cdef uint32_t i
    if batch.stamps_messages and now != batch.w.open_ticks:
        batch.note_wait(now)
    if batch.burst_length:
        batch.note_burst(now)
    parked = writer_publish(batch.w)
    for i in range(batch.publish_pair_count):
        _atomics.store_release64(&batch.publish_pairs[i][1], batch.publish_pairs[i][0])  # SYNC published
    batch.publish_pair_count = 0
    batch.publication_stamp = NULL
    batch.record_number += 1
    if parked and batch.doorbells is not None and not batch.watched:
        batch.doorbells.ring(parked)
    elif parked or batch.held or batch.watched:
        batch.tell(parked, may_wait)
    return 0


cdef inline int batch_publish_complete(BatchWriter batch, uint64_t now, bint flush) except -1:
    """Publishes the open record, to which no message is to be added; in a fast burst, the readers may get it later.

    They get a message that takes a datagram of its own at once.
    """
    cdef bint alone = batch.w.messages <= 1 and batch.w.used >= RECORD_HEADER + batch.burst_length
    batch_publish_at(batch, now, not (flush or alone))
    return batch.watch_held() if batch.held else 0
