from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.archive._archive_layout cimport Row
from ipcbus.archive.row_block cimport RowBlock
from ipcbus.delivery.received_message cimport Message, Origin

cdef class Line:
    cdef uint32_t topic, session
    cdef int64_t next           # the log knows the numbers below this one; -1 when it knows none
    cdef uint64_t noted         # number of the last row noted for it, plus 1

cdef class RecordBuffer:
    cdef readonly dict topics, sources          # name -> number, in the order of the numbers
    cdef readonly uint64_t losses, lost, dropped, too_large, missed
    cdef readonly bint starving                 # a message found no memory, and nothing was put since
    cdef public bint waits
    cdef dict lines                             # by origin
    cdef dict known
    cdef Origin origin                          # of the message before
    cdef Line line                              # that origin's
    cdef RowBlock open
    cdef object full                            # a deque
    cdef list free
    cdef size_t size, limit, used, allocated, large, full_bytes
    cdef size_t message_max
    cdef int64_t last_ns
    cdef object wake, room
    cdef bint copying                           # into the open buffer, while other threads run
    cdef bint pushed
    cdef bint gave_way                          # since the open buffer was opened
    cdef Row *notes                             # rows that wait for memory, in the order of their times
    cdef size_t notes_first, notes_count, notes_max
    cdef uint64_t notes_gone                    # rows that waited and are put

    cdef int slow(self, Message message, size_t need) except -1
    cdef int take_in(self, Message message, size_t need) except -1
    cdef int wait(self, Message message, size_t need) except -1
    cdef void put(self, Message message) noexcept
    cdef int copy_without_gil(self, Message message) except -1
    cdef int event(self, Message message) except -1
    cdef int turn_to(self, Origin origin) except -1
    cdef int tell_absence(self, int64_t until) except -1
    cdef int drop(self, Message message) except -1
    cdef int note(self, int kind, int64_t first, int64_t last) except -1
    cdef bint put_notes(self) except -1
    cdef bint open_room(self, size_t need) except -1
    cdef RowBlock allocate(self, size_t size)
    cdef int64_t now(self) noexcept
