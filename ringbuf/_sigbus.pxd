# Handles SIGBUS, which the system sends to a thread that touches a missing page of a shared object that was cut short.
# A table has all mappings. The handler puts a page of zeros in the place of the missing page, marks the mapping as
# damaged, and lets the access continue. Any other SIGBUS goes to the handler that was there before.
#
# The handler calls only mmap and sigaction, takes no lock and allocates nothing. One store adds a region and one store
# removes it, so the handler may run at any time in any thread. Only ringbuf.memory includes this file: there is one table.
from libc.stdint cimport uint32_t, uintptr_t

cdef extern from *:
    """
#ifndef IPCBUS_SIGBUS
#define IPCBUS_SIGBUS
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
enum { IB_REGIONS = 8192 };
static struct { uintptr_t start, end; uint32_t *damaged; } ib_regions[IB_REGIONS];
static uint32_t ib_regions_used;        /* none at or above this index was ever noted */
static struct sigaction ib_before;
static uintptr_t ib_page_mask;
static int ib_passed_on;

static int ib_mend(uintptr_t at) {
    uint32_t n = __atomic_load_n(&ib_regions_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < n; i++) {
        uintptr_t start = __atomic_load_n(&ib_regions[i].start, __ATOMIC_ACQUIRE);
        if (start <= 1 || at < start || at >= ib_regions[i].end) continue;
        uint32_t *damaged = ib_regions[i].damaged;
        if (__atomic_load_n(&ib_regions[i].start, __ATOMIC_ACQUIRE) != start) continue;     /* used for another one now */
        if (mmap((void *)(at & ib_page_mask), ~ib_page_mask + 1, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) return 0;
        __atomic_store_n(damaged, 1, __ATOMIC_RELEASE);
        return 1;
    }
    return 0;
}

static void ib_on_sigbus(int number, siginfo_t *info, void *context) {
    int saved = errno;
    struct sigaction standard;
    if (info->si_code == BUS_ADRERR && ib_mend((uintptr_t)info->si_addr)) {
        errno = saved;
        return;
    }
    /* A handler that was there before may raise the signal again after its report, as faulthandler does. */
    int again = info->si_code <= 0 && __atomic_load_n(&ib_passed_on, __ATOMIC_RELAXED);
    __atomic_store_n(&ib_passed_on, 1, __ATOMIC_RELAXED);
    if (!again && ib_before.sa_flags & SA_SIGINFO) {
        ib_before.sa_sigaction(number, info, context);
    } else if (!again && ib_before.sa_handler != SIG_DFL && ib_before.sa_handler != SIG_IGN) {
        ib_before.sa_handler(number);
    } else if (again || ib_before.sa_handler == SIG_DFL || info->si_code > 0) {
        /* Back to the standard action, which ends the process: by the same access again, or by the signal again. */
        memset(&standard, 0, sizeof(standard));
        standard.sa_handler = SIG_DFL;
        sigaction(number, &standard, 0);
        if (info->si_code <= 0) raise(number);
    }
    errno = saved;
}

/* Puts the handler in front of whatever handles the signal now; 0 when it is in front. */
static int ib_sigbus_install(void) {
    struct sigaction ours, now;
    if (sigaction(SIGBUS, 0, &now)) return -1;
    if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == ib_on_sigbus) return 0;
    ib_page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    ib_before = now;
    memset(&ours, 0, sizeof(ours));
    ours.sa_sigaction = ib_on_sigbus;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    return sigaction(SIGBUS, &ours, 0);
}

/* Notes a region; its index, or -1 when there are too many. `damaged` has to live until the region is forgotten. */
static int ib_sigbus_note(void *base, size_t length, uint32_t *damaged) {
    for (int i = 0; i < IB_REGIONS; i++) {
        uintptr_t none = 0;
        uint32_t used = __atomic_load_n(&ib_regions_used, __ATOMIC_RELAXED);
        if (!__atomic_compare_exchange_n(&ib_regions[i].start, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
        ib_regions[i].end = (uintptr_t)base + length;
        ib_regions[i].damaged = damaged;
        __atomic_store_n(&ib_regions[i].start, (uintptr_t)base, __ATOMIC_RELEASE);
        while (used <= (uint32_t)i &&
               !__atomic_compare_exchange_n(&ib_regions_used, &used, (uint32_t)i + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
        return i;
    }
    return -1;
}

static void ib_sigbus_forget(int index) {
    if (index >= 0) __atomic_store_n(&ib_regions[index].start, 0, __ATOMIC_RELEASE);
}
#endif
    """
    int ib_sigbus_install() noexcept
    int ib_sigbus_note(void *base, size_t length, uint32_t *damaged) noexcept
    void ib_sigbus_forget(int index) noexcept
