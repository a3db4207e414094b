/* A one-writer ring with variable-length records, read by polling a tail word or the commit stamps.
 *
 * usage: ring tail|stamp [alignment of records: 8, 32, 64] [payload bytes]
 *
 * The writer runs on the first core, every reader on the second. Throughput counts from the start
 * until the last reader has read everything. A burst is timed in the writer alone: it fits the ring,
 * and the next one starts when all readers have drained the last; its readers, one or two, give up
 * their core when they find nothing, so that both figures differ in the count of readers only. Paced
 * is the cost of a send to a writer that does some 40 ns of other work before each: the reader has
 * always caught up, and polls the very line that the writer writes next.
 */
#include "line.h"
#include "stream.h"

enum {
    REPETITIONS = 5,
    STREAM_MESSAGES = 1 << 20,
    PACED_MESSAGES = 200000,
    BURSTS = 100,
    BURST_MESSAGES = 8192,
    ROUND_TRIPS = 100000,
    WARM_UP = 5000,
};

/* Messages per second of one stream. */
static double stream(const struct setting *setting, uint32_t batch, unsigned readers)
{
    struct run *run = new_run(setting, batch, STREAM_MESSAGES);
    run->yields = readers > 1;
    unsigned char payload[PAYLOAD_LIMIT] = {1, 2, 3};
    pid_t pids[MAX_READERS];
    start_readers(run, readers, pids);
    struct writer writer = new_writer(run->there, run, readers);
    const uint64_t start = now_ns();
    for (uint64_t sent = 0; sent < STREAM_MESSAGES; sent += batch)
        send_record(&writer, payload, setting->payload, batch, sent);
    wait_drained(&writer);
    const uint64_t elapsed = now_ns() - start;
    join_readers(pids, readers);
    end_run(run);
    return (double)STREAM_MESSAGES * 1e9 / (double)elapsed;
}

/* Nanoseconds that one send costs the writer in bursts which fit the ring. */
static double burst(const struct setting *setting, unsigned readers)
{
    struct run *run = new_run(setting, 1, (uint64_t)BURSTS * BURST_MESSAGES);
    run->yields = true;
    unsigned char payload[PAYLOAD_LIMIT] = {1, 2, 3};
    pid_t pids[MAX_READERS];
    double samples[BURSTS];
    start_readers(run, readers, pids);
    struct writer writer = new_writer(run->there, run, readers);
    uint64_t sent = 0;
    for (unsigned index = 0; index < BURSTS; index++) {
        wait_drained(&writer);
        const uint64_t start = ticks();
        for (unsigned message = 0; message < BURST_MESSAGES; message++, sent++)
            send_record(&writer, payload, setting->payload, 1, sent);
        samples[index] = (double)(ticks() - start) * setting->scale / BURST_MESSAGES;
    }
    join_readers(pids, readers);
    end_run(run);
    return median(samples, BURSTS);
}

/* Nanoseconds per message of a loop of work, with a send after each piece of it or without. */
static double loop_of_work(const struct setting *setting, bool sends)
{
    struct run *run = new_run(setting, 1, PACED_MESSAGES);
    unsigned char payload[PAYLOAD_LIMIT] = {1, 2, 3};
    pid_t pids[MAX_READERS];
    const unsigned readers = sends ? 1 : 0;
    start_readers(run, readers, pids);
    struct writer writer = new_writer(run->there, run, readers);
    unsigned value = 0;
    const uint64_t start = now_ns();
    for (uint64_t sent = 0; sent < PACED_MESSAGES; sent++) {
        value = work(value);
        if (sends)
            send_record(&writer, payload, setting->payload, 1, sent);
    }
    const uint64_t elapsed = now_ns() - start;
    join_readers(pids, readers);
    end_run(run);
    return (double)elapsed / PACED_MESSAGES;
}

static double paced(const struct setting *setting)
{
    const double idle_loop = loop_of_work(setting, false);
    return loop_of_work(setting, true) - idle_loop;
}

static void receive_one(struct reader *reader, uint64_t sequence)
{
    const struct record *record;
    while ((record = poll_record(reader)) == NULL)
        cpu_relax();
    volatile uint64_t sink = read_record(record, sequence);
    (void)sink;
    done_with(reader, record);
    publish_position(reader);
}

