# Messages for threads that pull which do not go through the queue as copies: rows of an array, and leases.


cdef long fill_rows(Demux demux, Controller controller, long limit) noexcept:
    """Puts the next messages of the datagram into rows, while each of them fits a row; returns how many.

    `poll` would do the same one message at a time; here the counters change once for all of them.
    """
    cdef Sink sink = controller.single_sink
    cdef const MessageHeader *header = <const MessageHeader *>demux.cursor
    cdef uint64_t sequence = controller.expected, length, body
    cdef char *row
    cdef long count = 0
    cdef uint32_t word
    if sink.closed:
        return 0
    length = <uint64_t>sink.row_bytes
    row = sink.rows + sink.row_next * sink.row_bytes
    limit = min(limit, sink.row_count - sink.row_next)
    while count < limit and demux.end - <const char *>header >= MESSAGE_HEADER_BYTES:
        word = header.topic
        body = body_bytes(<uint32_t>length, word)
        if (
            word & ~<uint32_t>STAMPED != controller.topic_number or header.length != length
            or _atomics.load_relaxed64(&header.sequence) != sequence
            or <int64_t>body > demux.end - <const char *>header - MESSAGE_HEADER_BYTES
        ):
            break
        memcpy(row, <const char *>header + MESSAGE_HEADER_BYTES, length)
        header = <const MessageHeader *>(<const char *>header + stride(body))
        row += length
        sequence += 1
        count += 1
    if count:
        demux.cursor = <const char *>header
        controller.expected = sequence
        demux.messages += count
        sink.row_next += count
        sink_count(sink, count, count * length)
    return count


cdef bint lease_in_place(
    Demux demux, Sink sink, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
) except -1:
    """Queues a message that stays in its place in the ring; returns False where it has to be a copy."""
    cdef LeasedMessage message
    if demux.lender is None or sink.queue.count or sink.event_queue is not None:
        return False
    message = LeasedMessage.__new__(LeasedMessage)
    message.origin, message.lender, message.lent = controller.origin, demux.lender, True
    message.start, message.length = <const char *>header + MESSAGE_HEADER_BYTES, length
    message.sequence = message.first_sequence = sequence
    message.flags = flags_of(word)
    message.send_ticks, message.published_ticks = demux.sent_ticks(header, length, word), demux.published_ticks
    demux.hold(message)
    sink.queue.set_in_place(message)
    sink.enqueue(message)
    demux.stop = True   # the next one waits in the ring for the next lease
    demux.blocked = not sink.queue.leasing  # and nothing else is read until then
    return True
