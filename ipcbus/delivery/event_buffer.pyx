# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Keeps messages for the thread that calls back; the stub has the documentation."""
cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.delivery.event_merging cimport KIND_BOS, KIND_EOS, extend, is_event, is_loss
from ipcbus.delivery.received_message cimport Message
from ipcbus.delivery.sink cimport Sink
from ipcbus.delivery.message_types import MessageType
from ringbuf.clock cimport clock_kind, ns_per_tick, read_ticks

cdef extern from "Python.h":
    void Py_DECREF(PyObject *o) noexcept
    PyObject *PyObject_CallOneArg(PyObject *callable, PyObject *argument) noexcept


# A block under `with cython.critical_section` runs no Python code and frees no object that could run some: with the GIL
# no other thread can interrupt it, and without the GIL the section keeps the other threads out.


cdef inline size_t sink_and_topic(Entry entry) noexcept:
    """Returns a key of sink and topic, nearly unique; it is a number, because making a number runs no Python."""
    return <size_t><PyObject *>entry.sink * 31 + <size_t><PyObject *>entry.message.origin


cdef void add_duration(Durations *spread, uint64_t ticks) noexcept:
    if spread.count == 0 or ticks < spread.least:
        spread.least = ticks
    if ticks > spread.greatest:
        spread.greatest = ticks
    spread.sum += ticks
    spread.count += 1


cdef object seconds(Durations *spread):
    cdef double second = 1e-9 * ns_per_tick()
    if spread.count == 0:
        return None
    return spread.least * second, spread.sum * second / spread.count, spread.greatest * second


# Trashcan: a long chain must not be freed by recursion.
@cython.final
@cython.freelist(512)
@cython.trashcan(True)
cdef class Entry:
    pass


@cython.final
cdef class Chain:
    cdef void append(self, Entry entry) noexcept:
        if self.first is None:
            self.first = entry
        else:
            self.last.next = entry
        self.last = entry

    cdef Entry pop(self):
        cdef Entry entry = self.first
        self.first = entry.next
        if self.first is None:
            self.last = None
        entry.next = None
        return entry


@cython.final
cdef class LastEvents:
    """The last loss, end and beginning of one topic that wait behind all messages."""


