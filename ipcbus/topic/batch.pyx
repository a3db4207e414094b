# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The open datagram of a session; the stub has the documentation."""
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

cimport cython

from ipcbus.errors import ReservationError, SegmentDamaged, WrongProcess
from ipcbus.topic import send_errors
from ipcbus.wire._wire_layout cimport STAMP_NS, TopicLine
from ipcbus.wire.stamps cimport put_stamp
from ringbuf cimport _atomics
from ringbuf._layout cimport RECORD_HEADER
from ringbuf.clock cimport monotonic_ns, ns_per_tick
from ringbuf.lending cimport Lender
from ringbuf.ring cimport VIRTUAL_CLOCK, RingWriter, Writer, aligned, writer_drop_empty, writer_ticks
from ringbuf.slot_doorbells cimport SlotDoorbells

cdef enum:
    BURST_NS = 200_000
    BURST_BEGINS = 8  # datagrams that follow another one before the next are filled: a few in a row do not wait
    BURST_MAX = 64  # the highest count of such datagrams
    FILL_NS = 10_000_000  # longest time for which a datagram of a burst waits to be filled
    HELD_BYTES = 122_880  # fragments that a transport over sockets gets in one go
    FAST_NS = 50_000  # datagrams that follow each other within this time are a fast burst
    FAST_MAX = 512  # the highest count of datagrams of a fast burst
    FAST_PART = 64  # a transport gets a sixty-fourth of the datagrams that a fast burst has had in one go
    FAST_BYTES = 57_344  # and at most these bytes, with the last datagram on top: UDP sends up to 65,000 bytes as one
    WATCHED_NS = 30_000_000  # time since its last look for which the timer is trusted to look again soon


