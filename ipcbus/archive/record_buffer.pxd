from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.archive._archive_layout cimport Row
from ipcbus.archive.row_block cimport RowBlock
from ipcbus.delivery.received_message cimport Message, Origin

cdef class NewestRows:
    cdef int64_t number         # of the topic in its session, as in `Origin.number`

cdef class TopicState:
    cdef uint32_t topic, session
    cdef NewestRows newest      # the same object for all topic numbers of a topic name and a session
    cdef int64_t resume_at      # the log has, or reports as lost, the numbers below this one; -1 when not known
    cdef int64_t until_ns       # what was sent later is of a topic that began again
    cdef uint64_t noted         # number of the last row noted for it, plus 1

cdef class RecordBuffer:
    cdef readonly dict topics, sources          # name -> number, in the order of the numbers
    cdef readonly uint64_t losses, lost, dropped, too_large, missed
    cdef readonly bint out_of_memory            # a message found no memory, and none was appended since
    cdef public bint waits
    cdef dict topic_states                      # by origin
    cdef dict newest_rows                       # by the numbers of topic name and session
    cdef dict resume_positions
    cdef Origin origin                          # of the message before
    cdef TopicState topic_state                 # that origin's
    cdef RowBlock open_block
    cdef object full_blocks                     # a deque
    cdef list free_blocks
    cdef size_t size, limit, used, allocated, large, full_bytes
    cdef size_t message_max
    cdef int64_t last_ns
    cdef object wake, freed
    cdef bint copying                           # into the open block, while other threads run
    cdef bint added                             # a block was opened, and `wake` is due
    cdef bint paused                            # since the open block was opened
    cdef Row *notes                             # rows that wait for memory, in the order of their times
    cdef size_t notes_first, notes_count, notes_max
    cdef uint64_t notes_appended                # rows that waited and are appended

    cdef int append_slow(self, Message message, size_t need) except -1
    cdef int process(self, Message message, size_t need) except -1
    cdef int make_room(self, Message message, size_t need) except -1
    cdef void append(self, Message message) noexcept
    cdef int copy_without_gil(self, Message message) except -1
    cdef int event(self, Message message) except -1
    cdef int tell_topic_number(self, Message message) except -1
    cdef int select_origin(self, Origin origin) except -1
    cdef bint is_known(self, Message message) except -1
    cdef int note_missed(self, int64_t until) except -1
    cdef int drop(self, Message message) except -1
    cdef int note(self, int kind, int64_t first, int64_t last) except -1
    cdef bint append_notes(self) except -1
    cdef bint reserve(self, size_t need) except -1
    cdef RowBlock new_block(self, size_t size)
    cdef int64_t now(self) noexcept
