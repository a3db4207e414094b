"""Lock-free rings in shared memory: one writer, many readers, variable-length records.

This package is the ground floor. It knows bytes, records, positions and who is alive;
it knows nothing of topics, messages or contexts.

The way in:
    `ringbuf.layout`    every shared byte, described once
    `ringbuf.segment`   creating, opening and removing shared objects
    `ringbuf.memory`    mappings that outlive whoever still looks at them
    `ringbuf.ring`      `RingWriter`, `RingReader`
    `ringbuf.slots`     who reads: claiming, joining, leaving, reclaiming
    `ringbuf.liveness`  who is alive: open-file-description locks
    `ringbuf.wake`      sleeping and waking
    `ringbuf.clock`     ticks and their conversion to time
"""
