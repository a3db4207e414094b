# Messages that wait for too long before an event queue calls back.

cdef int check_delay(EventBuffer buffer, uint64_t ticks) except -1:
    """Says when a message has waited for too long, once until waits are short again."""
    cdef double ns = <double>ticks * ns_per_tick()
    if ns > buffer.delay_warning_ns:
        if not buffer.delay_warned:
            buffer.delay_warned = True
            buffer.owner.delay_exceeded(ns / 1e9)
    elif ns <= buffer.delay_warning_ns / 2:
        buffer.delay_warned = False
    return 0
