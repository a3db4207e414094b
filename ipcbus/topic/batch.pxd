from libc.stdint cimport uint32_t, uint64_t

from ipcbus.wire._layout cimport TopicLine
from ringbuf.ring cimport RingWriter, Writer

cdef class BatchWriter:
    cdef readonly RingWriter ring
    cdef Writer *w
    cdef object policy
    cdef TopicLine **touched        # lines with messages in the open record
    cdef uint32_t touched_count, topics_max
    cdef uint64_t record_number     # changes with each record, so that a source knows whether it is in `touched`
    cdef uint64_t minimum_length
    cdef uint64_t record_limit          # most bytes of a record, its header and the last message's padding included
    cdef readonly uint64_t datagram_max
    cdef readonly int gate
    cdef readonly int held          # explicit batches that are open
    cdef object reserver
    cdef TopicLine *lines
    cdef public bint on_timer

    cdef int publish(self) except -1
    cdef char *reserve_slowly(self, TopicSource source, uint64_t need, bint block) except NULL
    cdef int wait_for_room(self, TopicSource source, uint64_t need, bint block) except -1
    cdef int pass_gate(self, TopicSource source, bint block) except -1

cdef class TopicSource:
    cdef readonly BatchWriter batch
    cdef TopicLine *line
    cdef uint32_t topic_number
    cdef uint64_t next_sequence, bytes_sent, record_number
    cdef bint holds
    cdef readonly bint closed
    cdef readonly str topic
    cdef readonly uint64_t message_max

    cdef int append(self, const char *data, uint64_t length, uint32_t flags, bint flush, bint block) except -1
    cdef char *place(self, uint64_t length, bint block) except NULL
    cdef void put(self, char *place, uint64_t length, uint32_t flags) noexcept
    cdef int after(self, bint flush) except -1
    cdef int send_flagged(self, data, uint32_t flags, bint flush, bint block) except -1
    cdef void hold(self, bint holds) noexcept
    cdef int append_rows(self, Py_buffer *view, bint block) except -1
    cdef int too_large(self, uint64_t length) except -1
    cdef int check_open(self) except -1

cdef class Reservation:
    cdef TopicSource source
    cdef uint64_t length
    cdef object view
