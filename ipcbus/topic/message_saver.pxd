from libc.stdint cimport int64_t, uint64_t

cdef class MessageSaver:
    cdef object area_save               # saves a copy and returns its GMD number; the lock is held
    cdef object acquire, release        # of the lock that guards the area
    cdef public bint sends              # the last message is saved, and not in the ring yet
    cdef public bint closes             # the area is about to be closed
    cdef public bint watches            # `_after_send` need not be called
    cdef public uint64_t length_max     # bytes of the longest message with its headers
    cdef int mode                       # mode and timeout of the last message
    cdef int64_t timeout_ns
    cdef uint64_t place                 # where the last message is expected in its topic

    cdef uint64_t save(
        self, int mode, int64_t timeout_ns, int64_t send_time_ns, uint64_t first, uint64_t count, bytes block, bytes data
    ) except 0
    cdef int sent(self, uint64_t number, uint64_t first, uint64_t last) except -1
