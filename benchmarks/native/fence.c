/* What it costs to be sure that a reader which goes to sleep is woken.
 *
 * usage: fence
 *
 * The writer stores a commit word and then loads the word that says "parked"; the reader stores
 * "parked" and then loads the commit word. Both loads may pass the stores before them, and the
 * reader then sleeps on a message. Either both sides fence (the writer for every message), or the
 * side that parks calls membarrier, which fences the writer's core from outside.
 *
 * Measured: the call; the cost of a send to the writer without a fence, with one and with an
 * exchange as the commit, in bursts that fit the ring and at some 40 ns of other work before each,
 * while the reader polls; and how often a wake-up is lost under each protocol.
 */
#include "line.h"
#include "membarrier.h"
#include "stream.h"

enum {
    REPETITIONS = 5,
    CALLS = 10000,
    BURSTS = 100,
    BURST_MESSAGES = 8192,
    PACED_BURST_MESSAGES = 2048,
    ROUNDS = 200000,
    MEETING_SPREAD_TICKS = 512,
    CALL_SPREAD_TICKS = 16384,
};

/* ---- the cost of the call ---------------------------------------------------------------- */

struct bystander {
    _Alignas(CACHE_LINE) _Atomic unsigned ready;
    _Alignas(CACHE_LINE) _Atomic bool leave;
    bool spins;
};

static void stand_by(void *argument)
{
    struct bystander *bystander = argument;
    register_for_membarrier();
    atomic_store(&bystander->ready, 1);
    while (!atomic_load(&bystander->leave)) {
        if (bystander->spins)
            cpu_relax();
        else
            usleep(1000);
    }
}

/* The call while the registered other process runs on the other core, or sleeps. */
static struct summary call_cost(bool spins, double scale)
{
    struct bystander *bystander = map_shared(sizeof *bystander);
    uint64_t *samples = map_shared(CALLS * sizeof *samples);
    bystander->spins = spins;
    const pid_t pid = spawn(SECOND_CORE, stand_by, bystander);
    while (atomic_load(&bystander->ready) == 0)
        cpu_relax();
    for (unsigned call = 0; call < CALLS; call++) {
        const uint64_t start = ticks();
        fence_everybody();
        samples[call] = ticks() - start;
    }
    atomic_store(&bystander->leave, true);
    join(pid);
    const struct summary cost = summarize(samples, CALLS, scale);
    munmap(samples, CALLS * sizeof *samples);
    munmap(bystander, sizeof *bystander);
    return cost;
}

/* ---- the cost of a send ------------------------------------------------------------------ */

enum fencing { NO_FENCE, FENCE, EXCHANGE, FENCING_COUNT };

static const char *const FENCING_NAMES[] = {"no_fence", "fence", "exchange"};

/* Publishes as the fencing wants it and says whether a reader is parked. */
static inline uint32_t publish_and_look(struct writer *writer, enum fencing fencing)
{
    clear_next_commit(writer);
    if (fencing == EXCHANGE)
        atomic_exchange(&record_at(writer->ring, writer->position)->commit, writer->end);
    else
        store_commit(writer, 0);
    store_tail(writer);
    if (fencing == FENCE)
        atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&writer->ring->parked, memory_order_relaxed);
}

struct send_cost {
    double burst;
    double paced;
};

/* The sends (or with NULL, only the work) of one burst, in ns per message. */
static double time_burst(struct writer *writer, const struct setting *setting,
                         enum fencing fencing, unsigned messages, bool works, uint64_t *sent)
{
    static const unsigned char payload[PAYLOAD_LIMIT] = {1, 2, 3};
    unsigned value = 0;
    uint32_t parked = 0;
    const uint64_t start = ticks();
    for (unsigned message = 0; message < messages; message++) {
        if (works)
            value = work(value);
        if (writer == NULL)
            continue;
        write_record(writer, payload, setting->payload, 1, (*sent)++);
        parked |= publish_and_look(writer, fencing);
    }
    const uint64_t elapsed = ticks() - start;
    if (parked != 0 || value >= CACHE_LINE)
        refuse("nobody parks here");
    return (double)elapsed * setting->scale / messages;
}

static struct send_cost measure_sends(const struct setting *setting, enum fencing fencing)
{
    const uint64_t messages = (uint64_t)BURSTS * (BURST_MESSAGES + PACED_BURST_MESSAGES);
    struct run *run = new_run(setting, 1, messages);
    pid_t pid;
    start_readers(run, 1, &pid);
    struct writer writer = new_writer(run->there, run, 1);
    double bursts[BURSTS], paced[BURSTS];
    uint64_t sent = 0;
    for (unsigned index = 0; index < BURSTS; index++) {
        wait_drained(&writer);
        bursts[index] = time_burst(&writer, setting, fencing, BURST_MESSAGES, false, &sent);
        wait_drained(&writer);
        paced[index] = time_burst(&writer, setting, fencing, PACED_BURST_MESSAGES, true, &sent);
        paced[index] -= time_burst(NULL, setting, fencing, PACED_BURST_MESSAGES, true, &sent);
    }
    join(pid);
    end_run(run);
    return (struct send_cost){.burst = median(bursts, BURSTS), .paced = median(paced, BURSTS)};
}

/* ---- lost wake-ups ----------------------------------------------------------------------- */

enum protocol { UNFENCED, READER_FENCED, BOTH_FENCED, MEMBARRIER, PROTOCOL_COUNT };

