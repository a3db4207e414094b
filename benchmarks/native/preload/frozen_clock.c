/* Preloaded into a program whose instructions are counted: the first call of getloadavg() stops all clocks and timers, so
   that none comes due between two counts, whatever else the machine does. Each call of getloadavg() is a mark that
   valgrind divides its counts at. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { CLOCKS = 16, DESCRIPTORS = 1024 };

static int frozen;
static struct timespec stopped[CLOCKS];
static char is_timer[DESCRIPTORS];

int clock_gettime(clockid_t id, struct timespec *now)
{
    if (frozen && id >= 0 && id < CLOCKS) {
        *now = stopped[id];
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, id, now);
}

int timerfd_settime(int fd, int flags, const struct itimerspec *due, struct itimerspec *before)
{
    static const struct itimerspec never;
    if (fd >= 0 && fd < DESCRIPTORS)
        is_timer[fd] = 1;
    return (int)syscall(SYS_timerfd_settime, fd, flags, frozen ? &never : due, before);
}

int getloadavg(double *loads, int count)
{
    if (!frozen) {
        frozen = 1;
        for (int id = 0; id < CLOCKS; id++)
            (void)syscall(SYS_clock_gettime, id, &stopped[id]);
        for (int fd = 0; fd < DESCRIPTORS; fd++)
            if (is_timer[fd])
                (void)timerfd_settime(fd, 0, NULL, NULL);
    }
    for (int at = 0; at < count; at++)
        loads[at] = 0;
    return count;
}
