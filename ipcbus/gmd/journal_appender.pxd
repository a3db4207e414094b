from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from ipcbus.gmd.copy_area cimport CopyArea

cdef class JournalAppender(CopyArea):
    cdef readonly object current          # the segment that is written; None before the first one
    cdef int fd
    cdef bint each              # whether each message is synced
    cdef uint32_t stamp
    cdef readonly uint64_t serial
    cdef readonly uint64_t end         # of the segment's records
    cdef uint64_t room          # a message that ends at or before this offset needs no preparation
    cdef uint64_t note_room     # like room, for other records
    cdef readonly uint64_t appended      # bytes of messages that were saved in this segment
    cdef uint64_t run_first, run_last   # released, and not written yet; 0: nothing is
    cdef int run_calls
    cdef uint64_t older_bytes   # of the segments before this one
    cdef uint64_t garbage_max   # bytes of all segments beyond twice those of unreleased messages, before some are removed
    cdef uint64_t mark          # a SYNCED record is due with this offset; 0: none is
    cdef uint64_t durable, syncing_number
    cdef readonly uint64_t syncing_end
    cdef readonly object syncing   # the segment that another thread syncs at the moment
    cdef char *buffer
    cdef size_t buffer_size

    cdef int write(self, size_t length) except -1
    cdef int hold(self, size_t length) except -1
    cdef size_t put_mark(self) noexcept
    cdef int write_run(self) except -1
    cdef int append_other(self, int kind, uint64_t first, uint64_t second, bytes payload) except -1
