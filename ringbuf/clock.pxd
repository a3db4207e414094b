from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
#include <stdint.h>
#include <time.h>
static inline uint64_t ib_clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#if defined(__x86_64__)
#define IB_HAVE_TSC 1
static inline uint64_t ib_ticks(uint32_t kind) {
    return kind ? __builtin_ia32_rdtsc() : ib_clock_ns(CLOCK_MONOTONIC);
}
#else
#define IB_HAVE_TSC 0
static inline uint64_t ib_ticks(uint32_t kind) { (void)kind; return ib_clock_ns(CLOCK_MONOTONIC); }
#endif
    """
    bint HAVE_TSC "IB_HAVE_TSC"
    uint64_t read_ticks "ib_ticks"(uint32_t kind) noexcept nogil
    uint64_t monotonic_ns "ib_clock_ns(CLOCK_MONOTONIC)"
    uint64_t realtime_ns "ib_clock_ns(CLOCK_REALTIME)"

cdef uint32_t clock_kind() noexcept
cdef double ns_per_tick() noexcept
cdef int64_t epoch_ns(uint64_t ticks) noexcept
cdef uint64_t ticks_of(int64_t epoch_ns) noexcept
