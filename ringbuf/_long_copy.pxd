# Copies of long messages. A copy that passes the caches does not read the memory that it overwrites, and pushes out nothing:
# it is faster where the bytes would have left the caches before the memory is used again.
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define IB_LINE 64      /* bytes of a cache line */
#if defined(__x86_64__)
#include <cpuid.h>
#include <emmintrin.h>
#define IB_AHEAD 1024   /* bytes that are asked for before they are copied */
#define IB_FSRM (1u << 4)
#define IB_AMD_ZEN_5 0x1A
/* Whether `rep movsb` does not read what it overwrites, and is fast at any distance of the two places: so it was measured
   on an AMD processor of family 1Ah. Those of family 19h have the same flag, and are known for being slow where both places
   lie alike in their pages. */
static inline int ib_strings_are_fast(void) {
    static int known = -1;
    int fast = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (fast < 0) {
        unsigned a, b, c, d, family = 0;
        fast = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & IB_FSRM);
        if (__get_cpuid(1, &a, &b, &c, &d)) family = ((a >> 8) & 15) + ((a >> 20) & 255);
        fast = fast && family >= IB_AMD_ZEN_5 && __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx;
        __atomic_store_n(&known, fast, __ATOMIC_RELAXED);
    }
    return fast;
}
static inline void ib_copy_lines(char *to, const char *from, size_t n) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}
/* `to` is the beginning of a cache line. */
static inline void ib_copy_past_caches(char *to, const char *from, size_t n) {
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
static inline int ib_strings_are_fast(void) { return 0; }
static inline void ib_copy_lines(char *to, const char *from, size_t n) { memcpy(to, from, n); }
static inline void ib_copy_past_caches(char *to, const char *from, size_t n) { memcpy(to, from, n); }
#endif
/* The bytes before the next cache line, if that lies within n bytes. */
static inline size_t ib_to_line(const char *to, size_t n) {
    size_t before = -(uintptr_t)to & (IB_LINE - 1);
    return before < n ? before : n;
}
    """
    size_t bytes_to_line "ib_to_line"(const char *to, size_t n) noexcept nogil
    bint strings_are_fast "ib_strings_are_fast"() noexcept nogil
    void copy_lines "ib_copy_lines"(char *to, const char *data, size_t n) noexcept nogil
    void copy_past_caches "ib_copy_past_caches"(char *to, const char *data, size_t n) noexcept nogil

cdef enum:
    FROM_A_LINE = 1 << 12       # shorter messages are copied at once; longer ones from the beginning of a cache line on
    LONG_MESSAGE = 1 << 18
    LARGE_RING = 1 << 24        # larger rings, and what is copied into them, do not fit in a usual last cache
    LARGER_RING = 1 << 25       # the same where a copy does not read what it overwrites
    LONG_COPY = 1 << 23         # neither do some copies of this length beside the ring


cdef inline uint64_t past_caches_from(uint64_t capacity) noexcept nogil:
    """Returns the length from which messages are copied past the caches into a ring of `capacity` bytes."""
    cdef uint64_t most = <uint64_t>LARGER_RING if strings_are_fast() else <uint64_t>LARGE_RING
    return <uint64_t>LONG_MESSAGE if capacity > most else <uint64_t>-1


cdef inline void copy_message(char *to, const char *data, size_t n, uint64_t past_from) noexcept nogil:
    """Copies bytes of a message; messages of `past_from` bytes and more past the caches."""
    cdef size_t before, rest
    if n < FROM_A_LINE:
        memcpy(to, data, n)
        return
    # Stores into whole cache lines are up to twice as fast.
    before = bytes_to_line(to, n)
    memcpy(to, data, before)
    to, data, rest = to + before, data + before, n - before
    if n >= past_from:
        copy_past_caches(to, data, rest)
    elif n >= <uint64_t>LONG_MESSAGE and strings_are_fast():
        copy_lines(to, data, rest)
    else:
        memcpy(to, data, rest)


cdef inline void copy_in_caches(char *to, const char *data, size_t n) noexcept nogil:
    """Copies bytes of a message that are soon used again."""
    copy_message(to, data, n, <uint64_t>-1)