static const char *const PROTOCOL_NAMES[] = {"no_fence", "reader_fences", "both_fence",
                                             "reader_calls_membarrier"};

/* One meeting of a writer and a reader that parks; every word has a line of its own. */
struct meeting {
    _Alignas(CACHE_LINE) _Atomic uint64_t committed;
    _Alignas(CACHE_LINE) _Atomic uint64_t parked;
    _Alignas(CACHE_LINE) _Atomic uint64_t writer_at;
    _Alignas(CACHE_LINE) _Atomic uint64_t reader_at;
    _Alignas(CACHE_LINE) _Atomic uint64_t reader_saw; /* the round whose message it has seen */
    enum protocol protocol;
};

static void meet_at(_Atomic uint64_t *mine, _Atomic uint64_t *other, uint64_t step)
{
    atomic_store(mine, step);
    while (atomic_load(other) < step)
        cpu_relax();
}

static void spread(uint64_t *seed, uint64_t limit)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    const uint64_t start = ticks(), length = (*seed >> 33) % limit;
    while (ticks() - start < length)
        ;
}

static void park_again_and_again(void *argument)
{
    struct meeting *meeting = argument;
    const enum protocol protocol = meeting->protocol;
    uint64_t seed = 1;
    register_for_membarrier();
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        meet_at(&meeting->reader_at, &meeting->writer_at, 2 * round);
        spread(&seed, MEETING_SPREAD_TICKS);
        atomic_store_explicit(&meeting->parked, round, memory_order_relaxed);
        if (protocol == MEMBARRIER)
            fence_everybody();
        if (protocol == READER_FENCED || protocol == BOTH_FENCED)
            atomic_thread_fence(memory_order_seq_cst);
        atomic_signal_fence(memory_order_seq_cst);
        if (atomic_load_explicit(&meeting->committed, memory_order_acquire) == round)
            atomic_store(&meeting->reader_saw, round);
        meet_at(&meeting->reader_at, &meeting->writer_at, 2 * round + 1);
    }
}

/* Rounds in which the reader saw no message and the writer saw nobody parked. */
static unsigned long lost_wakes(enum protocol protocol)
{
    struct meeting *meeting = map_shared(sizeof *meeting);
    meeting->protocol = protocol;
    const uint64_t limit = protocol == MEMBARRIER ? CALL_SPREAD_TICKS : MEETING_SPREAD_TICKS;
    const pid_t pid = spawn(SECOND_CORE, park_again_and_again, meeting);
    uint64_t seed = 2;
    unsigned long lost = 0;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        meet_at(&meeting->writer_at, &meeting->reader_at, 2 * round);
        spread(&seed, limit);
        atomic_store_explicit(&meeting->committed, round, memory_order_release);
        if (protocol == BOTH_FENCED)
            atomic_thread_fence(memory_order_seq_cst);
        atomic_signal_fence(memory_order_seq_cst);
        const bool woke =
            atomic_load_explicit(&meeting->parked, memory_order_relaxed) == round;
        meet_at(&meeting->writer_at, &meeting->reader_at, 2 * round + 1);
        lost += !woke && atomic_load(&meeting->reader_saw) != round;
    }
    join(pid);
    munmap(meeting, sizeof *meeting);
    return lost;
}

/* ---- the report -------------------------------------------------------------------------- */

static void report_sends(double scale)
{
    const struct setting setting = {.flavour = STAMP, .align = 8, .payload = 64, .scale = scale};
    double bursts[FENCING_COUNT][REPETITIONS], paced[FENCING_COUNT][REPETITIONS];
    for (unsigned index = 0; index < REPETITIONS; index++)
        for (unsigned fencing = 0; fencing < FENCING_COUNT; fencing++) {
            const struct send_cost cost = measure_sends(&setting, (enum fencing)fencing);
            bursts[fencing][index] = cost.burst;
            paced[fencing][index] = cost.paced;
        }
    printf("\"send\": {");
    for (unsigned fencing = 0; fencing < FENCING_COUNT; fencing++)
        printf("%s\"%s\": {\"burst_ns\": %.2f, \"paced_ns\": %.2f}", fencing ? ", " : "",
               FENCING_NAMES[fencing], median(bursts[fencing], REPETITIONS),
               median(paced[fencing], REPETITIONS));
    printf("}, ");
    fflush(stdout);
}

int main(void)
{
    begin();
    register_for_membarrier();
    const double scale = ns_per_tick();
    printf("{\"program\": \"fence\", \"line_round_trip_ns\": %.1f, ", probe_line(scale));
    fflush(stdout);
    const struct summary running = call_cost(true, scale), sleeping = call_cost(false, scale);
    printf("\"membarrier\": {\"running_p50_ns\": %.0f, \"running_p99_ns\": %.0f, "
           "\"sleeping_p50_ns\": %.0f, \"sleeping_p99_ns\": %.0f}, ",
           running.p50, running.p99, sleeping.p50, sleeping.p99);
    fflush(stdout);
    report_sends(scale);
    printf("\"rounds\": %d, \"lost_wakes\": {", ROUNDS);
    fflush(stdout);
    for (unsigned protocol = 0; protocol < PROTOCOL_COUNT; protocol++) {
        printf("%s\"%s\": %lu", protocol ? ", " : "", PROTOCOL_NAMES[protocol],
               lost_wakes((enum protocol)protocol));
        fflush(stdout);
    }
    printf("}}\n");
    return EXIT_SUCCESS;
}
