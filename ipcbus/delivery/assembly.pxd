from libc.stdint cimport uint32_t, uint64_t

from ipcbus.wire._wire_layout cimport FragmentHeader

cdef class MemoryBudget:
    cdef readonly uint64_t bytes
    cdef uint64_t bytes_max

    cpdef bint reserve(self, uint64_t message_bytes)
    cpdef int release(self, uint64_t message_bytes) except -1

cdef class Assembly:
    cdef bytes own
    cdef readonly uint64_t total, filled
    # Where fragments come in order (`open_assembly`):
    cdef readonly uint64_t first, piece_bytes, send_ticks
    cdef readonly int flags

    cdef void put_next(self, const char *piece, uint32_t length, int flags) noexcept

cdef Assembly open_assembly(
    MemoryBudget budget, const FragmentHeader *header, uint32_t length, uint64_t sequence, uint64_t send_ticks
)


cdef inline bint is_next(Assembly assembly, const FragmentHeader *header, uint32_t length) noexcept:
    """Returns whether the fragment with the next number, and `length` bytes of the message, goes on with it."""
    return (
        header.first == assembly.first and header.total == assembly.total and header.offset == assembly.filled
        and length <= assembly.piece_bytes and assembly.filled + length <= assembly.total
        and (length == assembly.piece_bytes or assembly.filled + length == assembly.total)
    )
