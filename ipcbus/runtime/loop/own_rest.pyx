# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The sleeps of a context's own thread; the stub has the documentation."""
from libc.stdint cimport uint32_t, uint64_t

from ipcbus.delivery.linger cimport Linger
from ipcbus.delivery.pump cimport Pump
from ipcbus.delivery.pump import DESCRIPTOR, GUESTS, TASKS
from ipcbus.transport.udp.datagram_relay cimport FETCH_CAME, FETCH_HAS_MORE, FETCH_LEFT, FETCH_NOTHING
from ringbuf cimport _atomics
from ringbuf.answer_wait cimport AnswerWait
from ringbuf.clock cimport clock_kind, ns_per_tick, read_ticks
from ringbuf.held_locks cimport HeldLocks

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void *bytes, size_t count)

cdef extern from * nogil:
    """
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <poll.h>
#include <time.h>
    """
    struct pollfd:
        int fd
        short events
    enum: POLLIN
    int poll(pollfd *fds, unsigned long count, int timeout_ms)
    struct timespec:
        long tv_sec, tv_nsec
    int ppoll(pollfd *fds, unsigned long count, const timespec *timeout, const void *mask)

cdef enum:
    EVENTS_MAX = 8
    OTHERS_MAX = 2
    LONGEST_MS = 3600_000

cdef uint64_t AWAITED = DESCRIPTOR | GUESTS | TASKS   # another thread or a task waits for what is delivered
cdef double SLICE_NS = 2e6  # longest time between two turns of Python while messages come; other sockets wait meanwhile
cdef double SLEEP_NS = 5e4  # after a shorter sleep another descriptor may still be readable
cdef long WITHOUT_NETWORK_NS = 500_000   # time in which a thread that publishes takes what comes over the network itself


def stand_by(Pump pump not None, int fd, uint64_t stand_back_ns, uint64_t longest_ns):
    cdef uint64_t stand_back = <uint64_t>(<double>stand_back_ns / ns_per_tick())
    cdef uint64_t longest = <uint64_t>(<double>longest_ns / ns_per_tick()), since = 0
    cdef double ms_of_tick = ns_per_tick() / 1e6
    cdef uint32_t clock = clock_kind()
    cdef pollfd watched
    cdef int ready = 0
    watched.fd, watched.events = fd, POLLIN
    with nogil:
        while ready == 0:
            since = read_ticks(clock) - _atomics.load_relaxed64(&pump.guest_ticks)
            if since >= (longest if _atomics.load_acquire64(&pump.driver) else stand_back):
                break
            ready = poll(&watched, 1, 1 + <int>(<double>(stand_back - since if since < stand_back else stand_back) * ms_of_tick))
    return ready == 0


cdef int in_ms(double seconds) noexcept:
    return <int>min(seconds * 1000 + 1, LONGEST_MS)


