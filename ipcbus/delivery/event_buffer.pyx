# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Keeps messages for the thread that calls back; the stub has the documentation."""
cimport cython
from cpython.object cimport PyObject
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    PyLockStatus, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_get_thread_ident,
    PyThread_release_lock, PyThread_type_lock, PY_LOCK_ACQUIRED, PY_LOCK_INTR,
)
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from ipcbus.delivery.durations cimport add_duration, seconds
from ipcbus.delivery.event_merging cimport KIND_BOS, KIND_EOS, extend, is_event, is_loss
from ipcbus.delivery.pump cimport Pump, read_timeout
from ipcbus.delivery.received_message cimport Message, Origin, bytes_of, fill_own, make_spare
from ipcbus.delivery.sink cimport MESSAGES, Arrival, QuickStore, Sink, arrival_ticks, store_has_room
from ipcbus.delivery.message_types import MessageType
from ringbuf.clock cimport clock_kind, ns_per_tick, read_ticks
from ringbuf.free_threads cimport is_sole

cdef extern from "Python.h":
    void Py_INCREF(PyObject *o) noexcept
    void Py_DECREF(PyObject *o) noexcept
    PyObject *PyObject_CallOneArg(PyObject *callable, PyObject *argument) noexcept
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long us, int returns_at_signals) noexcept nogil

cdef enum:
    REFUSED = -1            # of dispatch: Python says why

cdef double LONGEST_S = 1e9


# A block under `with cython.critical_section` runs no Python code and frees no object that could run some: with the GIL
# no other thread can interrupt it, and without the GIL the section keeps the other threads out.


include "event_chains.pxi"


