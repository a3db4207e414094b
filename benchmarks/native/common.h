/* What every program here needs: cores, clocks, shared memory, a second process, percentiles.
 *
 * Two processes share an anonymous mapping made before fork, so nothing is left behind, and each is
 * pinned to one core. A watchdog ends a program whose other half has died.
 */
#ifndef IPCBUS_NATIVE_COMMON_H
#define IPCBUS_NATIVE_COMMON_H

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CACHE_LINE = 64, PAGE_BYTES = 4096, WATCHDOG_SECONDS = 60 };
enum { FIRST_CORE = 0, SECOND_CORE = 1 }; /* places in `cores` */

static int cores[2] = {0, 1}; /* of IPCBUS_CORES="2,3", or the first two */

static inline _Noreturn void die(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static inline _Noreturn void refuse(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(EXIT_FAILURE);
}

/* Pins a process, or the caller where it is 0. */
static inline void pin(pid_t pid, int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cores[core], &set);
    if (sched_setaffinity(pid, sizeof set, &set) != 0)
        die("sched_setaffinity");
}

/* Zeroed memory that this process and its later children share. */
static inline void *map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    return memory;
}

/* Takes the page faults of a mapping before the clock starts. */
static inline void touch_pages(const void *memory, size_t bytes)
{
    const volatile unsigned char *bytes_of = memory;
    for (size_t offset = 0; offset < bytes; offset += PAGE_BYTES)
        (void)bytes_of[offset];
}

static inline uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* The cheapest steady counter of the processor; ns_per_tick() gives its unit. */
static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return now_ns();
#endif
}

static inline double ns_per_tick(void)
{
    const uint64_t from_ns = now_ns(), from_ticks = ticks();
    while (now_ns() - from_ns < 20000000u)
        ;
    return (double)(now_ns() - from_ns) / (double)(ticks() - from_ticks);
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Begins the program: watchdog on, this process on the first core. */
static inline void begin(void)
{
    alarm(WATCHDOG_SECONDS);
    const char *named = getenv("IPCBUS_CORES");
    if (named != NULL && sscanf(named, "%d,%d", &cores[0], &cores[1]) != 2)
        refuse("IPCBUS_CORES names two processors, as 0,1");
    pin(0, FIRST_CORE);
}

/* Runs work(argument) in a second process on a core of its own; it dies with its parent.
 *
 * The child is born on the parent's core. The parent moves it away, as with real-time priority a parent that spins
 * would never let the child run there. */
static inline pid_t spawn(int core, void (*work)(void *), void *argument)
{
    const pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid > 0) {
        pin(pid, core);
        return pid;
    }
    alarm(WATCHDOG_SECONDS);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        die("prctl");
    pin(0, core);
    work(argument);
    _exit(EXIT_SUCCESS);
}

static inline void join(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, 0) != pid)
        die("waitpid");
    if (status != 0)
        refuse("the second process failed");
}

/* Spins until as many processes as `parties` have come here; `count` starts at 0, for one use. */
static inline void meet(_Atomic unsigned *count, unsigned parties)
{
    atomic_fetch_add(count, 1);
    while (atomic_load(count) < parties)
        sched_yield();
}

static inline int compare_u64(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static inline int compare_double(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

struct summary {
    double mean; /* the counter may step in tens of ns: the mean is finer, the median steadier */
    double p50;
    double p99;
};

/* Sorts the samples in place and gives mean, median and 99th percentile times `scale`. */
static inline struct summary summarize(uint64_t *samples, size_t count, double scale)
{
    uint64_t sum = 0;
    for (size_t index = 0; index < count; index++)
        sum += samples[index];
    qsort(samples, count, sizeof *samples, compare_u64);
    return (struct summary){
        .mean = (double)sum / (double)count * scale,
        .p50 = (double)samples[count / 2] * scale,
        .p99 = (double)samples[count * 99 / 100] * scale,
    };
}

static inline double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_double);
    return values[count / 2];
}

/* The unsigned number in argument `index`, or `otherwise` where it is not given. */
static inline unsigned long number_argument(int argc, char **argv, int index,
                                            unsigned long otherwise)
{
    if (index >= argc)
        return otherwise;
    char *end;
    const unsigned long value = strtoul(argv[index], &end, 10);
    if (*end != '\0' || end == argv[index])
        refuse("an argument is not a number");
    return value;
}

#endif
