from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

from ipcbus.gmd.copy_index cimport CopyIndex

cdef struct Part:
    const char *at
    size_t length
    Py_buffer view
    bint held

cdef int take(Part *part, object data) except -1
cdef void give_back(Part *part) noexcept

cdef class CopyArea:
    cdef readonly str sender, topic
    cdef readonly uint64_t incarnation
    cdef public uint64_t max_size
    cdef public object checkpoint
    cdef readonly CopyIndex index
    cdef uint64_t last, unsavable
    cdef readonly str refusal      # why the area takes nothing any more

    cdef size_t need(self, size_t block, size_t data) except 0
    cdef int check_unsave(self, uint64_t number) except -1