cdef class EventBuffer(QuickStore):
    def __init__(
        self, uint64_t maximum, bint drops, owner, *, bint times_age=True, bint times_service=True,
        bint counts=True, uint64_t size_warning=0, uint64_t delay_warning_ns=0, uint64_t bytes_maximum=<uint64_t>-1,
    ):
        self.maximum, self.bytes_maximum = maximum, bytes_maximum
        self.drops = drops
        self.owner = owner
        self.pumps = ()
        self.messages = Chain()
        self.events = Chain()
        self.front = {}
        self.times_age = times_age
        self.times_service = times_service
        self.counts = counts
        self.size_warning = size_warning
        self.delay_warning_ns = delay_warning_ns

    def __dealloc__(self):
        free(self.inside)
        while self.spares_count:
            self.spares_count -= 1
            Py_DECREF(self.spares[self.spares_count])

    def __len__(self):
        return waiting_in(self)

    def put_pumps(self, tuple pumps):
        with cython.critical_section(self):
            before, self.pumps = self.pumps, pumps      # freed behind the section

    @property
    def total(self):
        with cython.critical_section(self):
            return self.dispatched + self.dropped + waiting_in(self)

    # ------------------------------------------------------------------ the side of the contexts

    @cython.final
    cdef bint has_no_room(self) except? True:
        if self.drops or self.closed or store_has_room(self):
            return False
        with cython.critical_section(self):
            # Looked at again: a thread that has just taken one does not know that it has to say so.
            self.full_reported = not self.closed and not store_has_room(self)
            return self.full_reported

    def is_full(self):
        return self.has_no_room()

    def put(self, Sink sink, Message message):
        self.keep(sink, message)

    @cython.final
    cdef int keep(self, Sink sink, Message message) except -1:
        cdef Entry entry = Entry.__new__(Entry)
        entry.message = message
        return self.add(sink, entry)

    @cython.final
    cdef int keep_copy(
        self, Sink sink, Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
        uint64_t send_ticks, Arrival *arrival,
    ) except -1:
        cdef Entry entry = None
        cdef bint is_kept = False, wakes = False
        with cython.critical_section(self):
            if self.spares_count:
                self.spares_count -= 1
                entry = <Entry>self.spares[self.spares_count]
                Py_DECREF(self.spares[self.spares_count])   # now `entry` refers to it
        if entry is None:
            entry = Entry.__new__(Entry)
            entry.message = Message.__new__(Message)
        fill_own(entry.message, origin, start, length, sequence, flags, send_ticks)
        # What follows is `add` for the usual case, in half the time.
        entry.sink = sink
        if self.times_age or self.delay_warning_ns:
            entry.ticks = arrival_ticks(arrival, length)
        with cython.critical_section(self):
            if (
                not self.closed and self.rear is None and self.messages_waiting < self.maximum and not self.size_warning
                and not (self.drops and self.bytes_waiting + length > self.bytes_maximum)
            ):
                entry.number = self.arrivals
                self.arrivals += 1
                self.messages.append(entry)
                self.messages_waiting += 1
                self.bytes_waiting += <uint64_t>length      # `bytes_of` it: it has no headers
                is_kept = True
                wakes = self.first_sleeper != NULL
        if wakes:
            self.wake()
        return 0 if is_kept else self.add(sink, entry)

    @cython.final
    cdef int add(self, Sink sink, Entry entry) except -1:
        cdef Message message = entry.message
        cdef Entry dropped_entry = None
        cdef bint crosses = False, wakes = False, holds_event = is_event(message)
        cdef tuple key = None
        cdef LastEvents spare_events = None
        cdef dict rear = None
        if holds_event:
            key = (sink, message.origin.topic, message.origin.source)
            spare_events = LastEvents.__new__(LastEvents)
            rear = {}
        elif self.drops:
            self.drop_for(bytes_of(message))
        entry.sink = sink
        if self.times_age or self.delay_warning_ns:
            entry.ticks = read_ticks(clock_kind())
        with cython.critical_section(self):
            entry.number = self.arrivals
            self.arrivals += 1
            if self.closed:
                dropped_entry = entry
            else:
                if not holds_event:
                    if self.drops and self.messages_waiting >= self.maximum:
                        dropped_entry = self.drop_oldest()
                    if self.rear is not None:
                        rear, self.rear = self.rear, None
                    self.messages.append(entry)
                    self.count_in(entry)
                elif self.messages_waiting < self.maximum and self.events_waiting < self.maximum:
                    self.events.append(entry)
                    self.count_in(entry)
                else:
                    if self.rear is None:
                        self.rear = rear
                    if not self.merges(entry, key, spare_events):
                        self.events.append(entry)
                        self.count_in(entry)
                if self.size_warning and waiting_in(self) > self.size_warning and not self.size_warned:
                    crosses = self.size_warned = True
            if dropped_entry is not None:
                self.drop(dropped_entry)
            wakes = self.first_sleeper != NULL
        if dropped_entry is not None:
            self.give_up(dropped_entry)
        if crosses:
            self.owner.size_exceeded(waiting_in(self))
        if wakes:
            self.wake()
        return 0

    @cython.final
    cdef int drop_for(self, size_t length) except -1:
        """Drops the oldest messages until the bytes of one of this length fit."""
        cdef Entry dropped_entry
        while True:
            with cython.critical_section(self):
                dropped_entry = None
                if self.messages_waiting and self.bytes_waiting + length > self.bytes_maximum and not self.closed:
                    dropped_entry = self.drop_oldest()
                    self.drop(dropped_entry)
            if dropped_entry is None:
                return 0
            self.give_up(dropped_entry)

    @cython.final
    cdef int give_up(self, Entry dropped_entry) except -1:
        if dropped_entry.message.gate is not None:
            dropped_entry.message._refuse(None)     # it comes again
            return 0
        return self.recycle(dropped_entry)

    @cython.final
    cdef inline void count_in(self, Entry entry) noexcept:
        if is_event(entry.message):
            self.events_waiting += 1
            entry.is_waiting = True
        else:
            self.messages_waiting += 1
            self.bytes_waiting += bytes_of(entry.message)

    @cython.final
    cdef bint merges(self, Entry entry, tuple key, LastEvents spare_events) except? True:
        """Merges an event into one that waits in a full buffer; returns whether it could."""
        cdef LastEvents last = self.rear.get(key)
        cdef Message message = entry.message
        if last is None:
            last = self.rear[key] = spare_events
        if is_loss(message):
            if last.loss is not None and last.loss.is_waiting:
                if message.first_sequence == last.loss.message.sequence + 1:
                    self.merge_losses(last.loss, entry)
                    return True
            last.loss = entry
        elif message.kind == KIND_EOS:
            if last.ended is not None and last.ended.is_waiting and last.begun is not None and last.begun.is_waiting:
                # The session ended, began and ended again: one end remains.
                last.ended.message.following = message.following
                if not last.begun.withdrawn:
                    last.begun.withdrawn = True
                    self.count_out(last.begun)
                return True
            last.ended, last.begun = entry, None
        elif message.kind == KIND_BOS:
            if last.begun is not None and last.begun.is_waiting and last.begun.withdrawn:
                last.begun.withdrawn = False
                self.count_in(last.begun)
                return True
            last.begun = entry
        return False

    @cython.final
    cdef void merge_losses(self, Entry waiting, Entry entry) noexcept:
        """Extends a waiting loss by the loss that follows it."""
        extend(waiting.message, entry.message)
        waiting.lost_up_to = max(waiting.lost_up_to, entry.message.sequence)

    @cython.final
    cdef Entry drop_oldest(self):
        """Removes the oldest message; merges the losses before and behind it where nothing else lies between them."""
        cdef Entry dropped_entry, known
        self.merge_front_events()
        dropped_entry = self.messages.pop()
        self.count_out(dropped_entry)
        if self.front_last is not None:
            known = self.front.get(sink_and_topic(dropped_entry))
            if known is not None and known.is_waiting and dropped_entry.message.first_sequence == known.lost_up_to + 1:
                if known.sink is dropped_entry.sink and known.message.origin is dropped_entry.message.origin:
                    known.lost_up_to = dropped_entry.message.sequence
            self.merge_front_events()
        return dropped_entry

    @cython.final
    cdef int merge_front_events(self) except -1:
        """Finds the events that are before all messages now, and merges their losses."""
        cdef Entry entry, known
        while True:
            entry = self.events.first if self.front_last is None else self.front_last.next
            if entry is None or (self.messages.first is not None and entry.number > self.messages.first.number):
                return 0
            if is_loss(entry.message):
                known = self.front.get(sink_and_topic(entry))
                if known is not None and known.is_waiting and entry.message.first_sequence == known.lost_up_to + 1:
                    if known.sink is entry.sink and known.message.origin is entry.message.origin:
                        self.merge_losses(known, entry)
                        self.front_last.next = entry.next
                        if self.events.last is entry:
                            self.events.last = self.front_last
                        self.count_out(entry)
                        continue
                entry.lost_up_to = entry.message.sequence
                self.front[sink_and_topic(entry)] = entry
            self.front_last = entry

    @cython.final
    cdef Entry pop_event(self):
        cdef Entry entry = self.events.pop()
        entry.is_waiting = False
        if entry is self.front_last:
            self.front_last = None
            self.front.clear()
        return entry

    @cython.final
    cdef inline void count_out(self, Entry entry) noexcept:
        if is_event(entry.message):
            entry.is_waiting = entry.withdrawn  # a withdrawn event stays in the chain; it may still be delivered
            self.events_waiting -= 1
        else:
            self.messages_waiting -= 1
            self.bytes_waiting -= bytes_of(entry.message)

    @cython.final
    cdef void drop(self, Entry entry) noexcept:
        self.dropped += 1
        entry.sink.dropped += 1

    # ------------------------------------------------------------------ the side of the threads that dispatch

    @cython.final
    cdef inline Entry take(self):
        """Removes and returns the oldest message or event, or None."""
        cdef Entry entry = None
        cdef bint has_room = False
        with cython.critical_section(self):
            while self.events.first is not None and self.events.first.withdrawn:
                self.pop_event()
            if self.events.first is not None and (
                self.messages.first is None or self.events.first.number < self.messages.first.number
            ):
                entry = self.pop_event()
            elif self.messages.first is not None:
                entry = self.messages.pop()
            if entry is not None:
                self.count_out(entry)
                if entry.sink.silent:
                    self.drop(entry)
                else:
                    self.dispatched += 1
                if self.size_warned and waiting_in(self) <= self.size_warning // 2:
                    self.size_warned = False
                # Not at the first free place: contexts continue seldom, and then with much room.
                if self.full_reported and half_is_free(self):
                    self.full_reported, has_room = False, True
        if has_room:
            self.owner.room_available()
        return entry

    @cython.final
    cdef inline int recycle(self, Entry entry) except -1:
        """Keeps an entry for the next message, if nothing else refers to the message of this one."""
        if self.spares_count >= SPARES_MAX or not is_sole(<PyObject *>entry.message) or not make_spare(entry.message):
            return 0
        entry.sink = None
        with cython.critical_section(self):
            if self.spares_count < SPARES_MAX:
                Py_INCREF(<PyObject *>entry)
                self.spares[self.spares_count] = <PyObject *>entry
                self.spares_count += 1
        return 0

    cpdef long call_back(self, int64_t limit_ns) except -1:
        cdef uint32_t clock = clock_kind()
        cdef uint64_t left = waiting_in(self), now = read_ticks(clock), until = 0, ended, age
        cdef long ran = 0
        cdef Entry entry
        cdef PyObject *result
        if limit_ns >= 0:
            until = now + <uint64_t>(<double>limit_ns / ns_per_tick())
        while left > 0 and not (ran and until and now >= until):
            left -= 1
            entry = self.take()
            if entry is None:
                break
            if entry.sink.silent or was_deleted(entry.message):
                continue
            # An entry that arrived after `now` was read has not waited.
            age = now - entry.ticks if now > entry.ticks else 0
            if self.times_age:
                with cython.critical_section(self):
                    add_duration(&self.age_spread, age)
            if self.delay_warning_ns:
                check_delay(self, age)
            ran += 1
            gate = entry.message.gate_now()     # a callback that acknowledges the message takes it away
            # As in the demux: Cython's own exception frame would cost as much as half the call.
            if entry.sink.takes == MESSAGES:
                result = PyObject_CallOneArg(<PyObject *>entry.sink.callback, <PyObject *>entry.message)
            else:
                argument = entry.sink.argument(entry.message)
                result = PyObject_CallOneArg(<PyObject *>entry.sink.callback, <PyObject *>argument)
                argument = None     # a message without other references serves again
            if result == NULL:
                try:
                    entry.sink.count_raised(entry.message, self.owner)
                finally:
                    if gate is not None:
                        gate.dispatched(entry.message, True)
            else:
                Py_DECREF(result)
                if gate is not None:
                    gate.dispatched(entry.message, False)
            ended = read_ticks(clock)
            if self.times_service:
                with cython.critical_section(self):
                    add_duration(&self.service_spread, ended - now)
            now = ended
            if gate is None:
                self.recycle(entry)
        return ran

    def dispatch(self, timeout):
        cdef uint64_t me = PyThread_get_thread_ident(), until = <uint64_t>-1, now
        cdef double seconds, tick_ns = ns_per_tick()
        cdef long ran
        if self.closed or self.forked or self.is_inside(me) or self.drives_a_context() or not read_timeout(timeout, &seconds):
            return REFUSED
        if 0 < seconds <= LONGEST_S:
            until = read_ticks(clock_kind()) + <uint64_t>(seconds * 1e9 / tick_ns)
        self.enter(me)
        try:
            while True:
                now = read_ticks(clock_kind()) if until != <uint64_t>-1 else 0
                if waiting_in(self) == 0 and seconds > 0 and now < until:
                    self.sleep(<double>(until - now) * tick_ns / 1e9 if now else LONGEST_S)
                    if self.closed:
                        return REFUSED
                    now = read_ticks(clock_kind()) if until != <uint64_t>-1 else 0
                ran = self.call_back(<int64_t>(<double>(until - min(now, until)) * tick_ns) if now else -1)
                if ran or seconds <= 0 or now >= until:
                    return ran
                if self.closed:
                    return REFUSED
        finally:
            self.leave(me)
            if waiting_in(self):    # for example after a callback raised, or the time ran out
                self.wake()

    @cython.final
    cdef bint drives_a_context(self) except? True:
        """Returns whether the calling thread drives a context that puts messages."""
        with cython.critical_section(self):
            pumps = self.pumps
        for each in pumps:
            pump = each()
            if pump is not None and (<Pump>pump).drives():
                return True
        return False

    cpdef bint is_inside(self, uint64_t thread):
        cdef bint found = False
        cdef size_t i
        with cython.critical_section(self):
            for i in range(self.inside_count):
                found = found or self.inside[i] == thread
        return found

    @cython.final
    cdef int enter(self, uint64_t thread) except -1:
        """Notes that a thread dispatches."""
        cdef uint64_t *grown
        cdef bint fits = False
        with cython.critical_section(self):
            if self.inside_count == self.inside_room:
                grown = <uint64_t *>realloc(self.inside, (self.inside_room + 8) * sizeof(uint64_t))
                if grown != NULL:
                    self.inside = grown
                    self.inside_room += 8
            if self.inside_count < self.inside_room:
                self.inside[self.inside_count] = thread
                self.inside_count += 1
                fits = True
        if not fits:
            raise MemoryError()
        return 0

    @cython.final
    cdef void leave(self, uint64_t thread) noexcept:
        cdef size_t i
        with cython.critical_section(self):
            for i in range(self.inside_count):
                if self.inside[i] == thread:
                    self.inside_count -= 1
                    self.inside[i] = self.inside[self.inside_count]
                    break

    @cython.final
    cdef int sleep(self, double seconds) except -1:
        """Sleeps until a wake-up, at most for these seconds, unless something waits."""
        cdef Sleeper *sleeper = <Sleeper *>malloc(sizeof(Sleeper))
        cdef long long us = <long long>(seconds * 1e6) + 1
        cdef PyLockStatus status = PY_LOCK_INTR
        cdef bint sleeps = False, has_bell
        if sleeper == NULL:
            raise MemoryError()
        sleeper.bell = PyThread_allocate_lock()
        if sleeper.bell == NULL:
            free(sleeper)
            raise MemoryError()
        PyThread_acquire_lock(sleeper.bell, 0)
        sleeper.next = NULL
        sleeper.waits = True
        try:
            with cython.critical_section(self):
                # A thread that puts a message looks for sleepers afterwards, so one of both threads sees the other.
                sleeps = waiting_in(self) == 0 and not self.closed
                if self.first_sleeper == NULL:
                    self.first_sleeper = sleeper
                else:
                    self.last_sleeper.next = sleeper
                self.last_sleeper = sleeper
                self.sleepers += 1
            if sleeps:
                with nogil:
                    status = PyThread_acquire_lock_timed(sleeper.bell, us, 1)
                if status == PY_LOCK_INTR:
                    PyErr_CheckSignals()    # the caller waits again
        finally:
            with cython.critical_section(self):
                has_bell = sleeper.waits or status == PY_LOCK_ACQUIRED
                if sleeper.waits:
                    self.unlink(sleeper)
            if has_bell:
                PyThread_release_lock(sleeper.bell)
            PyThread_free_lock(sleeper.bell)
            free(sleeper)
        return 0

    @cython.final
    cdef void unlink(self, Sleeper *sleeper) noexcept:
        """Takes a sleeper out of the list."""
        cdef Sleeper *before = NULL
        cdef Sleeper *each = self.first_sleeper
        while each != sleeper:
            before, each = each, each.next
        if before == NULL:
            self.first_sleeper = sleeper.next
        else:
            before.next = sleeper.next
        if self.last_sleeper == sleeper:
            self.last_sleeper = before
        self.sleepers -= 1
        sleeper.waits = False

    @cython.final
    cdef void wake(self) noexcept:
        """Wakes the thread that has slept longest."""
        cdef Sleeper *sleeper
        with cython.critical_section(self):
            sleeper = self.first_sleeper
            if sleeper != NULL:
                self.unlink(sleeper)
                PyThread_release_lock(sleeper.bell)     # inside: afterwards its thread frees it

    # ------------------------------------------------------------------ the rest

    def close(self):
        cdef Chain messages = Chain.__new__(Chain), events = Chain.__new__(Chain)
        with cython.critical_section(self):
            self.closed = True
            self.messages, messages = messages, self.messages
            self.events, events = events, self.events
            self.front_last = None
            rear, self.rear = self.rear, None
        while self.first_sleeper != NULL:
            self.wake()
        self.drop_all(messages)
        self.drop_all(events)

    @cython.final
    cdef void drop_all(self, Chain chain) noexcept:
        cdef Entry entry
        while chain.first is not None:
            entry = chain.pop()
            if not entry.withdrawn:
                with cython.critical_section(self):
                    self.count_out(entry)
                    self.drop(entry)

    def waiting_of(self, Sink sink):
        cdef list found = []
        cdef Entry entry
        with cython.critical_section(self):
            entry = self.messages.first
            while entry is not None:
                if entry.sink is sink:
                    found.append(entry.message)
                entry = entry.next
        return found

    def waiting_by_kind(self):
        cdef uint64_t[KINDS] waiting
        with cython.critical_section(self):
            count_kinds(self.messages.first, self.events.first, waiting)
        return {kind: waiting[<int>kind] for kind in MessageType if self.counts and waiting[<int>kind]}

    def age(self):
        return seconds(&self.age_spread)

    def service(self):
        return seconds(&self.service_spread)


include "event_delays.pxi"
