from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.wire._wire_layout cimport TopicLine
from ringbuf cimport _atomics
from ringbuf.lending cimport Lender
from ringbuf.ring cimport RingWriter, Writer, writer_publish, writer_ticks

cdef enum:
    GATE_CLOSED = 1
    GATE_FORKED = 2
    GATE_DAMAGED = 8    # the shared memory was cut short
    GATE_RESERVED = 4   # one thread writes, the others wait for `policy.released`

cdef class BatchWriter:
    cdef readonly RingWriter ring
    cdef Writer *w
    cdef object policy
    cdef object published           # called with the slots whose readers wait for a record
    cdef uint64_t **touched         # pairs of words: on publication the second takes the value of the first
    cdef uint32_t touched_count, topics_max
    cdef uint64_t record_number     # changes with each record
    cdef uint64_t *marks            # by line: the last record that has it in `touched`, where it stands once
    cdef uint64_t minimum_length
    cdef uint64_t record_limit          # most bytes of a record, its header and the last message's padding included
    cdef readonly uint64_t datagram_max
    cdef readonly int gate
    cdef readonly int held          # explicit batches that are open
    cdef object reserver            # ident of the thread that GATE_RESERVED lets in
    cdef object reservation         # the acquire() block that is open
    cdef Lender lender              # of places in the ring
    cdef TopicLine *lines
    cdef int64_t interval_ns        # age at which the end of an explicit batch publishes it; 0 never does
    cdef bint stamps                # a message that joins others in a datagram gets a send time of its own
    cdef double stamps_per_tick
    cdef uint64_t stamped           # ticks after the begin of the open record at which its messages were sent, together
    cdef char *publication          # where the stamp of the open record's first message is; NULL without one
    cdef uint64_t waited            # ticks that messages have waited for their record to be published, together
    cdef uint64_t longest_wait
    cdef readonly uint64_t infos_sent
    cdef public bint on_timer

    cdef int pass_gate(self, str topic, bint block) except -1
    cdef double ns_per_tick(self) noexcept
    cdef int64_t age_ns(self, uint64_t now_ticks) noexcept
    cdef int ended(self) except -1
    cdef int end_reservation(self, bint cancelled) except -1
    cdef void note_wait(self, uint64_t now) noexcept


cdef inline int batch_publish(BatchWriter batch) except -1:
    """Publishes the open record."""
    return batch_publish_at(batch, writer_ticks(batch.w) if batch.stamps else 0)


cdef inline int batch_publish_at(BatchWriter batch, uint64_t now) except -1:
    """The same, by whoever knows the time; where messages bear no stamps it is not used."""
    cdef uint64_t parked
    cdef uint32_t i
    if batch.stamps and now != batch.w.open_ticks:
        batch.note_wait(now)
    parked = writer_publish(batch.w)
    for i in range(batch.touched_count):
        _atomics.store_release64(&batch.touched[i][1], batch.touched[i][0])  # SYNC published
    batch.touched_count = 0
    batch.publication = NULL
    batch.record_number += 1
    if parked:
        batch.published(parked)
    return 0