cdef class BatchWriter:
    def __init__(
        self, RingWriter ring, policy, published, *, uint64_t minimum_length, uint64_t datagram_max, uint32_t topics_max,
        uint64_t topics_offset, int64_t interval_ns=0, uint64_t burst_length=0,
    ):
        self.record_limit = RECORD_HEADER + aligned(datagram_max)
        if self.record_limit > ring.w.record_max or topics_max & (topics_max - 1):
            raise ValueError(
                f"datagrams of {datagram_max} bytes do not fit records of {ring.w.record_max}, or {topics_max} topics are not a "
                "power of two; change one of them"
            )
        self.ring = ring
        self.w = &ring.w
        self.lender = Lender(ring.ring, ring.w.data - ring.ring.base, True)
        self.policy = policy
        self.published = published
        self.doorbells = published if isinstance(published, SlotDoorbells) else None
        self.minimum_length = self.usual_length = minimum_length
        self.burst_length = burst_length if burst_length > minimum_length > 0 else 0
        self.interval_ns = interval_ns
        self.stamps_messages = minimum_length != 0
        self.stamps_per_tick = self.ns_per_tick() / STAMP_NS
        self.datagram_max = datagram_max
        self.topics_max = topics_max
        self.lines = <TopicLine *>(ring.ring.base + topics_offset)
        self.record_number = 1
        # A pair for each line, and one for a fragment that is not the last of its message: a record has at most one.
        self.publish_pairs = <uint64_t **>malloc((topics_max + 1) * sizeof(uint64_t *))
        self.line_records = <uint64_t *>calloc(topics_max, sizeof(uint64_t))
        if self.publish_pairs == NULL or self.line_records == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.publish_pairs)
        free(self.line_records)

    @cython.final
    cdef int pass_gate(self, str topic, bint block) except -1:
        while self.gate:
            if self.gate & GATE_FORKED:
                raise WrongProcess(
                    f"the source of topic {topic!r} belongs to the parent of this forked process; make a new "
                    "Context in the child"
                )
            if self.gate & GATE_DAMAGED:
                raise SegmentDamaged(
                    f"topic {topic!r}: the shared memory of its session was cut short by another program; close the "
                    "sources of the session and make new ones"
                )
            if self.gate & GATE_CLOSED:
                raise send_errors.closed(topic, with_context=True)
            if self.reserving_thread == PyThread_get_thread_ident():
                raise ReservationError(
                    f"topic {topic!r}: this thread is inside an acquire() block on the same session; leave the "
                    "block before the next send, or send from a source with another transport_*_id"
                )
            self.policy.wait_for_release(block, self.is_shut)
        return 0

    @cython.final
    cdef double ns_per_tick(self) noexcept:
        return 1.0 if self.w.clock == VIRTUAL_CLOCK else ns_per_tick()

    @cython.final
    cdef void note_wait(self, uint64_t now) noexcept:
        """Adds the time that the messages of the open record have waited for publication."""
        cdef Writer *w = self.w
        cdef uint64_t longest = now - w.open_ticks
        cdef double ns_per_tick = self.ns_per_tick()
        self.wait_ticks_sum += w.messages * longest - self.sent_ticks_sum
        self.sent_ticks_sum = 0
        if w.messages and longest > self.longest_wait:
            self.longest_wait = longest
        self.stamps_per_tick = ns_per_tick / STAMP_NS
        if self.publication_stamp != NULL:
            put_stamp(self.publication_stamp, longest, self.stamps_per_tick)
        _atomics.store_relaxed64(&w.header.batch_wait_ns, <uint64_t>(<double>self.wait_ticks_sum * ns_per_tick))
        _atomics.store_relaxed64(&w.header.batch_wait_max, <uint64_t>(<double>self.longest_wait * ns_per_tick))

    @cython.final
    cdef void note_burst(self, uint64_t now) noexcept:
        """Sets how long the next datagram is to be, and how many bytes the transport gets in one go.

        In a burst, a datagram that is not full costs as much as one that is; in a fast one, several cost as much as one.
        """
        cdef double ns_per_tick = self.ns_per_tick()
        # Negative where another thread published meanwhile.
        cdef double since_ns = <double>(<int64_t>(now - self.published_ticks)) * ns_per_tick
        cdef bint follows = since_ns < BURST_NS
        self.burst_ticks = <uint64_t>(BURST_NS / ns_per_tick)
        if follows:
            self.following = min(self.following + 1, BURST_MAX)
        else:  # a stream that only paused need not begin again
            self.following = self.following // 2 if since_ns < FILL_NS else 0
        self.minimum_length = self.burst_length if follows and self.following >= BURST_BEGINS else self.usual_length
        self.published_ticks = now
        self.fast_bytes = 0
        if since_ns >= FAST_NS:
            self.in_fast_burst = self.in_fast_burst // 2 if self.following else 0
            return
        self.in_fast_burst = min(self.in_fast_burst + 1, FAST_MAX)
        # While a callback lasts, or no thread drives the context, nothing would end the wait of what is held back.
        if <double>(<int64_t>(now - self.looked_ticks)) * ns_per_tick < WATCHED_NS:
            self.fast_bytes = min(FAST_BYTES, self.in_fast_burst // FAST_PART * self.burst_length)

    @cython.final
    cdef int tell(self, uint64_t parked, bint may_wait) except -1:
        """Tells the readers in these slots about what is published.

        Not yet where fragments of the same message follow, or where the record may wait and a fast burst goes on.
        """
        cdef uint64_t hold_bytes = HELD_BYTES if self.holds else self.fast_bytes if may_wait else 0
        if self.w.head - self.told_at < hold_bytes and not self.watched:
            self.held |= parked
            return 0
        # First: other threads may publish during the call.
        parked |= self.held
        self.held, self.holds, self.told_at = 0, False, self.w.head
        self.published(parked)
        self.go_on()
        return 0

    @cython.final
    cdef void go_on(self) noexcept:
        """Begins to measure the gap before the next datagram: time that the session itself took does not count."""
        if self.burst_length:
            self.published_ticks = writer_ticks(self.w)

    @cython.final
    cdef int tell_held(self) except -1:
        """Tells the readers about what `tell` has kept from them; returns whether there was any."""
        self.holds = False
        if not self.held:
            return 0
        self.tell(0, False)
        return 1

    @cython.final
    cdef int watch_held(self) except -1:
        """Has the timer tell the readers what `tell` has kept from them, in case that the burst ends."""
        if not (self.holds or (self.timer_runs and self.burst_watched)):
            self.ask_timer()
        return 0

    @cython.final
    cdef int ask_timer(self) except -1:
        self.timer_runs = self.burst_watched = True
        self.policy.batch_opened()
        return 0

    def flush(self):
        with cython.critical_section(self):
            return self.publish_open()

    @cython.final
    cdef bint publish_open(self) except -1:
        """Publishes the open record unless it is empty or reserved, and tells the readers about all that is published.

        It returns whether there was anything to publish or to tell. The caller has the lock.
        """
        if self.gate & (GATE_RESERVED | GATE_FORKED):
            return False
        if self.w.used:
            writer_drop_empty(self.w)
        if not self.w.used:
            return self.tell_held()
        batch_publish(self)
        return True

    def watch(self, published):
        with cython.critical_section(self):
            before = self.published     # freed behind the section
            self.published, self.watched = published, True

    def go_back(self, uint64_t message_max, uint64_t messages):
        with cython.critical_section(self):
            self.ring.go_back(message_max, messages)

    def watch_burst(self, bint goes_on):
        with cython.critical_section(self):
            self.looked_ticks = writer_ticks(self.w)
            self.burst_watched = self.minimum_length > self.usual_length and (goes_on or self.held or waits_to_be_filled(self))
            return FILL_NS if self.burst_watched else None

    def end_timer(self):
        with cython.critical_section(self):
            self.timer_runs = self.w.used != 0 or self.held != 0
            return not self.timer_runs

    @cython.final
    cdef void count_explicit(self, int more) noexcept:
        with cython.critical_section(self):
            self.explicit_batches += more

    @cython.final
    cdef int64_t age_ns(self, uint64_t now_ticks) noexcept:
        return <int64_t>(<double>(<int64_t>(now_ticks - self.w.open_ticks)) * self.ns_per_tick())

    @cython.final
    cdef int explicit_batch_ended(self) except -1:
        """Publishes an explicit batch at its end if it is old: the timer would wait for another interval."""
        with cython.critical_section(self):
            if not (self.explicit_batches or self.gate) and self.w.used and self.interval_ns:
                if self.age_ns(writer_ticks(self.w)) >= self.interval_ns:
                    batch_publish(self)
        return 0

    def flush_older(self, uint64_t now_ticks, int64_t age_ns, int64_t explicit_ns=0):
        with cython.critical_section(self):
            return self.publish_older(now_ticks, age_ns, explicit_ns)

    @cython.final
    cdef int64_t publish_older(self, uint64_t now_ticks, int64_t age_ns, int64_t explicit_ns) except? -3:
        cdef int64_t age
        cdef bint held = self.explicit_batches != 0
        self.tell_held()
        if not self.w.used or self.gate:
            return -1
        age = self.age_ns(now_ticks)
        if waits_to_be_filled(self):
            age_ns = min(age_ns, FILL_NS)
        if not held and age < age_ns:
            return age_ns - age
        if held and not (explicit_ns and age >= explicit_ns):
            # At its end a new datagram may begin, so the next check comes after an interval at the latest.
            return max(1, min(age_ns - age if age < age_ns else age_ns, explicit_ns - age if explicit_ns else age_ns))
        self.publish_open()
        return -2 if held else -1

    def send_infos(self, sources):
        with cython.critical_section(self):
            return self.put_infos(sources)

    @cython.final
    cdef object put_infos(self, sources):
        cdef uint64_t before = self.infos_sent
        if self.gate or self.explicit_batches:
            return 0
        for source in sources:
            if not source._put_info():
                break
        # Publishing in between may have let another thread send; then the open datagram is that thread's.
        if self.w.used and self.infos_sent != before and not self.gate:
            batch_publish(self)
        return self.infos_sent - before

    cdef int end_reservation(self, bint cancelled) except -1:
        # The caller has the lock.
        self.gate &= ~GATE_RESERVED
        self.reserving_thread = 0
        self.reservation = None
        if cancelled:
            writer_drop_empty(self.w)
        return 0

    def finish_reservation(self, int64_t timeout_ns):
        with cython.critical_section(self):
            self.await_reservation(timeout_ns)

    @cython.final
    cdef int await_reservation(self, int64_t timeout_ns) except -1:
        cdef int64_t until = <int64_t>monotonic_ns + timeout_ns
        while self.gate & GATE_RESERVED and not self.gate & GATE_FORKED:
            if self.reserving_thread == PyThread_get_thread_ident():
                if self.reservation is None:
                    return 0    # a signal handler closes inside a send
                until = 0       # inside its own block
            if self.reservation is not None and <int64_t>monotonic_ns >= until:
                # The block goes on, but what it writes does not come into the ring.
                self.lender.replace_pages()
                self.end_reservation(True)
                self.policy.released()
                break
            self.policy.wait_for_release(True, self.is_shut)
        self.publish_open()
        return 0

    def is_shut(self):
        return self.gate != 0

    def close(self):
        with cython.critical_section(self):
            self.gate |= GATE_CLOSED

    @property
    def damaged(self):
        return bool(self.gate & GATE_DAMAGED)

    def mark_damaged(self):
        with cython.critical_section(self):
            self.gate |= GATE_DAMAGED

    def fork_child(self):
        self.gate |= GATE_FORKED    # a child has one thread
        self.lender.replace_pages()    # the child may be inside the block
