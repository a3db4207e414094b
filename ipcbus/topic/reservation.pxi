# Writing a message in place.


cdef class Reservation:
    """A place in the ring for one message; a context manager that gives a writable memoryview."""
    def __enter__(self):
        cdef TopicSource source = self.source
        cdef BatchWriter batch = source.batch
        cdef uint64_t front = GUARANTEED_HEADER_BYTES * (self.mode != 0)
        if self.length + front > source.message_max:
            if source.feeds_shares:
                check_kept(source, self.length + front, 1)
            raise send_errors.too_large_in_place(
                source.topic, self.length, source.message_max, in_fragments=source.fragment_max != 0, front=front
            )
        if self.mode:
            begin_guaranteed(source, True)
        try:
            with cython.critical_section(batch):
                self.begin(batch, front)
        except BaseException:
            if self.mode:
                end_guaranteed(source)
            raise
        return self.view

    @cython.final
    cdef int begin(self, BatchWriter batch, uint64_t front) except -1:
        cdef char *place = self.source.place(batch, self.length + front, True, True)
        batch.gate |= GATE_RESERVED
        batch.reserving_thread = PyThread_get_thread_ident()
        batch.reservation = self
        try:
            self.loan = batch.lender.lend(place + MESSAGE_HEADER_BYTES + front, self.length)
            if self.loan is None:
                self.private_memory = memoryview(bytearray(self.length))
            self.view = PyMemoryView_FromObject(self.loan if self.loan is not None else self.private_memory)
        except BaseException:
            batch.end_reservation(True)
            batch.policy.released()
            raise
        return 0

    def __exit__(self, kind, error, trace):
        cdef TopicSource source = self.source
        try:
            with cython.critical_section(source.batch):
                self.leave(kind is None)
        finally:
            if self.mode:
                end_guaranteed(source)

    @cython.final
    cdef int leave(self, bint sends) except -1:
        cdef BatchWriter batch = self.source.batch
        cdef uint64_t front = GUARANTEED_HEADER_BYTES * (self.mode != 0)
        cdef char *place
        try:
            self.view.release()
        except BufferError:
            pass  # an array that was made from it is still in use
        try:
            if self.loan is not None:
                self.loan.settle()
        except BaseException:
            sends = False
            raise
        finally:
            if not batch.gate & GATE_FORKED and batch.reservation is self:
                place = batch.w.data + (batch.w.head & batch.w.mask) + batch.w.used + MESSAGE_HEADER_BYTES
                if sends and self.private_memory is not None:
                    copy_message(
                        place + front, <const char *>PyMemoryView_GET_BUFFER(self.private_memory).buf, self.length,
                        batch.w.past_caches_from,
                    )
                try:
                    if sends and self.mode:
                        sends = False
                        self.save(place)
                        if batch.reservation is not self:   # another thread closed the source during the copy
                            self.source.saver._unsave(self.number)
                            raise send_errors.cancelled(self.source.topic)
                        sends = True
                finally:
                    # The copy of a guaranteed message may have let other threads run, but none could send.
                    if batch.reservation is self:
                        batch.end_reservation(not sends)
                    if sends:
                        self.send(place - MESSAGE_HEADER_BYTES, front)
                    batch.policy.released()
            elif sends and not batch.gate & GATE_FORKED:
                raise send_errors.cancelled(self.source.topic)
        return 0

    @cython.final
    cdef int save(self, char *place) except -1:
        """Saves a guaranteed message, and writes its GMD number before its value."""
        self.number = save_copy(
            self.source, self.mode, self.timeout_ns, None, PyBytes_FromStringAndSize(place + GUARANTEED_HEADER_BYTES, self.length),
            self.length + GUARANTEED_HEADER_BYTES,
        )
        memcpy(place, &self.number, GUARANTEED_HEADER_BYTES)
        return 0

    @cython.final
    cdef int send(self, char *place, uint64_t front) except -1:
        cdef TopicSource source = self.source
        source.put(source.batch, place, self.length + front, FLAG_GUARANTEED * (self.mode != 0), True)
        if self.mode:
            source.note_put(source.next_sequence - 1)
        try:
            batch_publish_at(source.batch, source.sent_ticks)
        finally:
            if self.mode:
                source.saver.sent(self.number, source.guaranteed_first, source.guaranteed_last)
        return 0
