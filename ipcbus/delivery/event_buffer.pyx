# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Where messages of several receivers wait for the thread that calls back; see the stub for the words."""
cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.delivery.coalesce cimport KIND_BOS, KIND_EOS, extend, is_event, is_loss
from ipcbus.delivery.received_message cimport Message
from ipcbus.delivery.sink cimport Sink
from ipcbus.delivery.message_types import MessageType
from ringbuf.clock cimport clock_kind, ns_per_tick, read_ticks

cdef extern from "Python.h":
    void Py_DECREF(PyObject *o) noexcept
    PyObject *PyObject_CallOneArg(PyObject *callable, PyObject *argument) noexcept


# What stands in `with cython.critical_section` runs no Python and frees nothing that could: with the interpreter's lock
# no other thread comes in between, and without it the section keeps the others out.


cdef inline size_t place_of(Entry entry) noexcept:
    """Tells sinks and topics apart, nearly; a number, because making one runs no Python."""
    return <size_t><PyObject *>entry.sink * 31 + <size_t><PyObject *>entry.message.origin


cdef void note(Spread *spread, uint64_t ticks) noexcept:
    if spread.count == 0 or ticks < spread.least:
        spread.least = ticks
    if ticks > spread.most:
        spread.most = ticks
    spread.sum += ticks
    spread.count += 1


cdef object seconds(Spread *spread):
    cdef double second = 1e-9 * ns_per_tick()
    if spread.count == 0:
        return None
    return spread.least * second, spread.sum * second / spread.count, spread.most * second


# Trashcan: a long chain that nobody took must not be freed by recursion.
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
cdef class Tail:
    """The last events of one topic that wait behind every message."""


