# Copies of long messages. A copy that passes the caches does not read the memory that it overwrites, and pushes out nothing:
# it is faster where the bytes would have left the caches before the memory is used again.
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#define IB_AHEAD 1024   /* bytes that are asked for before they are copied */
static inline void ib_copy_past_caches(char *to, const char *from, size_t n) {
    size_t before = -(uintptr_t)to & 63;
    if (before > n) before = n;
    memcpy(to, from, before);
    to += before, from += before, n -= before;
    for (; n >= 64; n -= 64, to += 64, from += 64) {
        _mm_prefetch(from + IB_AHEAD, _MM_HINT_T0);
        __m128i a = _mm_loadu_si128((const __m128i *)from), b = _mm_loadu_si128((const __m128i *)(from + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(from + 32)), d = _mm_loadu_si128((const __m128i *)(from + 48));
        _mm_stream_si128((__m128i *)to, a);
        _mm_stream_si128((__m128i *)(to + 16), b);
        _mm_stream_si128((__m128i *)(to + 32), c);
        _mm_stream_si128((__m128i *)(to + 48), d);
    }
    _mm_sfence();   /* else these stores may come behind a release store that follows */
    memcpy(to, from, n);
}
#else
static inline void ib_copy_past_caches(char *to, const char *from, size_t n) { memcpy(to, from, n); }
#endif
    """
    void copy_past_caches "ib_copy_past_caches"(char *to, const char *data, size_t n) noexcept nogil

cdef enum:
    LONG_MESSAGE = 1 << 18
    LARGE_RING = 1 << 24        # larger rings, and what is copied into them, do not fit in a usual last cache
    LONG_COPY = 1 << 23         # neither do some copies of this length beside the ring


cdef inline uint64_t past_caches_from(uint64_t capacity) noexcept nogil:
    """Returns the length from which messages are copied past the caches into a ring of `capacity` bytes."""
    return <uint64_t>LONG_MESSAGE if capacity > <uint64_t>LARGE_RING else <uint64_t>-1


cdef inline void copy_message(char *to, const char *data, size_t n, uint64_t past_from) noexcept nogil:
    """Copies bytes of a message, from `past_from` bytes on past the caches."""
    if n < past_from:
        memcpy(to, data, n)
    else:
        copy_past_caches(to, data, n)
