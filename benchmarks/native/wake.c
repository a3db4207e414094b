/* Wake-up ping-pong in which both sides sleep: five primitives, on two cores and both on one. The
 * last row is the FIFO again with a membarrier before each sleep, as the side that parks calls it.
 *
 * usage: wake [round trips of one sample] [samples] [microseconds before each]
 *
 * One way is from before the call that wakes to after the call that slept. The samples of the
 * primitives are taken in turn. With a time before each round trip the first side spins for so long
 * and the second is fast asleep; without, it has only just fallen asleep. On two cores the time is mostly that of an idle virtual CPU waking.
 * The FIFO is made in a new directory and unlinked as soon as it is open.
 */
#include "membarrier.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { DEFAULT_ROUND_TRIPS = 1000, DEFAULT_SAMPLES = 5, WARM_UP = 50, ONE_MESSAGE = 8 };

/* One direction: one side rings, the other sleeps until it rings. */
struct bell {
    _Alignas(CACHE_LINE) _Atomic uint32_t word;
    sem_t semaphore;
    int ring_fd;
    int sleep_fd;
    int epoll_fd;
};

struct primitive {
    const char *name;
    void (*open)(struct bell *);
    void (*ring)(struct bell *);
    void (*sleep)(struct bell *);
    void (*close)(struct bell *);
};

static void no_open(struct bell *bell)
{
    atomic_store(&bell->word, 0);
}

static void no_close(struct bell *bell)
{
    (void)bell;
}

