# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The loop over the sessions of a context; the stub has the documentation."""
cimport cython
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport uint32_t, uint64_t

from ipcbus.delivery.demux cimport Demux
from ringbuf cimport _atomics
from ringbuf.clock cimport clock_kind, ns_per_tick, read_ticks
from ringbuf.poller cimport Poller

cdef enum:
    CAUGHT_UP_PAUSES = 100
    MESSAGES_PER_PASS_MIN = 16
    MESSAGES_PER_PASS_MAX = 1024

cdef double QUICK_S = 0.0002
cdef double LONG_PASS_NS = 2e6
# A ready reader may give nothing, as with a datagram that contradicts itself; after this many passes Python runs.
cdef long FRUITLESS_MAX = 64


cdef class Pump:
    def __init__(self):
        self.demuxes = []
        self.poller = Poller()
        self.messages_per_pass = MESSAGES_PER_PASS_MIN
        self.long_pass = <uint64_t>(LONG_PASS_NS / ns_per_tick())

    def set_timer(self, uint64_t delay_ns):
        self.timer_ticks = read_ticks(clock_kind()) + <uint64_t>(<double>delay_ns / ns_per_tick())

    def quick(self, double timeout, uint64_t loops):
        cdef uint32_t clock = clock_kind()
        cdef uint64_t now = read_ticks(clock), until
        cdef long total
        if not self.quick_allowed or self.owner or self.driver_waiting or now >= self.timer_ticks:
            return 0
        until = min(self.timer_ticks, now + <uint64_t>(min(timeout, QUICK_S) * 1e9 / ns_per_tick()))
        self.owner = PyThread_get_thread_ident()
        try:
            total = 0 if self.poller.any_word_changed() else self.loop(now, until, loops if timeout > 0 else 0, True)
            if total == 0 and self.look is not None and self.poller.any_word_changed():
                total = self.look()
        finally:
            self.owner = 0
        if self.pending_error is not None:
            error, self.pending_error = self.pending_error, None
            raise error
        # Sessions that need attention get it in the next call.
        return total

    def word_changed(self):
        return self.poller.any_word_changed()

    def watch(self, demuxes, words=()):
        cdef Demux demux
        self.demuxes = list(demuxes)
        for each in self.demuxes:
            demux = <Demux?>each
            demux.watched = not demux.blocked
        self.poller.watch([demux.ring for demux in self.demuxes if demux.watched], words)

    def run(self, uint64_t timeout_ns, uint64_t loops, bint once):
        cdef uint64_t now = read_ticks(clock_kind())
        return self.loop(now, now + <uint64_t>(<double>timeout_ns / ns_per_tick()), loops, once)

    @cython.final
    cdef long loop(self, uint64_t began, uint64_t until, uint64_t loops, bint once) except -1:
        cdef uint32_t clock = clock_kind()
        cdef uint64_t now
        cdef Poller poller = self.poller
        cdef long total = 0, handled, taken, fruitless = 0
        cdef bint ready
        cdef Demux demux
        cdef int k
        if self.pending_error is not None:
            return 0
        while True:
            handled = taken = 0
            for each in self.demuxes:
                demux = <Demux>each
                if demux.blocked:
                    # The poller must not look at this ring any more, as it would always find it ready.
                    if demux.watched:
                        self.attention = True
                    continue
                handled += demux.poll(self.messages_per_pass)
                taken += demux.taken
                if demux.attention or demux.blocked or demux.wakes_writer:
                    self.attention = True
                if self.pending_error is not None:
                    return total + handled
            total += handled
            if taken > 1:
                # In a stream, a reader close behind the writer takes each cache line from it; some distance helps both.
                for k in range(CAUGHT_UP_PAUSES):
                    _atomics.pause()
            # Messages that no receiver wants now, or that a late join brings later, have to leave the ring as fast.
            if taken:
                now = read_ticks(clock)
                if began:
                    self.adapt(taken, now - began)
                began = now
            if self.attention or poller.poked or (once and total) or poller.any_word_changed():
                poller.poked = 0
                return total
            if taken:
                fruitless = 0
                if now >= until:
                    return total
                continue
            fruitless += 1
            if loops == 0 or fruitless > FRUITLESS_MAX:
                return total
            with nogil:
                ready = poller.wait(loops, until, clock)
            if not ready:
                return total
            began = 0  # unknown: reading the clock again would slow down each message that was waited for

    @cython.final
    cdef void adapt(self, long taken, uint64_t ticks) noexcept:
        """Limits a pass to the messages that callbacks handle in a short time.

        Timers, other sessions and the readers of counters wait for the end of a pass.
        """
        if ticks > self.long_pass:
            self.messages_per_pass = max(1, <long>(<double>taken * <double>self.long_pass / <double>ticks))
        elif taken >= self.messages_per_pass and self.messages_per_pass < MESSAGES_PER_PASS_MAX:
            self.messages_per_pass *= 2