static void echo(void *argument)
{
    struct run *run = argument;
    struct reader reader = new_reader(run->there, run, 0);
    struct writer writer = new_writer(run->back, run, 1);
    unsigned char payload[PAYLOAD_LIMIT] = {4, 5, 6};
    atomic_fetch_add(&run->ready, 1);
    for (uint64_t sequence = 0; sequence < run->messages; sequence++) {
        receive_one(&reader, sequence);
        send_record(&writer, payload, run->setting.payload, 1, sequence);
    }
}

/* Round trips of one message over a pair of rings, in ns. */
static struct summary round_trips(const struct setting *setting)
{
    struct run *run = new_run(setting, 1, ROUND_TRIPS);
    uint64_t *samples = map_shared(ROUND_TRIPS * sizeof *samples);
    unsigned char payload[PAYLOAD_LIMIT] = {1, 2, 3};
    struct writer writer = new_writer(run->there, run, 1);
    struct reader reader = new_reader(run->back, run, 0);
    const pid_t pid = spawn(SECOND_CORE, echo, run);
    while (atomic_load(&run->ready) < 1)
        cpu_relax();
    uint64_t before = ticks();
    for (uint64_t sequence = 0; sequence < ROUND_TRIPS; sequence++) {
        send_record(&writer, payload, setting->payload, 1, sequence);
        receive_one(&reader, sequence);
        const uint64_t after = ticks();
        samples[sequence] = after - before;
        before = after;
    }
    join(pid);
    const struct summary trip =
        summarize(samples + WARM_UP, ROUND_TRIPS - WARM_UP, setting->scale);
    munmap(samples, ROUND_TRIPS * sizeof *samples);
    end_run(run);
    return trip;
}

static void report(const struct setting *setting)
{
    double line[REPETITIONS], single[REPETITIONS], batched[REPETITIONS], shared[REPETITIONS];
    double burst_one[REPETITIONS], burst_two[REPETITIONS], pace[REPETITIONS];
    for (unsigned index = 0; index < REPETITIONS; index++) {
        line[index] = probe_line(setting->scale);
        single[index] = stream(setting, 1, 1);
        batched[index] = stream(setting, BATCH_LIMIT, 1);
        shared[index] = stream(setting, 1, 2);
        burst_one[index] = burst(setting, 1);
        burst_two[index] = burst(setting, 2);
        pace[index] = paced(setting);
    }
    const struct summary trip = round_trips(setting);
    printf("{\"program\": \"ring\", \"flavour\": \"%s\", \"align\": %lu, \"payload\": %u, "
           "\"line_round_trip_ns\": %.1f, \"one_by_one_msg_s\": %.0f, \"batch_32_msg_s\": %.0f, "
           "\"two_readers_msg_s\": %.0f, \"burst_one_reader_ns\": %.2f, "
           "\"burst_two_readers_ns\": %.2f, \"paced_ns\": %.2f, \"round_trip_mean_ns\": %.1f, "
           "\"round_trip_p50_ns\": %.1f, \"round_trip_p99_ns\": %.1f}\n",
           setting->flavour == TAIL ? "tail" : "stamp", (unsigned long)setting->align,
           setting->payload, median(line, REPETITIONS), median(single, REPETITIONS),
           median(batched, REPETITIONS), median(shared, REPETITIONS),
           median(burst_one, REPETITIONS), median(burst_two, REPETITIONS),
           median(pace, REPETITIONS), trip.mean, trip.p50, trip.p99);
}

int main(int argc, char **argv)
{
    const bool tail = argc > 1 && strcmp(argv[1], "tail") == 0;
    const bool stamp = argc > 1 && strcmp(argv[1], "stamp") == 0;
    const unsigned long align = number_argument(argc, argv, 2, 8);
    const unsigned long payload = number_argument(argc, argv, 3, 64);
    const bool aligned = align == 8 || align == 32 || align == 64;
    if (!(tail || stamp) || !aligned || payload == 0 || payload > PAYLOAD_LIMIT)
        refuse("usage: ring tail|stamp [alignment: 8, 32, 64] [payload: 1 to 1024]");
    begin();
    const struct setting setting = {.flavour = tail ? TAIL : STAMP,
                                    .align = align,
                                    .payload = (uint32_t)payload,
                                    .scale = ns_per_tick()};
    report(&setting);
    return EXIT_SUCCESS;
}
