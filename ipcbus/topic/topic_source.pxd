from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.topic.batch cimport BatchWriter
from ipcbus.topic.message_retention cimport Retained, Retention
from ipcbus.topic.message_saver cimport MessageSaver
from ipcbus.wire._wire_layout cimport TopicLine
from ringbuf.lending cimport Loan
from ringbuf.shared_words cimport WatchedWord

cdef enum:
    SOURCE_CLOSED = 1
    SOURCE_HELD = 4           # the members of a share have to catch up
    SOURCE_FRAGMENTING = 2    # a message is sent in fragments; other threads wait, as its numbers must be consecutive

cdef class TopicSource:
    cdef BatchWriter batch
    cdef TopicLine *line
    cdef uint32_t topic_number
    cdef int gate
    cdef uint64_t *line_record             # the number of the last record with messages of this line
    cdef uint64_t next_sequence, bytes_sent
    cdef uint64_t sent_ticks, info_ticks    # times of the last message and of the last sequence number info
    cdef bint in_explicit_batch
    cdef readonly str topic
    cdef public WatchedWord _joined_word    # not as `seen` once a receiver has joined the topic; None where that is not watched
    cdef readonly uint64_t message_max      # falls with the first share, where that keeps less
    cdef Retained *retained     # NULL when nothing is retained
    cdef Retention retention    # its owner, or None
    cdef bint feeds_shares      # members of shares get what is retained, so that longer messages are refused
    cdef uint64_t fragment_max         # bytes of the message in a fragment; 0 where messages are not fragmented
    cdef MessageSaver saver     # keeps the copies of guaranteed messages, or None
    cdef int gmd_waiters                 # threads that wait until that message is sent
    cdef int gmd_mode           # how a message is delivered that does not say how; 0: not guaranteed
    cdef int64_t gmd_timeout_ns
    cdef unsigned long guaranteeing_thread      # ident of the thread that sends a guaranteed message; 0 without one
    cdef bint guaranteed_is_put          # that message is in the ring, with these numbers
    cdef uint64_t guaranteed_first, guaranteed_last
    cdef readonly uint64_t _guaranteed_numbers      # sequence numbers of all guaranteed messages

    cdef int append(self, const char *data, uint64_t length, uint32_t flags, bint flush, bint block) except -1
    cdef int append_with_front(
        self, bytes front, const char *data, uint64_t length, uint32_t flags, bint flush, bint block
    ) except -1
    cdef char *place(self, BatchWriter batch, uint64_t length, bint flush, bint block) except NULL
    cdef char *reserve_slowly(self, uint64_t length, bint flush, bint block, int own_gates, int own_batch_gates) except NULL
    cdef int wait_for_room(self, uint64_t need, bint block) except -1
    cdef int pass_session_gate(self, bint block) except -1
    cdef int pass_gate(self, bint block) except -1
    cdef bint put_info(self) except -1
    cdef void put(self, BatchWriter batch, char *place, uint64_t length, uint32_t flags, bint flush) noexcept
    cdef void write_header(self, char *place, uint64_t length, uint32_t flags, uint64_t sequence) noexcept
    cdef void count_messages(self, BatchWriter batch, uint32_t messages, uint64_t length, uint64_t need) noexcept
    cdef int publish_if_complete(self, BatchWriter batch, bint flush) except -1
    cdef void note_put(self, uint64_t first) noexcept
    cdef int send_in_mode(
        self, data, bytes header_block, uint32_t flags, bint flush, bint block, int mode, int64_t timeout_ns
    ) except -1
    cpdef _send_request(self, data, uint64_t number, headers=*, bint block=*)
    cdef int send_flagged(self, data, bytes front, uint32_t flags, bint flush, bint block) except -1
    cdef void set_explicit_batch(self, bint begins) noexcept
    cdef Py_ssize_t append_rows(self, Py_buffer *view, bint block, int mode, int64_t timeout_ns) except -1
    cdef Py_ssize_t put_rows(self, const char *data, uint64_t length, uint64_t rows, bint block) except -1

cdef class Reservation:
    cdef TopicSource source
    cdef uint64_t length
    cdef int mode               # as in `TopicSource.mode_of`
    cdef int64_t timeout_ns
    cdef Loan loan                  # the part of the ring that `view` shows
    cdef object private_memory               # what `view` shows where the ring is not lent; copied into the ring at the end
    cdef object view
    cdef uint64_t number                # the GMD number of a guaranteed message, once it is saved

    cdef int begin(self, BatchWriter batch, uint64_t front) except -1
    cdef int leave(self, bint sends) except -1
    cdef int save(self, char *place) except -1
    cdef int send(self, char *place, uint64_t front) except -1
