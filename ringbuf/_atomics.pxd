# All memory orders of the project are written here and nowhere else.
#
# Sync points. Each release store names the acquire load it pairs with; both places carry the same words in a comment.
#
#   SYNC frame      writer: store_release(record.frame)      reader: load_acquire(record.frame)
#                   what the record holds is written before it can be seen
#   SYNC tail       writer: store_release(header.tail)       joiner: load_acquire(header.tail)
#                   the stamp at the tail (0 or the next record) is written before the tail can be seen
#   SYNC published  writer: store_release(line.published)    reader: load_acquire(line.published)
#                   records with lower numbers can be seen before the number can
#   SYNC closed     writer: store_release(header.closed)     reader: load_acquire(header.closed)
#                   the last record can be seen before the end can
#   SYNC intent     writer: store_relaxed(header.intent), fence_release, bytes
#                   reader: bytes, fence_acquire, load_relaxed(header.intent)
#                   a reader that copied overwritten bytes finds an intent that says so
#   SYNC evict      writer: cas(slot.state) or load_acquire(slot.state), fence_release, bytes
#                   reader: bytes, fence_acquire, load_relaxed(slot.state)
#                   a reader that copied overwritten bytes finds that it was evicted
#   SYNC position   reader: store_release(slot.position)     writer: load_acquire(slot.position)
#                   the reader is done with the bytes before the writer may take them
#                   where threads without the GIL release what a reader holds, none of them takes the position back
#   SYNC state      reader: store_release(slot.state)        writer: load_acquire(slot.state)
#                   the position is written before the slot counts
#   SYNC join       reader: store(slot), fence_full, load(header.tail)
#                   writer: store(header.tail), fence_full, load(slot)
#                   either the writer's next scan sees the slot, or the reader sees the tail of that scan
#   SYNC park       reader: or_(control.parked), membarrier, look at the ring again
#                   writer: store_release(record.frame), compiler_fence, load_relaxed(control.parked)
#                   the system call stands for the fence that the writer leaves out
#   SYNC wait       writer: store(control.writer_waits), membarrier, look at the slots again
#                   reader: store_release(slot.position), compiler_fence, load_relaxed(control.writer_waits)
#   SYNC frames     writer: store_release(queue.written)     reader: load_acquire(queue.written)
#                   the bytes of a frame are written before the frame can be seen
#   SYNC room       reader: store_release(queue.read)        writer: load_acquire(queue.read)
#                   the reader has copied a frame before the writer may overwrite it
#   SYNC ended      writer: store_release(queue.closed)      reader: load_acquire(queue.closed)
#                   the last frame can be seen before the end can
#   SYNC full       writer: store_relaxed(queue.waits), fence_full, load(queue.read)
#                   reader: store(queue.read), fence_full, load_relaxed(queue.waits)
#                   either the writer sees the room, or the reader sees that the writer waits for room
#   SYNC call       writer: store_release(queue.written), or_(control.channel_calls), load_acquire(control.owner_parked)
#                   reader: store_release(control.owner_parked), fence_full, load_acquire(control.channel_calls)
#                   either the owner sees the call before it sleeps, or the caller sees that it sleeps
#   SYNC driver     driver: exchange(pump.owner), load_acquire(pump.wanted)
#                   waiter: or_(pump.wanted), cas(pump.owner)
#                   either the driver sees that a thread waits for the driver lock, or that thread gets the lock
#   SYNC rate       writer: store_release(rate)              reader: load_acquire(rate)
#                   the rate and its anchor are written before their index can be seen
#   SYNC items      writer: store_release(putters.count)     reader: load_acquire(putters.count)
#                   the item, its position and the map of its chunks are written before it counts
#   SYNC taken      reader: store_release(getters.count)     writer: load_acquire(getters.count)
#                   the item is copied before its bytes may be taken
#   SYNC asleep     driver: a new side.count, fence_full, load_relaxed(side.parked)
#                   waiter: store_relaxed(side.parked), fence_full, load_acquire(side.count)
#                   either the process that changes the count sees that another one sleeps, or that one sees the count
from libc.stdint cimport uint32_t, uint64_t