cdef class EventBuffer:
    def __init__(
        self, uint64_t maximum, bint drops, keeper, sleepers, *, bint times_age=True, bint times_service=True,
        bint counts=True, uint64_t size_warning=0, uint64_t delay_warning_ns=0,
    ):
        self.maximum = maximum
        self.drops = drops
        self.keeper = keeper
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
        if self.drops or self.closed or self.data < self.maximum:
            return False
        self.room_wanted = True
        return True

    def put(self, Sink sink, Message message):
        cdef Entry entry = Entry.__new__(Entry), gone = None
        cdef bint crosses = False, rare = is_event(message)
        cdef tuple key = None
        cdef Tail spare = None
        cdef dict rear = None
        if rare:
            key = (sink, message.origin.topic, message.origin.source)
            spare = Tail.__new__(Tail)
            rear = {}
        entry.sink = sink
        entry.message = message
        if self.times_age or self.delay_warning_ns:
            entry.ticks = read_ticks(clock_kind())
        with cython.critical_section(self):
            entry.number = self.came
            self.came += 1
            if self.closed:
                self.total += 1
                gone = entry
            else:
                if not rare:
                    if self.drops and self.data >= self.maximum:
                        gone = self.drop_oldest()
                    rear, self.rear = self.rear, None
                    self.messages.append(entry)
                    self.enter(entry)
                elif self.data < self.maximum and self.size - self.data < self.maximum:
                    self.events.append(entry)
                    self.enter(entry)
                else:
                    if self.rear is None:
                        self.rear = rear
                    if not self.joins(entry, key, spare):
                        self.events.append(entry)
                        self.enter(entry)
                if self.size_warning and self.size > self.size_warning and not self.crowded:
                    crosses = self.crowded = True
            if gone is not None:
                self.drop(gone)
        if crosses:
            self.keeper.crowded(self.size)
        if self.sleepers:
            self.keeper.wake()

    @cython.final
    cdef void enter(self, Entry entry) noexcept:
        self.total += 1
        self.size += 1
        self.data += not is_event(entry.message)
        self.waiting[entry.message.kind & 127] += 1
        entry.waits = True

    @cython.final
    cdef bint joins(self, Entry entry, tuple key, Tail spare) except? True:
        """Whether an event that came to a full shelf need not wait, because one that waits tells it too now."""
        cdef Tail tail = self.rear.get(key)
        cdef Message message = entry.message
        if tail is None:
            tail = self.rear[key] = spare
        if is_loss(message):
            if tail.loss is not None and tail.loss.waits:
                if message.first_sequence == tail.loss.message.sequence + 1:
                    self.join(tail.loss, entry)
                    return True
            tail.loss = entry
        elif message.kind == KIND_EOS:
            if tail.ended is not None and tail.ended.waits and tail.begun is not None and tail.begun.waits:
                # It ended, began and ended again: what waits is one end.
                tail.ended.message.following = message.following
                if not tail.begun.void:
                    tail.begun.void = True
                    self.leave(tail.begun)
                    self.total -= 1
                return True
            tail.ended, tail.begun = entry, None
        elif message.kind == KIND_BOS:
            if tail.begun is not None and tail.begun.waits and tail.begun.void:
                tail.begun.void = False
                self.enter(tail.begun)
                return True
            tail.begun = entry
        return False

    @cython.final
    cdef void join(self, Entry waiting, Entry entry) noexcept:
        """Makes one loss that waits out of two."""
        self.waiting[waiting.message.kind & 127] -= 1
        extend(waiting.message, entry.message)
        self.waiting[waiting.message.kind & 127] += 1
        waiting.reach = max(waiting.reach, entry.message.sequence)

    @cython.final
    cdef Entry drop_oldest(self):
        """Takes the oldest message away; losses before and behind it become one where nothing else was between them."""
        cdef Entry gone, known
        self.gather()
        gone = self.messages.pop()
        self.leave(gone)
        if self.front_last is not None:
            known = self.front.get(place_of(gone))
            if known is not None and known.waits and gone.message.first_sequence == known.reach + 1:
                if known.sink is gone.sink and known.message.origin is gone.message.origin:
                    known.reach = gone.message.sequence
            self.gather()
        return gone

    @cython.final
    cdef int gather(self) except -1:
        """Finds the events that come before every message now, and joins their losses."""
        cdef Entry entry, known
        while True:
            entry = self.events.first if self.front_last is None else self.front_last.next
            if entry is None or (self.messages.first is not None and entry.number > self.messages.first.number):
                return 0
            if is_loss(entry.message):
                known = self.front.get(place_of(entry))
                if known is not None and known.waits and entry.message.first_sequence == known.reach + 1:
                    if known.sink is entry.sink and known.message.origin is entry.message.origin:
                        self.join(known, entry)
                        self.front_last.next = entry.next
                        if self.events.last is entry:
                            self.events.last = self.front_last
                        self.leave(entry)
                        self.total -= 1
                        continue
                entry.reach = entry.message.sequence
                self.front[place_of(entry)] = entry
            self.front_last = entry

    @cython.final
    cdef Entry pop_event(self):
        cdef Entry entry = self.events.pop()
        entry.waits = False
        if entry is self.front_last:
            self.front_last = None
            self.front.clear()
        return entry

    @cython.final
    cdef void leave(self, Entry entry) noexcept:
        entry.waits = entry.void  # which stays in the chain, and may be told after all
        self.data -= not is_event(entry.message)
        self.size -= 1
        self.waiting[entry.message.kind & 127] -= 1

    @cython.final
    cdef void drop(self, Entry entry) noexcept:
        self.dropped += 1
        entry.sink.dropped += 1

    @cython.final
    cdef Entry take(self):
        """The oldest message or event, or None."""
        cdef Entry entry = None, event, message
        cdef bint has_room = False
        with cython.critical_section(self):
            while self.events.first is not None and self.events.first.void:
                self.pop_event()
            event, message = self.events.first, self.messages.first
            if event is not None or message is not None:
                if message is None or (event is not None and event.number < message.number):
                    entry = self.pop_event()
                else:
                    entry = self.messages.pop()
                self.leave(entry)
                if entry.sink.silent:
                    self.drop(entry)
                else:
                    self.dispatched += 1
                if self.crowded and self.size <= self.size_warning // 2:
                    self.crowded = False
                # Not at the first free place: contexts go on seldom and with much room.
                if self.room_wanted and self.data <= self.maximum // 2:
                    self.room_wanted = False
                    has_room = True
        if has_room:
            self.keeper.made_room()
        return entry

    @cython.final
    cdef int note_age(self, uint64_t ticks) except -1:
        cdef double ns
        if self.times_age:
            with cython.critical_section(self):
                note(&self.age_spread, ticks)
        if self.delay_warning_ns:
            ns = <double>ticks * ns_per_tick()
            if ns > self.delay_warning_ns:
                if not self.late:
                    self.late = True
                    self.keeper.late(ns / 1e9)
            elif ns <= self.delay_warning_ns / 2:
                self.late = False
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
            if entry.sink.silent:
                continue
            # An entry that came after `now` was read has not waited.
            self.note_age(now - entry.ticks if now > entry.ticks else 0)
            ran += 1
            # As in the demux: Cython's own exception frame around it costs as much as half the call.
            result = PyObject_CallOneArg(<PyObject *>entry.sink.callback, <PyObject *>entry.message)
            if result == NULL:
                entry.sink.raised(entry.message, self.keeper)
            else:
                Py_DECREF(result)
            ended = read_ticks(clock)
            if self.times_service:
                with cython.critical_section(self):
                    note(&self.service_spread, ended - now)
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
            if not entry.void:
                with cython.critical_section(self):
                    self.leave(entry)
                    self.drop(entry)
            entry = entry.next

    def waiting_by_kind(self):
        return {kind: self.waiting[<int>kind] for kind in MessageType if self.counts and self.waiting[<int>kind]}

    def age(self):
        return seconds(&self.age_spread)

    def service(self):
        return seconds(&self.service_spread)
