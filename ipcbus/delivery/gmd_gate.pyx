# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Stands between the delivery controller of a topic and a named receiver; the stub has the documentation."""
from libc.stdint cimport uint64_t

cimport cython

import contextlib
from collections import deque

from ipcbus.delivery.demux cimport Controller
from ipcbus.delivery.event_merging cimport is_event
from ipcbus.delivery.received_message cimport Message, Origin, resent_copy
from ipcbus.delivery.sink cimport Sink
from ipcbus.wire.control_front cimport EntryFront
from ipcbus.wire.resent_entries cimport ResentEntries


# Acknowledgements come from any thread: what they change is changed in a critical section of the gate, which calls no
# Python code.


@cython.final
@cython.no_gc_clear
cdef class AckAtTheEnd:
    """Acknowledges a message when nothing refers to it any more."""
    def __dealloc__(self):
        if self.gate is not None:
            self.gate.note_ack(self.number)

    def cancel(self):
        with cython.critical_section(self):
            self.gate = None


cdef class ShortWay:
    cdef bint acknowledge(self, uint64_t first, uint64_t last, uint64_t next_number) except? True:
        raise NotImplementedError


cdef class GmdGate:
    def __init__(self, Sink target not None, Controller controller, keeper, failures, *, bint auto_ack=True,
                 bint acks_at_the_end=False, uint64_t unrecorded_max=64, Pump pump=None):
        self.pump = pump
        self.target, self.controller, self.keeper, self.failures = target, controller, keeper, failures
        self.auto_ack = auto_ack and not acks_at_the_end
        self.acks_at_the_end = auto_ack and acks_at_the_end
        self.unrecorded_max = unrecorded_max
        self.other_acks, self.refusals, self.in_rows = deque(), deque(), deque()
        # A receiver that pulls gets messages that own their bytes, and stops the session while it has no room.
        self.sink = Sink(self.take, 1, self if target.pulls else None)
        self.sink.owner = target.owner

    # ------------------------------------------------------------------ what the controller gives to `sink`

    def take(self, Message message not None):
        if is_event(message):
            self.keeper.take_event(message)
        elif not self.is_open or (message.gmd_number and message.gmd_number != self.next_number):
            self.keeper.take(message)
        elif message.gmd_number:
            self.next_number += 1
            self.pass_message(message)
        else:
            self.target.take(message, self.failures)

    def put(self, Sink sink, Message message):
        self.take(message)

    def is_full(self):
        return not self.target.closed and self.target.is_full_now()

    # ------------------------------------------------------------------ what the keeper gives

    def deliver(self, Message message not None):
        if is_event(message):
            self.target.event(message, self.failures)
        elif message.gmd_number:
            self.pass_message(message)
        else:
            self.target.take(message, self.failures)

    def deliver_resent(self, ResentEntries entries not None, Origin origin, uint64_t opening, *, bint without_limit=False):
        cdef Sink target = self.target
        cdef const EntryFront *front
        cdef uint64_t count = 0
        while without_limit or not (target.pulls and not target.closed and target.is_full_now()):
            front = entries.take()
            if front is NULL:
                break
            count += 1
            self.pass_message(resent_copy(origin, front, opening))
        return count

    def withdraw(self, uint64_t first, uint64_t last):
        cdef Message message
        queue, event_queue = self.target.queue, self.target.event_queue
        for each in list(queue) if event_queue is None else event_queue.waiting_of(self.target):
            message = <Message>each
            if first <= message.gmd_number <= last and message.withdraw(self):
                if event_queue is None:
                    with contextlib.suppress(ValueError):   # another thread has taken it
                        queue.remove(message)

    def take_acks(self):
        cdef uint64_t first, last
        with cython.critical_section(self):
            first, last = self.first_acked, self.last_acked
            self.first_acked = self.last_acked = 0
            self.awaits_flush = False
            others = self.other_acks
            found = [(first, last)] if first else []
            while others:
                number = others.popleft()
                found.append((number, number))
            for first, last in found:
                self.taken += last - first + 1
        return found

    def note_recorded(self):
        with cython.critical_section(self):
            self.taken = 0

    def take_refusals(self):
        found = []
        with cython.critical_section(self):
            while self.refusals:
                found.append(self.refusals.popleft())
        return found

    # ------------------------------------------------------------------ to the receiver, and back

    @cython.final
    cdef int pass_message(self, Message message) except -1:
        """Gives a guaranteed message to the receiver; acknowledges it after the callback, if the options say so."""
        cdef Sink target = self.target
        cdef AckAtTheEnd at_the_end
        cdef uint64_t errors = target.callback_errors
        cdef Py_ssize_t rows = target.row_next
        if target.closed:
            return 0    # it stays pending
        if self.controller is None or self.controller.single_sink is not self.sink:
            message = message.copy()    # other receivers must not acknowledge this one's message
        message.gate = self
        message.has_sender = True
        if self.acks_at_the_end:
            at_the_end = AckAtTheEnd.__new__(AckAtTheEnd)
            at_the_end.gate, at_the_end.number = self, message.gmd_number
            message.ack_at_the_end = at_the_end
        self.delivered += 1
        target.take(message, self.failures)
        if target.pulls:
            if target.row_next != rows:
                message.take_gate()
                if self.acks_at_the_end:
                    at_the_end.cancel()
                if self.auto_ack or self.acks_at_the_end:   # no call acknowledges a row by hand
                    self.in_rows.append(message.gmd_number)
        elif target.callback_errors != errors:
            message._refuse(None)
        elif self.auto_ack and message.take_gate() is not None:
            self.note_ack(message.gmd_number)
        if self.awaits_flush and self.unrecorded() >= self.unrecorded_max:
            if not self.flush_in_order():
                self.keeper.flush()
        return 0

    @cython.final
    cdef uint64_t unrecorded(self) except? 0:
        """Returns how many acknowledged messages the area may not have recorded."""
        with cython.critical_section(self):
            return self.taken + len(self.other_acks) + (self.last_acked - self.first_acked + 1 if self.first_acked else 0)

    def acknowledge(self, uint64_t number):
        if self.unrecorded() >= self.unrecorded_max:
            self.make_room(1)
        self.note_ack(number)

    def make_room(self, uint64_t count):
        # Other threads may acknowledge more before this one goes on. An area that refuses acknowledges nothing anyway.
        while self.unrecorded() and self.unrecorded() + count > self.unrecorded_max:
            if not self.keeper.flush_from_any_thread():
                break

    def refuse(self, Message message not None, delay_ns):
        self.note_refusal(message, delay_ns)

    def dispatched(self, Message message not None, bint failed):
        if failed:
            message._refuse(None)
        elif self.auto_ack:
            message.ack()
        self.make_room(1)   # for the message that is dispatched next

    def acknowledge_rows(self):
        while True:
            with cython.critical_section(self):
                number = self.in_rows.popleft() if self.in_rows else None
            if number is None:
                return
            self.acknowledge(number)

    @cython.final
    cdef int note_ack(self, uint64_t number) except -1:
        with cython.critical_section(self):
            if self.first_acked == 0:
                self.first_acked = self.last_acked = number
            elif number == self.last_acked + 1:
                self.last_acked = number
            else:
                self.other_acks.append(number)
        return self.flush_soon()

    @cython.final
    cdef int note_refusal(self, Message message, delay_ns) except -1:
        with cython.critical_section(self):
            self.refusals.append((message, delay_ns))
        return self.flush_soon()

    @cython.final
    cdef int flush_soon(self) except -1:
        cdef bint is_first
        with cython.critical_section(self):
            is_first, self.awaits_flush = not self.awaits_flush, True
        if is_first:
            if self.short_way is None or self.pump is None or not self.pump.at_pass_end(self):
                self.keeper.flush_soon()
        return 0

    @cython.final
    cdef bint flush_in_order(self) except? True:
        """Has the run of acknowledgements taken in the short way; returns False if the keeper has to."""
        cdef uint64_t first, last
        cdef bint is_recorded
        with cython.critical_section(self):
            first, last = self.first_acked, self.last_acked
            if first == 0 or self.short_way is None or self.other_acks or self.refusals:
                return False
            # Taken before the call, in which another thread may acknowledge more.
            self.first_acked = self.last_acked = 0
            self.awaits_flush = False
            self.taken += last - first + 1
        is_recorded = self.short_way.acknowledge(first, last, self.next_number)
        with cython.critical_section(self):
            self.taken -= last - first + 1
            if is_recorded:
                return True
            if self.first_acked == last + 1:
                self.first_acked = first
            elif self.first_acked == 0:
                self.first_acked, self.last_acked = first, last
            else:
                self.other_acks.extend(range(first, last + 1))
            self.awaits_flush = True
        return False

    cdef int pass_ends(self) except -1:
        if self.awaits_flush and not self.flush_in_order():
            self.keeper.flush_soon()
        return 0