cdef class EventBuffer:
    def __init__(
        self, uint64_t maximum, bint drops, owner, sleepers, *, bint times_age=True, bint times_service=True,
        bint counts=True, uint64_t size_warning=0, uint64_t delay_warning_ns=0,
    ):
        self.maximum = maximum
        self.drops = drops
        self.owner = owner
        self.sleepers = sleepers
        self.messages = Chain()
        self.events = Chain()
        self.front = {}
        self.times_age = times_age
        self.times_service = times_service
        self.counts = counts
        self.size_warning = size_warning
        self.delay_warning_ns = delay_warning_ns

    def __len__(self):
        return self.size

    def is_full(self):
        if self.drops or self.closed or self.messages_waiting < self.maximum:
            return False
        self.full_reported = True
        return True

    def put(self, Sink sink, Message message):
        cdef Entry entry = Entry.__new__(Entry), dropped_entry = None
        cdef bint crosses = False, holds_event = is_event(message)
        cdef tuple key = None
        cdef LastEvents spare_events = None
        cdef dict rear = None
        if holds_event:
            key = (sink, message.origin.topic, message.origin.source)
            spare_events = LastEvents.__new__(LastEvents)
            rear = {}
        entry.sink = sink
        entry.message = message
        if self.times_age or self.delay_warning_ns:
            entry.ticks = read_ticks(clock_kind())
        with cython.critical_section(self):
            entry.number = self.arrivals
            self.arrivals += 1
            if self.closed:
                self.total += 1
                dropped_entry = entry
            else:
                if not holds_event:
                    if self.drops and self.messages_waiting >= self.maximum:
                        dropped_entry = self.drop_oldest()
                    rear, self.rear = self.rear, None
                    self.messages.append(entry)
                    self.count_in(entry)
                elif self.messages_waiting < self.maximum and self.size - self.messages_waiting < self.maximum:
                    self.events.append(entry)
                    self.count_in(entry)
                else:
                    if self.rear is None:
                        self.rear = rear
                    if not self.merges(entry, key, spare_events):
                        self.events.append(entry)
                        self.count_in(entry)
                if self.size_warning and self.size > self.size_warning and not self.size_warned:
                    crosses = self.size_warned = True
            if dropped_entry is not None:
                self.drop(dropped_entry)
        if dropped_entry is not None and dropped_entry.message.gate is not None:
            dropped_entry.message._refuse(None)     # it comes again
        if crosses:
            self.owner.size_exceeded(self.size)
        if self.sleepers:
            self.owner.wake()

    @cython.final
    cdef void count_in(self, Entry entry) noexcept:
        self.total += 1
        self.size += 1
        self.messages_waiting += not is_event(entry.message)
        self.waiting[entry.message.kind & 127] += 1
        entry.is_waiting = True

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
                    self.total -= 1
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
        self.waiting[waiting.message.kind & 127] -= 1
        extend(waiting.message, entry.message)
        self.waiting[waiting.message.kind & 127] += 1
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
                        self.total -= 1
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
    cdef void count_out(self, Entry entry) noexcept:
        entry.is_waiting = entry.withdrawn  # a withdrawn event stays in the chain; it may still be delivered
        self.messages_waiting -= not is_event(entry.message)
        self.size -= 1
        self.waiting[entry.message.kind & 127] -= 1

    @cython.final
    cdef void drop(self, Entry entry) noexcept:
        self.dropped += 1
        entry.sink.dropped += 1

    @cython.final
    cdef Entry take(self):
        """Removes and returns the oldest message or event, or None."""
        cdef Entry entry = None, event, message
        cdef bint has_room = False
        with cython.critical_section(self):
            while self.events.first is not None and self.events.first.withdrawn:
                self.pop_event()
            event, message = self.events.first, self.messages.first
            if event is not None or message is not None:
                if message is None or (event is not None and event.number < message.number):
                    entry = self.pop_event()
                else:
                    entry = self.messages.pop()
                self.count_out(entry)
                if entry.sink.silent:
                    self.drop(entry)
                else:
                    self.dispatched += 1
                if self.size_warned and self.size <= self.size_warning // 2:
                    self.size_warned = False
                # Not at the first free place: contexts continue seldom, and then with much room.
                if self.full_reported and self.messages_waiting <= self.maximum // 2:
                    self.full_reported = False
                    has_room = True
        if has_room:
            self.owner.room_available()
        return entry

    @cython.final
    cdef int note_age(self, uint64_t ticks) except -1:
        cdef double ns
        if self.times_age:
            with cython.critical_section(self):
                add_duration(&self.age_spread, ticks)
        if self.delay_warning_ns:
            ns = <double>ticks * ns_per_tick()
            if ns > self.delay_warning_ns:
                if not self.delay_warned:
                    self.delay_warned = True
                    self.owner.delay_exceeded(ns / 1e9)
            elif ns <= self.delay_warning_ns / 2:
                self.delay_warned = False
        return 0

    def call_back(self, int64_t limit_ns):
        cdef uint32_t clock = clock_kind()
        cdef uint64_t left = self.size, now = read_ticks(clock), until = 0, ended
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
            if entry.sink.silent or (entry.message.gmd_number and entry.message.gate is None):
                continue    # a guaranteed message that its source has deleted has no gate any more
            # An entry that arrived after `now` was read has not waited.
            self.note_age(now - entry.ticks if now > entry.ticks else 0)
            ran += 1
            # As in the demux: Cython's own exception frame would cost as much as half the call.
            result = PyObject_CallOneArg(<PyObject *>entry.sink.callback, <PyObject *>entry.message)
            if result == NULL:
                try:
                    entry.sink.count_raised(entry.message, self.owner)
                finally:
                    if entry.message.gate is not None:
                        entry.message.gate.dispatched(entry.message, True)
            else:
                Py_DECREF(result)
                if entry.message.gate is not None:
                    entry.message.gate.dispatched(entry.message, False)
            ended = read_ticks(clock)
            if self.times_service:
                with cython.critical_section(self):
                    add_duration(&self.service_spread, ended - now)
            now = ended
        return ran

    def close(self):
        cdef Entry messages, events
        with cython.critical_section(self):
            self.closed = True
            messages, events = self.messages.first, self.events.first
            self.messages.first = self.messages.last = self.events.first = self.events.last = self.front_last = None
            rear, self.rear = self.rear, None
        self.drop_all(messages)
        self.drop_all(events)

    @cython.final
    cdef void drop_all(self, Entry entry) noexcept:
        while entry is not None:
            if not entry.withdrawn:
                with cython.critical_section(self):
                    self.count_out(entry)
                    self.drop(entry)
            entry = entry.next

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
        return {kind: self.waiting[<int>kind] for kind in MessageType if self.counts and self.waiting[<int>kind]}

    def age(self):
        return seconds(&self.age_spread)

    def service(self):
        return seconds(&self.service_spread)
