# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The loop over the sessions of a context; the stub has the documentation."""
cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.long cimport PyLong_CheckExact
from cpython.pythread cimport PyThread_get_thread_ident
from libc.errno cimport EINTR, errno
from libc.math cimport HUGE_VAL, NAN
from libc.stdint cimport uint32_t, uint64_t
from posix.unistd cimport read, write

from ipcbus.delivery.demux cimport Demux, has_nothing
from ipcbus.delivery.linger cimport epoll_event, epoll_wait
from ipcbus.delivery.linger import for_network, for_rings
from ipcbus.delivery.sink cimport Sink
from ringbuf cimport _atomics
from ringbuf.clock cimport clock_kind, ns_per_tick, read_ticks
from ringbuf.poller cimport Poller
from ringbuf.wake cimport barrier

cdef extern from "Python.h":
    double PyLong_AsDouble(object o) noexcept
    void PyErr_Clear() noexcept

cdef enum:
    CAUGHT_UP_PAUSES = 100
    MESSAGES_PER_PASS_MIN = 16
    MESSAGES_PER_PASS_MAX = 1024

    CLOSED_BIT = 1
    HURRIED_BIT = 2
    URGENT_BIT = 4
    GUESTS_BIT = 8
    TASKS_BIT = 16
    DESCRIPTOR_BIT = 32
    NETWORK_BIT = 64
    EVENTS_BIT = 128
    SPLIT_DESCRIPTOR_BIT = 256
    OWN_THREAD_BIT = 512
    # Of the others, the own thread and guests wait and keep no other thread from driving; tasks, guests, the descriptor and the
    # network get their part of a turn.
    PYTHON_BITS = CLOSED_BIT | HURRIED_BIT | URGENT_BIT | EVENTS_BIT | SPLIT_DESCRIPTOR_BIT
    LOCK_BITS = URGENT_BIT | GUESTS_BIT | OWN_THREAD_BIT

    DOORBELL_BYTES = 4096
    EVENTS_MAX = 8
    UNFENCED_MS = 1         # longest sleep where a source may not see that this context sleeps
    LONGEST_MS = 3600_000

cdef double SLICE_S = 0.01
cdef double LONGEST_S = 1e9
cdef double DONE = -1
cdef double LONG_PASS_NS = 2e6
# What a thread pulls is copied: of long messages only so many that the memory of those before is taken again. The C library
# gives more of it back to the system, and new pages cost three times as much as the copy.
cdef double LONG_PULL_NS = 2e5
cdef double HEAR_NS = 2e4       # between two looks at the descriptors of a context that is driven all the time
cdef double NETWORK_HEAR_NS = 3e3   # where sessions run over the network, as no ring tells of a packet
cdef double NETWORK_READ_NS = 5e4   # between two reads of sockets that wait for room in the rings
# A ready reader may give nothing, as with a datagram that contradicts itself; after this many passes Python runs.
cdef long FRUITLESS_MAX = 64

CLOSED, HURRIED, URGENT, GUESTS, TASKS = CLOSED_BIT, HURRIED_BIT, URGENT_BIT, GUESTS_BIT, TASKS_BIT
DESCRIPTOR, NETWORK, EVENTS, SPLIT_DESCRIPTOR = DESCRIPTOR_BIT, NETWORK_BIT, EVENTS_BIT, SPLIT_DESCRIPTOR_BIT
OWN_THREAD = OWN_THREAD_BIT


cdef bint read_timeout(object timeout, double *seconds) noexcept:
    """Reads a timeout in seconds, infinity for None; returns False for what only Python can check."""
    if timeout is None:
        seconds[0] = HUGE_VAL
    elif PyFloat_Check(timeout):
        seconds[0] = PyFloat_AS_DOUBLE(timeout)
        if seconds[0] != seconds[0]:
            return False
    elif PyLong_CheckExact(timeout):
        seconds[0] = PyLong_AsDouble(timeout)
        if seconds[0] == -1:
            PyErr_Clear()   # too large for a float, or a plain -1
            return False
    else:
        return False
    if seconds[0] > LONGEST_S:
        seconds[0] = HUGE_VAL
    return True


