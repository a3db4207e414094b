from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

from ipcbus.wire.control_front cimport EntryFront

cdef class ResentEntries:
    cdef bytes message          # the GMD_RESENT
    cdef size_t at, end         # of the entries that are left in it
    cdef size_t count           # of these entries
    cdef readonly uint64_t first, last  # their lowest and highest number
    cdef readonly bint is_run
    cdef readonly size_t size

    cdef const EntryFront *take(self) noexcept
    cdef object entry(self, size_t at)
    cdef size_t behind(self, size_t at) noexcept
