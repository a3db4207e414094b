"""Lock-free rings in shared memory: one writer, many readers, variable-length records.

This package is the lowest layer. It knows bytes, records, positions and which processes live. It does not know
topics, messages or contexts.

Modules:
    `ringbuf.layout`    every shared byte, described once
    `ringbuf.segment`   creating, opening and removing shared objects
    `ringbuf.memory`    mappings that live as long as their views
    `ringbuf.ring`      `RingWriter`, `RingReader`
    `ringbuf.slots`     the readers: claiming, joining, leaving, reclaiming
    `ringbuf.liveness`  which processes live: open-file-description locks
    `ringbuf.wake`      sleeping and waking
    `ringbuf.slot_doorbells`  the doorbells of sleeping readers, rung in one call
    `ringbuf.clock`     ticks and their conversion to time
"""