cdef class OwnRest:
    def __init__(self, pump, epoll, double seconds, Linger linger=None, double early_s=LONGEST_MS):
        self.pump, self.epoll, self.linger = pump, epoll, linger
        self.timeout_ms, self.early_s, self.network_fd = in_ms(seconds), early_s, -1

    def look_at(self, HeldLocks locks not None, double first_s, double every_s):
        self.locks, self.look_ms, self.look_every_ms = locks, in_ms(first_s), in_ms(every_s)

    def fetch_first(self, int network_fd, fetch, tuple others=()):
        cdef int i
        self.network_fd, self.fetch = network_fd, fetch
        self.others_count = min(len(others), OTHERS_MAX)
        for i in range(self.others_count):
            self.others[i] = others[i]

    def await_answers(self, AnswerWait answers not None, Linger linger not None):
        self.answers, self.answer_linger = answers, linger

    def __call__(self):
        cdef epoll_event events[EVENTS_MAX]
        cdef int fd = self.epoll.fileno(), i, count = 0
        cdef bint looked = False, calm
        cdef uint64_t now
        cdef double ticks_of_ms = 1e6 / ns_per_tick()
        cdef uint64_t slice = <uint64_t>(SLICE_NS * ticks_of_ms / 1e6), a_sleep = <uint64_t>(SLEEP_NS * ticks_of_ms / 1e6)
        cdef uint64_t until = read_ticks(clock_kind()) + slice, slept
        cdef uint64_t end = until - slice + <uint64_t>(<double>self.timeout_ms * ticks_of_ms)
        cdef uint64_t early = until - slice + <uint64_t>(max(0, self.early_s) * 1000 * ticks_of_ms)
        self.handled = 0
        try:
            if self.answers is not None:
                self.note_experience()  # that of another kind of rest may have been noted before
                looked = self.look_for_answer(events, &count)
            if self.linger is not None and not looked:
                count = self.spin(fd, events)
            while True:
                if count == 0 and not looked:
                    now = read_ticks(clock_kind())
                    if self.answers is not None:
                        _atomics.store_release64(&self.answers.sleeps, True)
                    with nogil:
                        count = self.sleep(fd, events)
                    self.woke = read_ticks(clock_kind())
                    slept = self.woke - now
                    if self.answers is not None:
                        looked = self.end_sleep(events, &count)
                    if self.linger is not None and not looked:
                        self.linger.slept(slept)
                    if slept >= a_sleep:
                        until = now + slept + slice
                calm = False
                while (count > 0 or looked) and (calm := self.deliver(events, count, min(end, until))):
                    looked = False
                    # The next message may be as near, and a turn of Python takes longer than the way to it.
                    count = self.spin(fd, events) if self.linger is not None and self.handled and not self.leaves_network else 0
                now = read_ticks(clock_kind())
                if looked or not calm or not self.fetched or now >= min(end, until, early):
                    break
                # Nothing has come that Python has to handle: the thread sleeps on, as armed as before.
                self.fetched = False
                self.timeout_ms = in_ms(<double>(end - now) / ticks_of_ms / 1000)
        except BaseException as error:
            self.error = error
        self.woken = [events[i].data.fd for i in range(max(count, 0))]
        return self

    cdef bint look_for_answer(self, epoll_event *events, int *count) except -1:
        """Spins for an answer, where that pays; returns whether it did. `count` is 1 then where one came over the network.

        The sources of rings see that the context is awake. In a context with sessions over the network they ring as before.
        """
        cdef uint64_t now = read_ticks(clock_kind())
        cdef Linger linger = self.answer_linger
        cdef Pump pump
        if now - _atomics.load_relaxed64(&self.answers.rung_at) > linger.longest or not linger.allowed(now):
            return False
        pump = self.pump()
        if pump is None or not pump.may_deliver():
            return False
        if self.network_fd < 0:
            pump.poller.arm(False)
            linger.spin(pump.poller, now, <uint64_t>-1)
        else:
            linger.look(pump.poller, self.network_fd, events, EVENTS_MAX, count, now, <uint64_t>-1)
            if count[0] > 0:  # of the sockets behind that descriptor
                events[0].data.fd, count[0] = self.network_fd, 1
        self.woke = 0
        self.note_experience()
        return True

    cdef bint end_sleep(self, epoll_event *events, int *count) except -1:
        """Spins for an answer if the answer wait has ended the sleep; returns whether it did."""
        _atomics.store_release64(&self.answers.sleeps, False)
        if not self.answers.take_kick():
            return False
        if self.network_fd >= 0:
            self.take_kick(events, count)
        return (count[0] == 0 or self.network_fd < 0) and self.look_for_answer(events, count)

    cdef void take_kick(self, epoll_event *events, int *count) noexcept:
        """Clears the descriptor of kicks, and takes it from the events if no other thread has written to it."""
        cdef int i, at = -1
        cdef uint64_t kicks = 0
        cdef bint alone = read(self.answers.fd, &kicks, sizeof(kicks)) == sizeof(kicks) and kicks == 1
        for i in range(count[0]):
            if events[i].data.fd == self.answers.fd:
                at = i
        if alone and at >= 0:
            count[0] -= 1
            events[at] = events[count[0]]
        elif not alone and at < 0 and count[0] < EVENTS_MAX:
            events[count[0]].data.fd = self.answers.fd  # Python looks what another thread wants
            count[0] += 1

    cdef void learn(self, uint64_t rung_at) noexcept:
        """Notes how long the answer took that has ended the sleep, to what was sent then."""
        if self.woke >= rung_at and self.woke:
            self.answer_linger.slept(self.woke - rung_at)
            self.note_experience()
        self.woke = 0
        if _atomics.load_relaxed64(&self.answers.rung_at) == rung_at:
            _atomics.store_relaxed64(&self.answers.rung_at, 0)  # else a callback has sent something since

    cdef void note_experience(self) noexcept:
        cdef Linger linger = self.answer_linger
        cdef bint pays = linger.longest and linger.short_sleeps >= linger.after
        _atomics.store_relaxed64(&self.answers.begins, linger.next if pays else <uint64_t>-1)

    cdef int sleep(self, int fd, epoll_event *events) noexcept nogil:
        """Sleeps, and meanwhile looks at the locks; returns how many descriptors are readable."""
        cdef int count, left_ms = self.timeout_ms, look_ms = self.look_ms
        if self.leaves_network:
            self.sleep_without_network()
            count = epoll_wait(fd, events, EVENTS_MAX, 0)
            if count:
                return count
        while self.locks is not None and look_ms < left_ms:
            count = epoll_wait(fd, events, EVENTS_MAX, look_ms)
            if count or not self.locks.are_held():
                return count
            left_ms -= look_ms
            look_ms = self.look_every_ms
        return epoll_wait(fd, events, EVENTS_MAX, left_ms)

    cdef void sleep_without_network(self) noexcept nogil:
        """Sleeps for a moment, however much comes over the network."""
        cdef pollfd watched[OTHERS_MAX]
        cdef timespec longest
        cdef int i
        self.leaves_network = False
        if self.timeout_ms == 0:
            return
        for i in range(self.others_count):
            watched[i].fd, watched[i].events = self.others[i], POLLIN
        longest.tv_sec, longest.tv_nsec = 0, WITHOUT_NETWORK_NS
        ppoll(watched, <unsigned long>self.others_count, &longest, NULL)

    cdef bint deliver(self, epoll_event *events, int count, uint64_t until) except -1:
        """Delivers what has come; returns whether there is nothing more to do for now, until this time."""
        cdef Pump pump = self.pump()
        cdef uint64_t now, rung_at = 0
        cdef long handled
        cdef int i
        cdef int came = FETCH_NOTHING
        self.fetched = False
        if pump is None or not pump.may_deliver():
            return False
        for i in range(count if self.fetch is not None else 0):
            if events[i].data.fd == self.network_fd:
                came = self.fetch()
                self.leaves_network = came == FETCH_LEFT
                # Where nothing has come, another socket is readable.
                self.fetched = came == FETCH_CAME or self.leaves_network
        while True:
            now = read_ticks(clock_kind())
            if self.answers is not None:
                rung_at = _atomics.load_relaxed64(&self.answers.rung_at)
            handled = pump.loop(now, now, 0, True, 0)
            self.handled += handled
            if handled and self.answers is not None:
                self.learn(rung_at)
            if not self.fetched or now >= until or pump.must_stop() or pump.wants(AWAITED):
                return False
            if handled == 0 and came != FETCH_CAME:
                return count == 1
            # More may have come meanwhile, and a source may wait for an ACK.
            came = self.fetch() if not self.leaves_network else FETCH_LEFT
            self.leaves_network = came == FETCH_LEFT
            self.fetched = came != FETCH_HAS_MORE

    cdef int spin(self, int fd, epoll_event *events):
        """Looks at the descriptors for a moment, where that pays; returns how many are readable."""
        cdef int count = 0
        if self.timeout_ms:
            self.linger.look(None, fd, events, EVENTS_MAX, &count, read_ticks(clock_kind()), <uint64_t>-1)
        return count

    def take(self):
        if self.error is not None:
            raise self.error
        return self.handled
