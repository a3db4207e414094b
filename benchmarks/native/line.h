/* One cache line between two cores: the floor under every latency here, and the state of the machine.
 *
 * A virtual machine may be moved to cores that lie further apart while it runs, which changes every
 * figure by a factor; so the other programs take a short sample of this one beside their own.
 */
#ifndef IPCBUS_NATIVE_LINE_H
#define IPCBUS_NATIVE_LINE_H

#include "common.h"

enum { PROBE_ROUND_TRIPS = 20000, PROBE_WARM_UP = 2000 };

struct court {
    _Alignas(CACHE_LINE) _Atomic uint64_t ball; /* odd: theirs to return; even: ours */
    _Alignas(CACHE_LINE) uint64_t round_trips;
};

static inline void wait_for_ball(struct court *court, uint64_t turn)
{
    while (atomic_load_explicit(&court->ball, memory_order_acquire) != turn)
        cpu_relax();
}

static inline void return_balls(void *argument)
{
    struct court *court = argument;
    const uint64_t last = 2 * court->round_trips;
    for (uint64_t turn = 1; turn < last; turn += 2) {
        wait_for_ball(court, turn);
        atomic_store_explicit(&court->ball, turn + 1, memory_order_release);
    }
}

/* Round trips of a line between the two cores, in ns; the first `warm_up` do not count. */
static inline struct summary line_round_trips(uint64_t round_trips, uint64_t warm_up, double scale)
{
    struct court *court = map_shared(sizeof *court);
    uint64_t *samples = map_shared(round_trips * sizeof *samples);
    court->round_trips = round_trips;
    const pid_t partner = spawn(SECOND_CORE, return_balls, court);
    uint64_t before = ticks();
    for (uint64_t turn = 0; turn < round_trips; turn++) {
        atomic_store_explicit(&court->ball, 2 * turn + 1, memory_order_release);
        wait_for_ball(court, 2 * turn + 2);
        const uint64_t after = ticks();
        samples[turn] = after - before;
        before = after;
    }
    join(partner);
    const struct summary trip = summarize(samples + warm_up, round_trips - warm_up, scale);
    munmap(samples, round_trips * sizeof *samples);
    munmap(court, sizeof *court);
    return trip;
}

/* A few milliseconds of it, for the other programs. */
static inline double probe_line(double scale)
{
    return line_round_trips(PROBE_ROUND_TRIPS, PROBE_WARM_UP, scale).mean;
}

#endif
