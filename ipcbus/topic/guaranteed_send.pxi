# Guaranteed messages of a source: saved, then sent, in one order.

cdef int mode_of(TopicSource source, delivery_mode, delivery_timeout, int64_t *timeout_ns) except -1:
    """Returns the mode of a message, 0 if it is not guaranteed; sets its timeout in ns."""
    cdef int mode = source.gmd_mode
    timeout_ns[0] = source.gmd_timeout_ns
    if delivery_mode is not None:
        mode = send_modes.checked_mode(source.topic, delivery_mode, guarantees=source.saver is not None)
    if delivery_timeout is not None:
        timeout_ns[0] = send_modes.checked_timeout_ns(source.topic, delivery_timeout, guaranteed=mode != 0)
    return mode


cdef int begin_guaranteed(TopicSource source, bint block) except -1:
    """Keeps guaranteed messages of other threads out, so that GMD numbers and topic numbers have one order."""
    cdef BatchWriter batch = source.batch
    with cython.critical_section(batch):
        while True:
            while batch.gate or source.gate:
                source.pass_session_gate(block)
                source.pass_gate(block)
            if source.guaranteeing_thread == 0:
                break
            if source.guaranteeing_thread == PyThread_get_thread_ident():
                raise send_errors.sends_already(source.topic)
            source.gmd_waiters += 1
            try:
                batch.policy.wait_for_release(block, source._is_guaranteeing)
            finally:
                source.gmd_waiters -= 1
        source.guaranteed_is_put = False
        source.guaranteeing_thread = PyThread_get_thread_ident()
    return 0


cdef inline int end_guaranteed(TopicSource source) except -1:
    cdef bint waited
    with cython.critical_section(source.batch):
        source.guaranteeing_thread = 0
        waited = source.gmd_waiters != 0
    if waited:
        source.batch.policy.released()
    return 0


cdef uint64_t save_copy(TopicSource source, int mode, int64_t timeout_ns, bytes header_block, bytes value, uint64_t length) except 0:
    """Saves a message that has `length` bytes with all headers; returns its GMD number."""
    cdef uint64_t count = 1
    if source.feeds_shares and source.fragment_max == 0:
        check_kept(source, length, 1)
    if length > (source.message_max if source.fragment_max == 0 else <uint64_t>MESSAGE_MAX):
        raise send_errors.too_large(source.topic, length, source.message_max, in_fragments=source.fragment_max != 0)
    if length > source.message_max:
        count = (length + source.fragment_max - 1) // source.fragment_max
    if length > source.saver.length_max:
        raise send_errors.too_large_to_send_again(source.topic, length, source.saver.length_max)
    return source.saver.save(
        mode, timeout_ns, epoch_ns(read_ticks(clock_kind())), source.next_sequence, count,
        b"" if header_block is None else header_block, value,
    )


cdef int send_guaranteed(
    TopicSource source, data, bytes header_block, uint32_t flags, bint flush, bint block, int mode, int64_t timeout_ns
) except -1:
    """Saves a message and sends it; a message that is not sent is not saved either."""
    cdef bytes value, front
    cdef uint64_t number
    if PyBytes_CheckExact(data):
        value = data
    elif PyObject_CheckBuffer(data):
        send_errors.check_references(data, "send")
        value = bytes(data)     # the copy that is saved is the one that is sent, whatever other threads do
    else:
        raise send_errors.not_bytes(source.topic, data)
    begin_guaranteed(source, block)
    try:
        number = save_copy(
            source, mode, timeout_ns, header_block, value, PyBytes_GET_SIZE(value) + GUARANTEED_HEADER_BYTES
            + (0 if header_block is None else PyBytes_GET_SIZE(header_block)),
        )
        front = PyBytes_FromStringAndSize(<const char *>&number, GUARANTEED_HEADER_BYTES)
        if header_block is not None:
            front += header_block
        try:
            source.append_with_front(
                front, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), flags | FLAG_GUARANTEED, flush, block
            )
        finally:
            # Also a send that raised after this, in the handler of a signal for example, has put its message.
            if source.guaranteed_is_put:
                source.saver.sent(number, source.guaranteed_first, source.guaranteed_last)
            else:
                source.saver._unsave(number)
    finally:
        end_guaranteed(source)
    return 0
