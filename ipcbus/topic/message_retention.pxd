# What a source retains of one topic: blocks of memory with entries from their begin on and an index from their end down.
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    INDEX_BYTES = 4     # bytes of the index for each entry: its offset, with CONTINUES as its lowest bit
    CONTINUES = 1       # the entry is a fragment, and not the first one of its message

cdef struct Block:
    char *entries
    uint32_t *index_end     # the word of the first entry stands right before it
    Block *newer
    Block *older
    uint64_t first          # number of the first entry
    uint32_t count, used, size

cdef struct Retained:
    Block *oldest
    Block *newest
    Block *spare
    uint64_t low, following     # it holds the numbers low..following-1
    uint64_t bytes, size_limit, size_threshold
    uint64_t trim_above         # with more bytes than this, messages may leave because of the thresholds
    int64_t age_ticks           # 0 without an age threshold
    uint32_t block_bytes

cdef void retain(Retained *r, uint64_t send_ticks, const char *message) noexcept


cdef class Retention:
    cdef Retained retained
    cdef readonly int64_t age_threshold_ns
    cdef const uint64_t *published_word     # of the source, or the next one
    cdef uint64_t own_published
    cdef object owner                       # keeps the memory of the word; its lock guards the messages

    cdef void attach(self, uint64_t number, double ns_per_tick, const uint64_t *published, object owner)
    cdef uint64_t end(self) noexcept
    cdef object copy_entries(self, uint64_t first, uint64_t last, uint64_t bytes_max, bint epoch)
    cdef void set_clock(self, double ns_per_tick) noexcept
