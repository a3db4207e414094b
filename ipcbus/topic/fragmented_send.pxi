# Messages that are longer than a datagram: all of their fragments, or none. The caller is in a critical section of the batch.

cdef int check_kept(TopicSource source, uint64_t length, uint64_t pieces) except -1:
    """Refuses a message of so many pieces that a source with shares cannot keep until a member has acknowledged it."""
    cdef uint64_t kept = pieces * RETAINED_HEADER_BYTES + aligned(length)
    if pieces > 1:
        kept += pieces * FRAGMENT_HEADER_BYTES
    if kept > source.retained.size_limit:
        raise send_errors.too_large_for_shares(source.topic, length, kept, source.retained.size_limit)
    return 0


cdef int append_fragments(
    TopicSource source, bytes front, const char *data, uint64_t length, uint32_t flags, bint flush, bint block
) except -1:
    """Sends a message as fragments: all of them, or none if it must not wait."""
    cdef BatchWriter batch = source.batch
    cdef uint64_t fragments
    cdef bint exclusive
    if source.fragment_max == 0 or length > MESSAGE_MAX:
        if source.feeds_shares and length <= MESSAGE_MAX:
            check_kept(source, length, 1)
        raise send_errors.too_large(source.topic, length, source.message_max, in_fragments=source.fragment_max != 0)
    fragments = (length + source.fragment_max - 1) // source.fragment_max
    while True:
        # In the loop, because the first member of a share may join during a wait.
        if source.feeds_shares:
            check_kept(source, length, fragments)
        if batch.gate or source.gate:
            source.pass_session_gate(block)
            source.pass_gate(block)
            continue
        exclusive = batch.policy.begin_fragments(
            length + fragments * (RECORD_HEADER + MESSAGE_HEADER_BYTES + FRAGMENT_HEADER_BYTES + batch.w.trailing_bytes), block, source
        )
        if not (batch.gate or source.gate):
            break
    source.gate |= SOURCE_FRAGMENTING
    if exclusive:
        # No other thread may take the room that was found.
        batch.gate |= GATE_RESERVED
        batch.reserving_thread = PyThread_get_thread_ident()
    try:
        put_fragments(
            source, front, data, length, aligned((length + fragments - 1) // fragments), flags | FLAG_FRAGMENT, flush,
            GATE_RESERVED if exclusive else 0,
        )
        return batch.tell_held()
    finally:
        batch.holds = False
        source.gate &= ~SOURCE_FRAGMENTING
        if exclusive:
            batch.gate &= ~GATE_RESERVED
            batch.reserving_thread = 0
        batch.policy.released()


cdef int put_fragments(
    TopicSource source, bytes front, const char *data, uint64_t length, uint64_t piece, uint32_t flags, bint flush,
    int own_gates,
) except -1:
    """Puts a message as pieces of one length, the last at most as long: UDP sends a run of equal datagrams in one go.

    The message counts as a whole for implicit batching: its last fragment does not wait because it is short itself.
    """
    cdef BatchWriter batch = source.batch
    cdef uint64_t offset = 0, part_length, first = source.next_sequence
    cdef FragmentHeader *header
    cdef char *place
    cdef bint last, is_long = length >= batch.usual_length
    while offset < length:
        batch.holds = True
        part_length = min(length - offset, piece)
        last = offset + part_length == length
        # Members of a share can only work off a message that is complete, so SOURCE_HELD does not stop it half-way.
        place = source.reserve_slowly(FRAGMENT_HEADER_BYTES + part_length, flush and last, True, SOURCE_FRAGMENTING | SOURCE_HELD, own_gates)
        header = <FragmentHeader *>(place + MESSAGE_HEADER_BYTES)
        header.first = first
        header.offset = <uint32_t>offset
        header.total = <uint32_t>length
        copy_part(
            place + MESSAGE_HEADER_BYTES + FRAGMENT_HEADER_BYTES, front, data, offset, part_length, batch.w.past_caches_from
        )
        offset += part_length
        # `put` counts the bytes of each fragment; the bytes of the message count with the last one.
        source.bytes_sent += (length if last else 0) - (FRAGMENT_HEADER_BYTES + part_length)
        source.put(batch, place, FRAGMENT_HEADER_BYTES + part_length, flags, flush and last)
        count_fragment(source, last)
        if last and flags & FLAG_GUARANTEED:
            source.note_put(first)
        source.publish_if_complete(batch, last and (flush or (is_long and not batch.explicit_batches)))
    return 0


cdef void count_fragment(TopicSource source, bint last) noexcept:
    """Counts the fragment just put, before its datagram is published; only the last one makes a message."""
    cdef BatchWriter batch = source.batch
    cdef Writer *w = batch.w
    _atomics.store_relaxed64(&w.header.fragments_sent, w.header.fragments_sent + 1)
    if last:
        _atomics.store_relaxed32(&source.line.msgs_fragmented, source.line.msgs_fragmented + 1)
        return
    w.sent_messages -= 1  # publication adds one for each message header
    _atomics.store_relaxed64(&source.line.continued_next, source.line.continued_next + 1)
    batch.publish_pairs[batch.publish_pair_count] = &source.line.continued_next
    batch.publish_pair_count += 1
