from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from ringbuf._item_layout cimport ItemSide
from ringbuf.memory cimport Mapping

cdef struct Item:
    uint32_t kind
    const char *front
    uint64_t front_length
    const char *body
    uint64_t body_length
    PyObject *signed_text       # of a signed item; the caller of `store` holds it
    uint64_t taken              # `count` of the consumers, as the producer that found no room saw it

cdef class ItemRing:
    cdef Mapping mapping
    cdef ItemSide *putters
    cdef ItemSide *getters
    cdef uint32_t *map
    cdef uint32_t *spare
    cdef char *data
    cdef uint32_t mask
    cdef uint32_t chunks_max
    cdef readonly uint64_t items_max
    cdef uint32_t uid
    cdef int spins
    cdef bytes key
    cdef readonly int fd
    cdef readonly uint64_t item_max
    cdef public object checkpoint

    cdef void step(self, const char *name) noexcept nogil
    cdef bint lock(self, ItemSide *side, int64_t deadline) except? False
    cdef void settle(self, ItemSide *side, int result) noexcept nogil
    cdef bint copy_in(self, uint64_t position, const char *source, uint64_t length) noexcept nogil
    cdef bint copy_out(self, uint64_t position, char *place, uint64_t length) noexcept nogil
    cdef int provide(self, uint64_t end, uint64_t head, uint64_t *mapped, uint32_t *pieces, uint32_t *made) noexcept nogil
    cdef bint sign(self, uint64_t number, Item *item, uint8_t *tag) noexcept nogil
    cdef int store(self, Item *item) noexcept nogil
    cdef int finish(self, uint64_t number, uint64_t position, uint32_t kind, char *place, uint64_t length, uint8_t *tag) noexcept nogil
    cdef void await_change(self, ItemSide *side, uint64_t seen, int64_t deadline, bint for_bytes) noexcept nogil
    cdef void wake(self, ItemSide *side) noexcept nogil
    cdef bint is_genuine(self, uint64_t number, uint32_t kind, object data, const uint8_t *tag) except? False
    cdef put_item(self, Item *item, int64_t deadline)
    cdef object take(self)
    cdef object fail(self, int status, Item *item)
