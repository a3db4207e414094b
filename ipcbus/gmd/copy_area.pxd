from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.gmd.copy_index cimport CopyIndex
from ipcbus.wire.control_front cimport EntryFront

cdef struct Part:
    const char *at
    size_t length
    Py_buffer view
    bint held

cdef struct PlaceRun:
    uint64_t number     # the opening sent this message and those up to `end`
    uint64_t end
    uint64_t opening
    uint64_t place
    bint is_corrected   # they have this place; else each has that of its record

cdef int take(Part *part, object data) except -1
cdef void give_back(Part *part) noexcept
cdef int put_front(EntryFront *front, uint64_t number, int64_t send_time_ns, uint32_t block, uint32_t value,
                   uint64_t place, PlaceRun *run, object place_run) except -1

cdef class CopyArea:
    cdef readonly str sender, topic
    cdef readonly uint64_t incarnation
    cdef public uint64_t max_size
    cdef public object checkpoint
    cdef readonly CopyIndex index
    cdef uint64_t last, unsavable
    cdef readonly str refusal      # why the area takes nothing any more

    cdef size_t need(self, size_t block, size_t data) except 0
    cdef bytes pack(self, size_t begin, size_t *end, uint64_t size, PlaceRun *run, place_run)
    cdef int check_unsave(self, uint64_t number) except -1
