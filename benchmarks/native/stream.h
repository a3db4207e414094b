/* One run over the ring: what both sides share, the readers, and the work between paced sends. */
#ifndef IPCBUS_NATIVE_STREAM_H
#define IPCBUS_NATIVE_STREAM_H

#include "ring.h"

enum { PACED_LOADS = 40 }; /* some 40 ns */

struct setting {
    enum flavour flavour;
    uint64_t align;
    uint32_t payload;
    double scale; /* ns per tick */
};

/* What both sides of one run share. */
struct run {
    _Alignas(CACHE_LINE) _Atomic unsigned ready;
    _Alignas(CACHE_LINE) _Atomic unsigned next_slot;
    struct ring *there;
    struct ring *back;
    struct setting setting;
    uint32_t batch;
    uint64_t messages;
    bool yields; /* a reader that finds nothing gives up its core */
};

static inline struct run *new_run(const struct setting *setting, uint32_t batch, uint64_t messages)
{
    struct run *run = map_shared(sizeof *run);
    run->setting = *setting;
    run->batch = batch;
    run->messages = messages;
    run->there = map_shared(sizeof *run->there);
    run->back = map_shared(sizeof *run->back);
    return run;
}

static inline void end_run(struct run *run)
{
    munmap(run->there, sizeof *run->there);
    munmap(run->back, sizeof *run->back);
    munmap(run, sizeof *run);
}

static inline struct writer new_writer(struct ring *ring, const struct run *run, unsigned readers)
{
    touch_pages(ring, sizeof *ring);
    return (struct writer){.ring = ring,
                           .flavour = run->setting.flavour,
                           .readers = readers,
                           .align = run->setting.align,
                           .limit = RING_BYTES};
}

static inline struct reader new_reader(struct ring *ring, const struct run *run, unsigned slot)
{
    touch_pages(ring, sizeof *ring);
    return (struct reader){
        .ring = ring, .flavour = run->setting.flavour, .slot = &ring->slots[slot]};
}

static inline void idle(bool yields)
{
    if (yields)
        sched_yield();
    else
        cpu_relax();
}

/* Reads a stream to its end; publishes its position when it has caught up and every 64 KiB. */
static inline void read_stream(void *argument)
{
    struct run *run = argument;
    struct reader reader =
        new_reader(run->there, run, atomic_fetch_add(&run->next_slot, 1));
    const uint64_t messages = run->messages;
    const bool yields = run->yields;
    volatile uint64_t sink = 0;
    uint64_t fold = 0, published = 0;
    atomic_fetch_add(&run->ready, 1);
    for (uint64_t sequence = 0; sequence < messages;) {
        const struct record *record = poll_record(&reader);
        if (record != NULL) {
            fold ^= read_record(record, sequence);
            sequence += record->count;
            done_with(&reader, record);
        }
        if (reader.position - published >= PUBLISH_POSITION_EVERY ||
            (record == NULL && reader.position != published)) {
            publish_position(&reader);
            published = reader.position;
        } else if (record == NULL) {
            idle(yields);
        }
    }
    publish_position(&reader);
    sink = fold;
    (void)sink;
}

static inline void wait_drained(const struct writer *writer)
{
    while (slowest_reader(writer) != writer->position)
        cpu_relax();
}

/* Starts `readers` readers of the run and waits until they poll. */
static inline void start_readers(struct run *run, unsigned readers, pid_t *pids)
{
    for (unsigned index = 0; index < readers; index++)
        pids[index] = spawn(SECOND_CORE, read_stream, run);
    while (atomic_load(&run->ready) < readers)
        cpu_relax();
}

static inline void join_readers(const pid_t *pids, unsigned readers)
{
    for (unsigned index = 0; index < readers; index++)
        join(pids[index]);
}

/* The work of a paced writer before each send: loads that each wait for the one before, as an
 * interpreter's do, so that a fence in the send cannot hide behind it. */
static inline unsigned work(unsigned at)
{
    static const volatile unsigned char next[CACHE_LINE] = {
        7, 12, 5, 9, 14, 11, 3, 13, 1, 15, 0, 8, 10, 6, 2, 4, /* one cycle through 16 places */
    };
    for (unsigned load = 0; load < PACED_LOADS; load++)
        at = next[at];
    return at;
}

#endif
