# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Rings the doorbells of sleeping readers; the stub has the documentation."""
cimport cython
from libc.stdint cimport uint64_t

from ringbuf cimport _atomics
from ringbuf._layout cimport Slot
from ringbuf.answer_wait cimport AnswerWait
from ringbuf.ring cimport RingWriter, Writer

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void *bytes, size_t count)

cdef extern from "<sched.h>" nogil:
    int sched_yield()


cdef class SlotDoorbells:
    def __init__(self, RingWriter writer not None, ring_slowly, AnswerWait answers=None):
        self.writer, self.ring_slowly, self.answers = writer, ring_slowly, answers
        self.abandon()

    def put(self, unsigned slot, uint64_t context_id, int fd):
        if slot >= min(self.writer.w.slots_max, <unsigned>SLOTS_MAX):
            raise ValueError(f"slot {slot} does not exist; the ring has slots 0 to {self.writer.w.slots_max - 1}")
        with cython.critical_section(self):
            self.fds[slot], self.contexts[slot] = fd, context_id

    def forget(self):
        cdef int ringing
        self.close_all()
        while True:
            with cython.critical_section(self):
                ringing = self.ringing
            if not ringing:
                return
            with nogil:
                sched_yield()

    def abandon(self):
        self.close_all()
        self.ringing = 0

    cdef void close_all(self) noexcept:
        cdef unsigned slot
        with cython.critical_section(self):
            for slot in range(<unsigned>SLOTS_MAX):
                self.fds[slot] = -1

    cpdef int ring(self, uint64_t mask) except -1:
        cdef Writer *w = &self.writer.w
        cdef const Slot *slots = <const Slot *>w.slots
        cdef uint64_t parked = _atomics.and64(&w.control.parked, ~mask) & mask
        cdef int rung = 0
        cdef unsigned slot
        for slot in range(min(w.slots_max, <unsigned>SLOTS_MAX)):
            if not parked >> slot:
                break
            if parked >> slot & 1:
                rung += self.ring_one(slot, _atomics.load_acquire64(&slots[slot].context_id)) or bool(self.ring_slowly(slot))
        self.writer.count_wakes(rung)
        if rung and self.answers is not None:
            self.answers.rung()
        return rung

    @cython.final
    cdef inline bint ring_one(self, unsigned slot, uint64_t context_id) noexcept:
        """Rings a doorbell that is open; returns False without one."""
        cdef int fd = -1
        with cython.critical_section(self):
            if self.contexts[slot] == context_id:
                fd = self.fds[slot]
            self.ringing += fd >= 0
        if fd < 0:
            return False
        # Other threads run meanwhile: the call takes as long as the other processor takes to wake up. `forget` waits for
        # `ringing`, as the number could belong to another file after it.
        with nogil:
            write(fd, b"d", 1)  # doorbell.DATA; if the FIFO is full, its owner is being woken already
        with cython.critical_section(self):
            self.ringing -= 1
        return True

    def __call__(self, uint64_t mask):
        return self.ring(mask)