cdef class PassEnd:
    cdef int pass_ends(self) except -1:
        raise NotImplementedError


@cython.final
cdef class Pump:
    def __init__(self, wake_waiters=None, uint64_t loops=1, bint spins=False, bint split=False, uint64_t linger_ns=0):
        self.demuxes, self.ending = [], []
        self.poller, self.words = Poller(), []
        self.wake_waiters = wake_waiters
        self.loops, self.spins = loops, spins
        self.linger, self.network_linger = for_rings(linger_ns), for_network(linger_ns)
        self.split = self.quiet = split
        # A guest of a split context may wait to call back in its own thread; others wait for messages, which any thread may read.
        self.python_bits = PYTHON_BITS | GUESTS_BIT if split else PYTHON_BITS
        self.epoll_fd = -1
        self.messages_per_pass = MESSAGES_PER_PASS_MIN
        self.long_pass = <uint64_t>(LONG_PASS_NS / ns_per_tick())
        self.long_pull = <uint64_t>(LONG_PULL_NS / ns_per_tick())
        self.hear_ticks = <uint64_t>(HEAR_NS / ns_per_tick())
        self.network_ticks = <uint64_t>(NETWORK_HEAR_NS / ns_per_tick())
        self.network_slice = <uint64_t>(NETWORK_READ_NS / ns_per_tick())

    # ------------------------------------------------------------------ the driver

    @property
    def owner(self):
        return _atomics.load_acquire64(&self.driver)

    def take(self):
        return bool(_atomics.cas64(&self.driver, 0, PyThread_get_thread_ident()))  # SYNC driver

    cpdef bint take_if_free(self) noexcept:
        return not _atomics.load_acquire64(&self.wanted) & URGENT_BIT and _atomics.cas64(
            &self.driver, 0, PyThread_get_thread_ident()
        )

    cdef bint drives(self) noexcept:
        """Returns whether the calling thread is the driver."""
        return _atomics.load_relaxed64(&self.driver) == PyThread_get_thread_ident()

    cdef bint may_deliver(self) noexcept:
        """Returns whether the calling thread is the driver of a context that is not closed."""
        return self.drives() and not _atomics.load_acquire64(&self.wanted) & CLOSED_BIT

    def give_back(self):
        self.leave()

    def reset(self):
        if not self.drives():
            _atomics.store_release64(&self.driver, 0)

    def want(self, uint64_t reasons):
        _atomics.or64(&self.wanted, reasons)  # SYNC driver

    def unwant(self, uint64_t reasons):
        _atomics.and64(&self.wanted, ~reasons)

    def wants(self, uint64_t reasons):
        return bool(_atomics.load_acquire64(&self.wanted) & reasons)

    def note_guest(self):
        _atomics.store_relaxed64(&self.guest_ticks, read_ticks(clock_kind()))

    def forget_guest(self):
        _atomics.store_relaxed64(&self.guest_ticks, 0)

    def ns_since_guest(self):
        return <uint64_t>(<double>(read_ticks(clock_kind()) - _atomics.load_relaxed64(&self.guest_ticks)) * ns_per_tick())

    def set_timer(self, uint64_t delay_ns, uint64_t look_delay_ns=<uint64_t>-1, uint64_t early_delay_ns=<uint64_t>-1):
        cdef uint64_t now = read_ticks(clock_kind())
        # A product may exceed 64 bits; a year is as good as for ever.
        _atomics.store_relaxed64(&self.timer_ticks, now + <uint64_t>(min(<double>delay_ns, 3e16) / ns_per_tick()))
        delay_ns = min(delay_ns, early_delay_ns)
        _atomics.store_relaxed64(&self.early_ticks, now + <uint64_t>(min(<double>delay_ns, 3e16) / ns_per_tick()))
        delay_ns = min(delay_ns, look_delay_ns)
        _atomics.store_relaxed64(&self.due_ticks, now + <uint64_t>(min(<double>delay_ns, 3e16) / ns_per_tick()))

    def sleep_on(self, int epoll_fd, int bell_fd, int kick_fd, arm, answer):
        self.epoll_fd, self.bell_fd, self.kick_fd = epoll_fd, bell_fd, kick_fd
        self.arm, self.answer = arm, answer

    def needs_python(self):
        return self.must_stop() or (not self.spins and self.epoll_fd < 0)

    # ------------------------------------------------------------------ turns

    def turn(self, timeout):
        cdef double seconds, left
        cdef long handled = 0
        if not read_timeout(timeout, &seconds):
            return NAN
        left = self.drive(seconds, None, &handled)
        if handled == 0 and left >= 0:
            return left
        # What Python has to do besides a delivery waits for the next call.
        return handled

    cdef int leave(self) except -1:
        """Ends the turns of the calling thread as the driver."""
        _atomics.exchange64(&self.driver, 0)  # SYNC driver
        if _atomics.load_acquire64(&self.wanted) & LOCK_BITS and self.wake_waiters is not None:
            self.wake_waiters()
        return 0

    cdef double drive(
        self, double seconds, Sink sink, long *handled, long most=0, bint rows=False, bint copies_all=False
    ) except? -2:
        """Delivers messages until there is one, or until Python has to run a turn.

        Args:
            seconds: the longest wait; 0 or less does not wait.
            sink: waits for a message in the queue of this sink; None for any message.
            handled: is increased by the number of messages delivered.
            most: the most messages of a session in a pass, for a thread that pulls; 0 for callbacks.
            rows: waits for a row of this sink, or a message in its queue; takes what is there until the rows are full.
            copies_all: copies all long messages that are there, not only a few.

        Returns:
            The seconds that are left, 0 or more, when Python has to go on; below 0 when the call is done.
        """
        cdef uint64_t now, me = PyThread_get_thread_ident()
        cdef double left
        if _atomics.load_acquire64(&self.wanted) & self.python_bits or self.attention or self.pending_error is not None:
            return max(seconds, 0)
        now = read_ticks(clock_kind())
        if now >= _atomics.load_relaxed64(&self.due_ticks):
            return max(seconds, 0)
        if not _atomics.cas64(&self.driver, 0, me):  # SYNC driver
            return max(seconds, 0)
        self.last_guest, self.quiet, self.copies_all = me, False, copies_all
        error = None
        self.slept = False
        try:
            if rows:
                sink.open_rows()
            left = self.wait(now, seconds, sink, handled, most, rows)
            if self.pending_error is not None:
                error, self.pending_error = self.pending_error, None
        finally:
            try:
                if self.asleep:
                    self.wake_up()
                if _atomics.load_acquire64(&self.wanted) & DESCRIPTOR_BIT:
                    self.make_readable(True)
                elif self.armed:
                    self.disarm()
                if self.channels_armed and not self.slept and not self.armed:
                    self.disarm_channels()
            finally:
                if rows:
                    sink.rows_open = False  # the next driver must not fill them
                self.quiet, self.copies_all = self.split, False
                self.leave()
        if error is not None:
            raise error
        return left

    cdef double wait(self, uint64_t now, double seconds, Sink sink, long *handled, long most, bint rows) except? -2:
        cdef uint32_t clock = clock_kind()
        cdef double tick_s = ns_per_tick() / 1e9
        cdef uint64_t began = now, began_sleep, due, until = <uint64_t>-1, slice = <uint64_t>(SLICE_S / tick_s)
        cdef long more
        if seconds > 0 and seconds <= LONGEST_S:
            until = now + <uint64_t>(seconds / tick_s)
        _atomics.store_relaxed64(&self.guest_ticks, now)
        while True:
            if _atomics.load_acquire64(&self.wanted) & NETWORK_BIT:
                slice = self.network_slice
                if not self.asleep and now - self.heard_at >= self.network_ticks:
                    now = self.hear_network(now)
            due = _atomics.load_relaxed64(&self.due_ticks)
            more = self.loop(now, min(until, due, now + slice), self.loops if seconds > 0 else 0, True, most)
            if more == 0 and self.look is not None and self.poller.stuck:
                more = self.look()
                self.poller.stuck = self.poller.any_word_changed()
            if self.asleep:
                if self.wake_up(more > 0) and more == 0:  # a message first
                    now = read_ticks(clock)
                    continue    # what the sockets have brought is in the rings
            elif self.rung and more == 0:
                self.answer_heard()
            elif self.armed and now - self.heard_at >= self.hear_ticks:
                self.heard_at = now
                self.hear(0)
                self.answer_heard()
            handled[0] += more
            if more:
                self.wake_tasks()
            if rows and sink.row_next:
                # Python finds the rest if it has something to do first.
                return 0 if self.fill_rows(sink) else DONE
            if seconds <= 0:
                # With nothing to report, Python goes on at once.
                return 0 if more == 0 and self.must_stop() else DONE
            now = read_ticks(clock)
            _atomics.store_relaxed64(&self.guest_ticks, now)
            if (more if sink is None else <long>sink.queue.count) or now >= until:
                return DONE
            if self.must_stop() or now >= due or (not self.spins and self.epoll_fd < 0):
                return HUGE_VAL if seconds > LONGEST_S else max(0, seconds - <double>(now - began) * tick_s)
            if self.spins:
                PyErr_CheckSignals()
                continue
            # The sources of an armed context ring for each record.
            if self.linger.longest and not self.armed and (
                self.spin_at_network(now, min(until, due))
                if slice == self.network_slice
                else self.linger.spin(self.poller, now, min(until, due))
            ):
                now = read_ticks(clock)
                if slice != self.network_slice:
                    continue
            else:
                began_sleep = now
                self.sleep(now, min(until, _atomics.load_relaxed64(&self.timer_ticks)))
                now = read_ticks(clock)
                if not self.kicked:     # a kick does not say when messages come
                    (self.network_linger if slice == self.network_slice else self.linger).slept(now - began_sleep)
            # No descriptor was readable, or it is answered: only the timers are due as before.
            _atomics.store_relaxed64(&self.due_ticks, min(_atomics.load_relaxed64(&self.early_ticks), now + <uint64_t>(SLICE_S / tick_s)))

    cdef long fill_rows(self, Sink sink) except -1:
        """Takes what is there until the rows are full; returns above 0 if there may be more."""
        cdef uint64_t now
        cdef long more = 1
        while more and sink.rows_open and sink.row_next < sink.row_count:
            now = read_ticks(clock_kind())
            if self.must_stop() or now >= _atomics.load_relaxed64(&self.due_ticks):
                return more
            more = self.loop(now, now, 0, True, 0)
            self.wake_tasks()
        return 0

    cdef int wake_tasks(self) except -1:
        if _atomics.load_acquire64(&self.wanted) & (TASKS_BIT | GUESTS_BIT) and self.delivered is not None:
            self.delivered()
        return 0

    cdef int sleep(self, uint64_t now, uint64_t until) except -1:
        """Sleeps until a wake-up or a time, unless there is something to do; `wake_up` has to follow."""
        cdef double ms = <double>(until - now) * ns_per_tick() / 1e6 if until > now else 0
        cdef int timeout_ms = <int>min(ms + 1, LONGEST_MS)
        cdef bint calm = True
        self.asleep = self.slept = True
        self.poller.arm(True)
        if self.poller.words_count:
            self.channels_armed = True
            calm = self.arm(True)
        if self.fences and not barrier():  # SYNC park
            timeout_ms = min(timeout_ms, UNFENCED_MS)
        if not calm or self.poller.any_ready() or self.poller.any_word_changed() or self.must_stop():
            return 0
        return self.hear(timeout_ms)

    cdef int hear(self, int timeout_ms) except -1:
        """Waits for a wake-up; `answer_heard` has to follow."""
        cdef epoll_event events[EVENTS_MAX]
        cdef int count
        if timeout_ms == 0:
            count = epoll_wait(self.epoll_fd, events, EVENTS_MAX, 0)
        else:
            with nogil:
                count = epoll_wait(self.epoll_fd, events, EVENTS_MAX, timeout_ms)
        if count < 0 and errno == EINTR:
            PyErr_CheckSignals()
        self.note(events, count)
        return 0

    cdef bint spin_at_network(self, uint64_t now, uint64_t until) except -1:
        """Looks at the descriptors and the rings for a moment, where that pays; returns whether there may be something to do."""
        cdef epoll_event events[EVENTS_MAX]
        cdef int count = 0
        if not self.network_linger.look(self.poller, self.epoll_fd, events, EVENTS_MAX, &count, now, until):
            return False
        self.note(events, count)
        self.answer_heard()
        return True

    cdef void note(self, const epoll_event *events, int count) noexcept:
        cdef int i
        for i in range(count):
            if events[i].data.fd == self.bell_fd:
                self.rung = True
            elif events[i].data.fd == self.kick_fd:
                self.kicked = True
            else:
                self.readable = True

    cdef uint64_t hear_network(self, uint64_t now) except 0:
        """Has the sockets read if they are readable; returns the ticks now. What they bring is in the rings then."""
        self.heard_at = now
        self.hear(0)
        if self.made_room and self.room_awaited and now - self.read_at >= self.network_slice:
            self.readable = True    # what waits for room in a ring may wait without a readable socket
        if self.readable:
            self.read_at, self.made_room = now, False
        self.answer_heard()
        return read_ticks(clock_kind())

    cdef int wake_up(self, bint later=False) except -1:
        """Shows that this context is awake, and answers what it has heard; returns whether it has read the sockets.

        `later` leaves the doorbell to an idle turn.
        """
        self.asleep = False
        self.disarm()
        if later and not (self.kicked or self.readable or _atomics.load_acquire64(&self.wanted) & DESCRIPTOR_BIT):
            return 0
        return self.answer_heard()

    cdef int disarm(self) except -1:
        self.armed = False
        self.poller.arm(False)
        return 0

    cdef int disarm_channels(self) except -1:
        """Shows the other sides of control channels that this context is awake.

        This waits for a turn without a sleep, because a message that ends a sleep must not wait for it. Until then a call of
        another side rings the doorbell in vain.
        """
        self.channels_armed = False
        self.arm(False)
        return 0

    cdef int answer_heard(self) except -1:
        cdef char heard[DOORBELL_BYTES]
        cdef ssize_t length = 0, i
        cdef bint readable = self.readable, rare = readable
        if self.kicked:
            self.kick_waits = False
            read(self.kick_fd, heard, 8)
        if self.rung:
            if self.armed:
                self.disarm()   # a source that rings shows this context as awake, so it has to be armed anew
            length = max(0, read(self.bell_fd, heard, DOORBELL_BYTES))
            for i in range(length):
                rare = rare or heard[i] != c"d"     # doorbell.DATA
        self.rung = self.kicked = self.readable = False
        if rare:
            self.answer(heard[:length], readable)
        return readable

    def arm_descriptor(self):
        self.kick_waits = self.armed = False
        self.make_readable(False)

    def disarm_descriptor(self):
        if self.armed and self.take_if_free():
            try:
                self.disarm()
            finally:
                self.leave()

    cdef int make_readable(self, bint for_python) except -1:
        """Makes the descriptor readable if there is something to do, and otherwise as soon as there is.

        Args:
            for_python: what only Python does counts too; a session that waits for room counts no longer after Python's turn.
        """
        cdef uint64_t one = 1
        cdef bint full = self.poller.any_ready()
        cdef bint busy = full or self.poller.any_word_changed() or (for_python and self.must_stop())
        if not busy and not self.armed:
            if self.kick_waits:
                self.kicked = True
                self.answer_heard()
            self.poller.arm(True)
            if self.poller.words_count:
                self.channels_armed = True
                busy = not self.arm(True)
            self.armed = True
            if self.fences:
                barrier()  # SYNC park
            full = self.poller.any_ready()
            busy = busy or full or self.poller.any_word_changed() or (for_python and self.must_stop())
        if busy and not self.kick_waits:
            write(self.kick_fd, &one, sizeof(one))
            self.kick_waits = True
        if full and self.armed:
            self.disarm()  # it is readable, so that the sources need not ring
        return 0

    cdef bint must_stop(self) noexcept:
        """Returns whether Python has to run a turn, whatever the time."""
        return (
            _atomics.load_acquire64(&self.wanted) & self.python_bits or self.attention or self.pending_error is not None
            or self.poller.stuck
        )

    @property
    def stuck(self):
        return self.poller.stuck

    def watch(self, demuxes, words=(), bint fences=True):
        cdef Demux demux
        cdef bint was_armed = self.armed
        self.armed, self.fences = False, fences
        self.demuxes = list(demuxes)
        for each in self.demuxes:
            demux = <Demux?>each
            demux.watched = not demux.blocked
        self.words = list(words)
        self.poller.watch([demux.ring for demux in self.demuxes if demux.watched], self.words)
        if was_armed:
            self.poller.arm(False)

    def run(self, uint64_t timeout_ns, uint64_t loops, bint once):
        cdef uint64_t now = read_ticks(clock_kind())
        return self.loop(now, now + <uint64_t>(<double>timeout_ns / ns_per_tick()), loops, once, 0)

    cdef bint at_pass_end(self, PassEnd what) except? True:
        """Has something called at the end of the pass; returns False if the calling thread makes no pass now."""
        if not self.passing or not self.drives():
            return False
        self.ending.append(what)
        return True

    cdef int end_pass(self) except -1:
        ending, self.ending = self.ending, []
        for each in ending:
            (<PassEnd>each).pass_ends()
        return 0

    cdef long loop(self, uint64_t began, uint64_t until, uint64_t loops, bint once, long pulled) except -1:
        cdef uint32_t clock = clock_kind()
        cdef uint64_t now
        cdef Poller poller = self.poller
        cdef long total = 0, handled, taken, frames, fruitless = 0
        cdef bint ready, called_back
        cdef Demux demux
        cdef int k
        if self.pending_error is not None:
            return 0
        while True:
            handled = taken = 0
            self.passing, called_back = True, False
            for each in self.demuxes:
                demux = <Demux>each
                if has_nothing(demux):
                    continue
                if demux.blocked:
                    # The poller must not look at this ring any more, as it would always find it ready.
                    if demux.watched:
                        self.attention = True
                    continue
                handled += demux.poll(min(self.messages_per_pass, pulled) if pulled else self.messages_per_pass, self.copies_all)
                taken += demux.taken
                called_back = called_back or demux.called_back
                if demux.attention or demux.blocked or demux.wakes_writer:
                    self.attention = True
                if self.pending_error is not None:
                    break
            self.passing = False
            if self.ending:
                self.end_pass()
            frames = poller.take_words(self.words) if self.pending_error is None else 0
            total += handled + frames
            if self.pending_error is not None:
                return total
            if taken > 1 and called_back:
                # In a stream, a reader close behind the writer takes each cache line from it; some distance helps both.
                for k in range(CAUGHT_UP_PAUSES):
                    _atomics.pause()
            # Messages that no receiver wants now, or that a late join brings later, have to leave the ring as fast.
            if taken:
                self.made_room = True
                now = read_ticks(clock)
                if began:
                    self.adapt(taken, now - began, self.long_pull if pulled else self.long_pass)
                began = now
            if self.attention or poller.poked or (once and total) or poller.stuck:
                poller.poked = 0
                return total
            if taken or frames:
                fruitless = 0
                if (now if taken else read_ticks(clock)) >= until:
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

    cdef void adapt(self, long taken, uint64_t ticks, uint64_t longest) noexcept:
        """Limits a pass to the messages that are handled in a time of `longest`.

        Timers, other sessions and the readers of counters wait for the end of a pass.
        """
        if ticks > longest:
            self.messages_per_pass = max(1, <long>(<double>taken * <double>longest / <double>ticks))
        elif taken >= self.messages_per_pass and self.messages_per_pass < MESSAGES_PER_PASS_MAX:
            self.messages_per_pass *= 2
