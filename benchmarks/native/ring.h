/* The one-writer ring of ring.c and fence.c.
 *
 *   record   +0  commit    0 while it is not there; else the position of its end (top bit: padding)
 *            +8  length    bytes after this header that count
 *           +12  count     messages in the record
 *           +16  messages, each a 16-byte header and its payload
 *
 * Positions are absolute and never wrap; a record lies in one piece, so that a padding record fills
 * the end of a lap. The alignment of records is at least 8: a commit word always fits.
 *
 * TAIL:  the reader polls the tail word, which has a cache line to itself.
 * STAMP: the reader polls the commit word of the next record. Before the writer stores a commit word
 *        it writes 0 into the one after it, so that the bytes of the lap before are never taken for one.
 *        The tail word is stored too; nobody polls it.
 */
#ifndef IPCBUS_NATIVE_RING_H
#define IPCBUS_NATIVE_RING_H

#include "common.h"

enum { RING_BYTES = 4 << 20, RING_MASK = RING_BYTES - 1, MAX_READERS = 2 };
enum { PAYLOAD_LIMIT = 1024, BATCH_LIMIT = 32, PUBLISH_POSITION_EVERY = 64 << 10 };
#define PADDING (UINT64_C(1) << 63)

enum flavour { TAIL, STAMP };

struct record {
    _Atomic uint64_t commit;
    uint32_t length;
    uint32_t count;
};

struct message {
    uint32_t length;
    uint32_t topic;
    uint64_t sequence;
};

_Static_assert(sizeof(struct record) == 16 && sizeof(struct message) == 16, "headers of 16 bytes");

struct slot {
    _Alignas(CACHE_LINE) _Atomic uint64_t position;
};

struct ring {
    _Alignas(CACHE_LINE) _Atomic uint64_t tail;
    _Alignas(CACHE_LINE) _Atomic uint32_t parked; /* used by fence.c alone */
    struct slot slots[MAX_READERS];
    _Alignas(PAGE_BYTES) unsigned char data[RING_BYTES];
};

struct writer {
    struct ring *ring;
    enum flavour flavour;
    unsigned readers;
    uint64_t align;
    uint64_t position; /* of the open or the next record */
    uint64_t end;      /* of the open record */
    uint64_t limit;    /* up to here every reader has left the lap before */
};

struct reader {
    struct ring *ring;
    enum flavour flavour;
    struct slot *slot;
    uint64_t position;
    uint64_t known_tail;
};

static inline struct record *record_at(struct ring *ring, uint64_t position)
{
    return (struct record *)(ring->data + (position & RING_MASK));
}

static inline uint64_t slowest_reader(const struct writer *writer)
{
    uint64_t slowest = UINT64_MAX;
    for (unsigned index = 0; index < writer->readers; index++) {
        const uint64_t position =
            atomic_load_explicit(&writer->ring->slots[index].position, memory_order_acquire);
        slowest = position < slowest ? position : slowest;
    }
    return slowest;
}

/* Waits until the bytes up to `end` and the commit word after them may be written. */
static inline void wait_for_room(struct writer *writer, uint64_t end)
{
    const uint64_t needed = end + sizeof(uint64_t);
    while (needed > writer->limit) {
        writer->limit = slowest_reader(writer) + RING_BYTES;
        if (needed > writer->limit)
            cpu_relax();
    }
}

/* First half of publishing: the commit word after the open record shows "nothing yet". */
static inline void clear_next_commit(struct writer *writer)
{
    if (writer->flavour == STAMP)
        atomic_store_explicit(&record_at(writer->ring, writer->end)->commit, 0,
                              memory_order_relaxed);
}

/* Second half: one release store makes the record visible. */
static inline void store_commit(struct writer *writer, uint64_t padding)
{
    struct record *record = record_at(writer->ring, writer->position);
    atomic_store_explicit(&record->commit, writer->end | padding, memory_order_release);
}

static inline void store_tail(struct writer *writer)
{
    atomic_store_explicit(&writer->ring->tail, writer->end, memory_order_release);
    writer->position = writer->end;
}

static inline void publish(struct writer *writer, uint64_t padding)
{
    clear_next_commit(writer);
    store_commit(writer, padding);
    store_tail(writer);
}

/* Opens a record for `length` bytes; publish() makes it visible. */
static inline struct record *claim(struct writer *writer, uint32_t length, uint32_t count)
{
    const uint64_t bytes =
        (sizeof(struct record) + length + writer->align - 1) & ~(writer->align - 1);
    const uint64_t room = RING_BYTES - (writer->position & RING_MASK);
    if (__builtin_expect(room < bytes, 0)) {
        writer->end = writer->position + room;
        wait_for_room(writer, writer->end);
        publish(writer, PADDING);
    }
    writer->end = writer->position + bytes;
    wait_for_room(writer, writer->end);
    struct record *record = record_at(writer->ring, writer->position);
    record->length = length;
    record->count = count;
    return record;
}

/* The next record, or NULL where there is none yet; done_with() steps over it. */
static inline const struct record *poll_record(struct reader *reader)
{
    for (;;) {
        if (reader->flavour == TAIL && reader->position == reader->known_tail) {
            reader->known_tail = atomic_load_explicit(&reader->ring->tail, memory_order_acquire);
            if (reader->position == reader->known_tail)
                return NULL;
        }
        const struct record *record = record_at(reader->ring, reader->position);
        const uint64_t commit = atomic_load_explicit(&record->commit, memory_order_acquire);
        if (reader->flavour == STAMP && commit == 0)
            return NULL;
        if (__builtin_expect((commit & PADDING) == 0, 1))
            return record;
        reader->position = commit & ~PADDING;
    }
}

static inline void publish_position(struct reader *reader)
{
    atomic_store_explicit(&reader->slot->position, reader->position, memory_order_release);
}

static inline void done_with(struct reader *reader, const struct record *record)
{
    reader->position = atomic_load_explicit(&record->commit, memory_order_relaxed);
}

/* Opens a record and fills it with `batch` messages; the bytes of each are copied from `payload`. */
static inline void write_record(struct writer *writer, const void *payload, uint32_t size,
                                uint32_t batch, uint64_t sequence)
{
    const uint32_t stride = (uint32_t)sizeof(struct message) + ((size + 7) & ~7u);
    struct record *record = claim(writer, batch * stride, batch);
    unsigned char *at = (unsigned char *)(record + 1);
    for (uint32_t index = 0; index < batch; index++, at += stride) {
        struct message *message = (struct message *)at;
        message->length = size;
        message->topic = 7;
        message->sequence = sequence + index;
        memcpy(message + 1, payload, size);
    }
}

static inline void send_record(struct writer *writer, const void *payload, uint32_t size,
                               uint32_t batch, uint64_t sequence)
{
    write_record(writer, payload, size, batch, sequence);
    publish(writer, 0);
}

/* Reads every message of the record, checks their order, and folds the payload into the result. */
static inline uint64_t read_record(const struct record *record, uint64_t sequence)
{
    const unsigned char *at = (const unsigned char *)(record + 1);
    uint64_t fold = 0;
    for (uint32_t index = 0; index < record->count; index++) {
        const struct message *message = (const struct message *)at;
        if (message->sequence != sequence + index || message->length > PAYLOAD_LIMIT)
            refuse("the ring lost or broke a message");
        const uint64_t *words = (const uint64_t *)(message + 1);
        for (uint32_t word = 0; word < message->length / 8; word++)
            fold ^= words[word];
        at += sizeof *message + ((message->length + 7) & ~7u);
    }
    return fold;
}

#endif