cdef extern from *:
    """
#include <stdint.h>
static inline uint32_t ib_load_acquire32(const void *p) { return __atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE); }
static inline uint64_t ib_load_acquire64(const void *p) { return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE); }
static inline uint32_t ib_load_relaxed32(const void *p) { return __atomic_load_n((const uint32_t *)p, __ATOMIC_RELAXED); }
static inline uint64_t ib_load_relaxed64(const void *p) { return __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED); }
static inline void ib_store_release32(void *p, uint32_t v) { __atomic_store_n((uint32_t *)p, v, __ATOMIC_RELEASE); }
static inline void ib_store_release64(void *p, uint64_t v) { __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE); }
static inline void ib_store_relaxed32(void *p, uint32_t v) { __atomic_store_n((uint32_t *)p, v, __ATOMIC_RELAXED); }
static inline void ib_store_relaxed64(void *p, uint64_t v) { __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELAXED); }
static inline int ib_cas32(void *p, uint32_t old, uint32_t v) {
    return __atomic_compare_exchange_n((uint32_t *)p, &old, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
static inline int ib_cas64(void *p, uint64_t old, uint64_t v) {
    return __atomic_compare_exchange_n((uint64_t *)p, &old, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
static inline uint32_t ib_exchange32(void *p, uint32_t v) { return __atomic_exchange_n((uint32_t *)p, v, __ATOMIC_SEQ_CST); }
static inline uint64_t ib_exchange64(void *p, uint64_t v) { return __atomic_exchange_n((uint64_t *)p, v, __ATOMIC_SEQ_CST); }
static inline uint32_t ib_or32(void *p, uint32_t v) { return __atomic_fetch_or((uint32_t *)p, v, __ATOMIC_SEQ_CST); }
static inline uint64_t ib_or64(void *p, uint64_t v) { return __atomic_fetch_or((uint64_t *)p, v, __ATOMIC_SEQ_CST); }
static inline uint64_t ib_and64(void *p, uint64_t v) { return __atomic_fetch_and((uint64_t *)p, v, __ATOMIC_SEQ_CST); }
static inline uint64_t ib_add64(void *p, uint64_t v) { return __atomic_fetch_add((uint64_t *)p, v, __ATOMIC_RELAXED); }
/* Stores a word that only grows; `shared`: threads that do not wait for each other store it. */
static inline void ib_raise_release64(void *p, uint64_t v, int shared) {
#ifdef Py_GIL_DISABLED
    uint64_t was = __atomic_load_n((uint64_t *)p, __ATOMIC_RELAXED);
    while (shared) {
        if ((int64_t)(v - was) <= 0) return;
        if (__atomic_compare_exchange_n((uint64_t *)p, &was, v, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
    }
#else
    (void)shared;
#endif
    __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE);
}
static inline void ib_fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
static inline void ib_fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
static inline void ib_fence_full(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void ib_compiler_fence(void) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
static inline void ib_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#else
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
}
    """
    uint32_t load_acquire32 "ib_load_acquire32"(const void *p) noexcept nogil
    uint64_t load_acquire64 "ib_load_acquire64"(const void *p) noexcept nogil
    uint32_t load_relaxed32 "ib_load_relaxed32"(const void *p) noexcept nogil
    uint64_t load_relaxed64 "ib_load_relaxed64"(const void *p) noexcept nogil
    void store_release32 "ib_store_release32"(void *p, uint32_t v) noexcept nogil
    void store_release64 "ib_store_release64"(void *p, uint64_t v) noexcept nogil
    void store_relaxed32 "ib_store_relaxed32"(void *p, uint32_t v) noexcept nogil
    void store_relaxed64 "ib_store_relaxed64"(void *p, uint64_t v) noexcept nogil
    bint cas32 "ib_cas32"(void *p, uint32_t old, uint32_t v) noexcept nogil
    bint cas64 "ib_cas64"(void *p, uint64_t old, uint64_t v) noexcept nogil
    uint32_t exchange32 "ib_exchange32"(void *p, uint32_t v) noexcept nogil
    uint64_t exchange64 "ib_exchange64"(void *p, uint64_t v) noexcept nogil
    uint32_t or32 "ib_or32"(void *p, uint32_t v) noexcept nogil
    uint64_t or64 "ib_or64"(void *p, uint64_t v) noexcept nogil
    uint64_t and64 "ib_and64"(void *p, uint64_t v) noexcept nogil
    uint64_t add64 "ib_add64"(void *p, uint64_t v) noexcept nogil
    void raise_release64 "ib_raise_release64"(void *p, uint64_t v, bint shared) noexcept nogil
    void fence_acquire "ib_fence_acquire"() noexcept nogil
    void fence_release "ib_fence_release"() noexcept nogil
    void fence_full "ib_fence_full"() noexcept nogil
    void compiler_fence "ib_compiler_fence"() noexcept nogil
    void pause "ib_pause"() noexcept nogil
