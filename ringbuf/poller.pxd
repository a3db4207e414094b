from libc.stdint cimport uint32_t, uint64_t

from ringbuf.ring cimport Reader

cdef struct Watch:
    const uint64_t *word
    const uint64_t *seen

cdef class Poller:
    cdef list readers
    cdef list kept              # what the watched words lie in
    cdef Watch *watches
    cdef int words_count
    cdef Reader **items
    cdef int count
    cdef volatile int poked
    cdef bint stuck             # a watched word has changed, and Python has to look at it

    cdef int watch_words(self, list words) except -1
    cdef int arm(self, bint sleeps) except -1
    cdef bint any_ready(self) noexcept nogil
    cdef bint any_word_changed(self) noexcept nogil
    cdef long take_words(self, list words) except -1
    cdef bint wait(self, uint64_t loops, uint64_t until_ticks, uint32_t clock) noexcept nogil
