from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.topic.batch cimport BatchWriter
from ipcbus.wire._wire_layout cimport TopicLine
from ringbuf.lending cimport Loan

cdef enum:
    SOURCE_CLOSED = 1
    SOURCE_IN_PIECES = 2    # a message is sent in fragments: other threads wait, its numbers must follow one another

cdef class TopicSource:
    cdef BatchWriter batch
    cdef TopicLine *line
    cdef uint32_t topic_number
    cdef int gate
    cdef uint64_t *mark             # the last record with messages of the line
    cdef uint64_t next_sequence, bytes_sent
    cdef uint64_t sent_ticks, informed_ticks    # of the last message, and of the last sequence number info
    cdef bint holds
    cdef readonly str topic
    cdef readonly uint64_t message_max
    cdef uint64_t piece_max         # bytes of a message in one fragment; 0 where messages are not fragmented

    cdef int append(self, const char *data, uint64_t length, uint32_t flags, bint flush, bint block) except -1
    cdef int append_with(
        self, bytes front, const char *data, uint64_t length, uint32_t flags, bint flush, bint block
    ) except -1
    cdef int append_pieces(
        self, bytes front, const char *data, uint64_t length, uint32_t flags, bint flush, bint block
    ) except -1
    cdef int put_pieces(
        self, bytes front, const char *data, uint64_t length, uint32_t flags, bint flush, int own
    ) except -1
    cdef char *place(self, BatchWriter batch, uint64_t length, bint flush, bint block) except NULL
    cdef char *reserve_slowly(self, uint64_t length, bint flush, bint block, int own, int own_batch) except NULL
    cdef int wait_for_room(self, uint64_t need, bint block) except -1
    cdef int pass_session_gate(self, bint block) except -1
    cdef int pass_gate(self, bint block) except -1
    cdef void count_piece(self, bint last) noexcept
    cdef void put(self, BatchWriter batch, char *place, uint64_t length, uint32_t flags, bint flush) noexcept
    cdef void head(self, char *place, uint64_t length, uint32_t flags, uint64_t sequence) noexcept
    cdef void took(self, BatchWriter batch, uint32_t messages, uint64_t length, uint64_t need) noexcept
    cdef int after(self, BatchWriter batch, bint flush) except -1
    cdef int send_flagged(self, data, bytes front, uint32_t flags, bint flush, bint block) except -1
    cdef void hold(self, bint holds) noexcept
    cdef Py_ssize_t append_rows(self, Py_buffer *view, bint block) except -1
    cdef Py_ssize_t put_rows(self, const char *data, uint64_t length, uint64_t rows, bint block) except -1

cdef class Reservation:
    cdef TopicSource source
    cdef uint64_t length
    cdef Loan loan                  # the place in the ring that `view` shows
    cdef object aside               # memory that it shows where nothing is lent; copied into the ring at the end
    cdef object view
