# A lock between processes that its holder cannot take to the grave: a robust mutex of the C library. The kernel marks it
# when its holder's thread ends, however that ends, and wakes one that waits for it.
from libc.stdint cimport int64_t

cdef extern from *:
    """
#include <errno.h>
#include <pthread.h>
#include <time.h>
_Static_assert(sizeof(pthread_mutex_t) <= 64, "a mutex fits into its line");
enum { IB_LOCK_TAKEN, IB_LOCK_INHERITED, IB_LOCK_BUSY };
static int ib_lock_make(void *at) {
    pthread_mutexattr_t kind;
    int error = pthread_mutexattr_init(&kind);
    if (!error) error = pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    if (!error) error = pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    if (!error) error = pthread_mutex_init((pthread_mutex_t *)at, &kind);
    return error;
}
static int ib_lock_result(void *at, int error) {
    if (!error) return IB_LOCK_TAKEN;
    if (error != EOWNERDEAD) return IB_LOCK_BUSY;
    pthread_mutex_consistent((pthread_mutex_t *)at);
    return IB_LOCK_INHERITED;
}
static int ib_lock_try(void *at) { return ib_lock_result(at, pthread_mutex_trylock((pthread_mutex_t *)at)); }
static int ib_lock_wait(void *at, int64_t ns) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    return ib_lock_result(at, pthread_mutex_timedlock((pthread_mutex_t *)at, &until));
}
static void ib_lock_release(void *at) { pthread_mutex_unlock((pthread_mutex_t *)at); }
    """
    enum:
        LOCK_TAKEN "IB_LOCK_TAKEN"
        LOCK_INHERITED "IB_LOCK_INHERITED"
        LOCK_BUSY "IB_LOCK_BUSY"
    int lock_make "ib_lock_make"(void *at) noexcept nogil
    int lock_try "ib_lock_try"(void *at) noexcept nogil
    int lock_wait "ib_lock_wait"(void *at, int64_t ns) noexcept nogil
    void lock_release "ib_lock_release"(void *at) noexcept nogil