static void futex_ring(struct bell *bell)
{
    atomic_store(&bell->word, 1);
    syscall(SYS_futex, &bell->word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void futex_sleep(struct bell *bell)
{
    while (atomic_exchange(&bell->word, 0) == 0)
        syscall(SYS_futex, &bell->word, FUTEX_WAIT, 0, NULL, NULL, 0);
}

static void semaphore_open(struct bell *bell)
{
    if (sem_init(&bell->semaphore, 1, 0) != 0)
        die("sem_init");
}

static void semaphore_ring(struct bell *bell)
{
    sem_post(&bell->semaphore);
}

static void semaphore_sleep(struct bell *bell)
{
    while (sem_wait(&bell->semaphore) != 0 && errno == EINTR)
        ;
}

static void semaphore_close(struct bell *bell)
{
    sem_destroy(&bell->semaphore);
}

static void watch(struct bell *bell)
{
    struct epoll_event event = {.events = EPOLLIN};
    bell->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (bell->epoll_fd < 0 ||
        epoll_ctl(bell->epoll_fd, EPOLL_CTL_ADD, bell->sleep_fd, &event) != 0)
        die("epoll");
}

static void fifo_open(struct bell *bell)
{
    char directory[] = "/tmp/wake.XXXXXX", path[sizeof directory + 8];
    if (mkdtemp(directory) == NULL)
        die("mkdtemp");
    snprintf(path, sizeof path, "%s/fifo", directory);
    if (mkfifo(path, 0600) != 0)
        die("mkfifo");
    bell->sleep_fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    bell->ring_fd = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    unlink(path);
    rmdir(directory);
    if (bell->sleep_fd < 0 || bell->ring_fd < 0)
        die("open fifo");
    watch(bell);
}

static void datagram_open(struct bell *bell)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        die("socketpair");
    bell->sleep_fd = ends[0];
    bell->ring_fd = ends[1];
    watch(bell);
}

static void eventfd_open(struct bell *bell)
{
    bell->sleep_fd = bell->ring_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (bell->sleep_fd < 0)
        die("eventfd");
    watch(bell);
}

static void descriptor_ring(struct bell *bell)
{
    const uint64_t one = 1;
    if (write(bell->ring_fd, &one, ONE_MESSAGE) != ONE_MESSAGE)
        die("write");
}

static void descriptor_sleep(struct bell *bell)
{
    struct epoll_event event;
    uint64_t message;
    while (epoll_wait(bell->epoll_fd, &event, 1, -1) != 1)
        ;
    if (read(bell->sleep_fd, &message, ONE_MESSAGE) != ONE_MESSAGE)
        die("read");
}

static void fence_and_sleep(struct bell *bell)
{
    fence_everybody();
    descriptor_sleep(bell);
}

static void descriptor_close(struct bell *bell)
{
    close(bell->epoll_fd);
    close(bell->sleep_fd);
    if (bell->ring_fd != bell->sleep_fd)
        close(bell->ring_fd);
}

static const struct primitive PRIMITIVES[] = {
    {"futex", no_open, futex_ring, futex_sleep, no_close},
    {"semaphore", semaphore_open, semaphore_ring, semaphore_sleep, semaphore_close},
    {"fifo_epoll", fifo_open, descriptor_ring, descriptor_sleep, descriptor_close},
    {"datagram_epoll", datagram_open, descriptor_ring, descriptor_sleep, descriptor_close},
    {"eventfd_epoll", eventfd_open, descriptor_ring, descriptor_sleep, descriptor_close},
    {"fifo_epoll_membarrier", fifo_open, descriptor_ring, fence_and_sleep, descriptor_close},
};

enum { PRIMITIVE_COUNT = sizeof PRIMITIVES / sizeof *PRIMITIVES };

/* What the two sides of one sample share. */
struct game {
    struct bell there;
    struct bell back;
    const struct primitive *primitive;
    uint64_t round_trips;
    _Atomic uint64_t rung_ns; /* when the bell of the first side rang */
    uint64_t *one_way;        /* filled by the second side */
};

/* What the command line chose. */
struct plan {
    uint64_t round_trips; /* of one sample */
    uint64_t samples;
    uint64_t pause_ns;
};

/* Every time of one primitive on one placement. */
struct times {
    uint64_t *one_way;
    uint64_t *round_trip;
    uint64_t *call; /* in the call that wakes */
};

static void answer(void *argument)
{
    struct game *game = argument;
    const struct primitive *primitive = game->primitive;
    register_for_membarrier();
    for (uint64_t trip = 0; trip < game->round_trips + WARM_UP; trip++) {
        primitive->sleep(&game->there);
        const uint64_t woken = now_ns();
        if (trip >= WARM_UP)
            game->one_way[trip - WARM_UP] = woken - atomic_load(&game->rung_ns);
        primitive->ring(&game->back);
    }
}

static void spin_for(uint64_t nanoseconds)
{
    const uint64_t start = now_ns();
    while (now_ns() - start < nanoseconds)
        cpu_relax();
}

/* Takes one sample into `times`, which points at the place for it. */
static void take_sample(const struct primitive *primitive, int core, const struct plan *plan,
                        struct times times)
{
    struct game *game = map_shared(sizeof *game);
    game->primitive = primitive;
    game->round_trips = plan->round_trips;
    game->one_way = times.one_way;
    primitive->open(&game->there);
    primitive->open(&game->back);
    const pid_t pid = spawn(core, answer, game);
    for (uint64_t trip = 0; trip < plan->round_trips + WARM_UP; trip++) {
        spin_for(plan->pause_ns);
        const uint64_t before = now_ns();
        atomic_store(&game->rung_ns, before);
        primitive->ring(&game->there);
        const uint64_t rung = now_ns();
        primitive->sleep(&game->back);
        if (trip < WARM_UP)
            continue;
        times.round_trip[trip - WARM_UP] = now_ns() - before;
        times.call[trip - WARM_UP] = rung - before;
    }
    join(pid);
    primitive->close(&game->there);
    primitive->close(&game->back);
    munmap(game, sizeof *game);
}

static void print_times(const char *name, struct times times, size_t count, bool last)
{
    const struct summary way = summarize(times.one_way, count, 1e-3);
    const struct summary trip = summarize(times.round_trip, count, 1e-3);
    const struct summary call = summarize(times.call, count, 1e-3);
    printf("\"%s\": {\"one_way_p50_us\": %.2f, \"one_way_p99_us\": %.2f, "
           "\"round_trip_p50_us\": %.2f, \"round_trip_p99_us\": %.2f, \"call_p50_us\": %.2f}%s",
           name, way.p50, way.p99, trip.p50, trip.p99, call.p50, last ? "" : ", ");
}

static void report(const char *placement, int core, const struct plan *plan)
{
    const size_t count = plan->round_trips * plan->samples;
    struct times times[PRIMITIVE_COUNT];
    for (unsigned index = 0; index < PRIMITIVE_COUNT; index++) {
        times[index].one_way = map_shared(count * sizeof(uint64_t));
        times[index].round_trip = map_shared(count * sizeof(uint64_t));
        times[index].call = map_shared(count * sizeof(uint64_t));
    }
    for (uint64_t sample = 0; sample < plan->samples; sample++)
        for (unsigned index = 0; index < PRIMITIVE_COUNT; index++) {
            const uint64_t at = sample * plan->round_trips;
            const struct times place = {times[index].one_way + at, times[index].round_trip + at,
                                        times[index].call + at};
            take_sample(&PRIMITIVES[index], core, plan, place);
        }
    printf("\"%s\": {", placement);
    for (unsigned index = 0; index < PRIMITIVE_COUNT; index++)
        print_times(PRIMITIVES[index].name, times[index], count, index + 1 == PRIMITIVE_COUNT);
    printf("}");
}

int main(int argc, char **argv)
{
    const struct plan plan = {
        .round_trips = number_argument(argc, argv, 1, DEFAULT_ROUND_TRIPS),
        .samples = number_argument(argc, argv, 2, DEFAULT_SAMPLES),
        .pause_ns = 1000 * number_argument(argc, argv, 3, 0),
    };
    if (plan.round_trips == 0 || plan.samples == 0)
        refuse("usage: wake [round trips of one sample] [samples] [microseconds before each]");
    begin();
    register_for_membarrier();
    printf("{\"program\": \"wake\", \"round_trips\": %lu, \"pause_us\": %lu, ",
           plan.round_trips * plan.samples, plan.pause_ns / 1000);
    fflush(stdout);
    report("two_cores", SECOND_CORE, &plan);
    printf(", ");
    fflush(stdout);
    report("one_core", FIRST_CORE, &plan);
    printf("}\n");
    return EXIT_SUCCESS;
}
