from libc.stdint cimport uint64_t

from ipcbus.delivery.sink cimport Sink
from ringbuf.poller cimport Poller

cdef class PassEnd:
    """Called at the end of a pass over the sessions, if a message of the pass has asked for it."""
    cdef int pass_ends(self) except -1

cdef class Pump:
    cdef list demuxes
    cdef readonly Poller poller
    cdef list words             # what the poller watches beside the rings
    cdef uint64_t driver                # ident of the driver thread, or 0
    cdef uint64_t wanted                # bits of `Wants`
    cdef public object pending_error    # a BaseException of a callback; the driver raises it when it stops
    cdef public bint attention          # a session needs attention
    cdef public bint blocked            # a session waits for room in the queue of a receiver that pulls
    cdef public object look             # handles the watched words that have changed; returns the messages and events
    cdef object wake_waiters            # wakes the threads that wait for the driver lock
    cdef uint64_t loops                 # polls of the rings before a sleep
    cdef bint spins                     # waits never sleep
    cdef uint64_t due_ticks             # when Python has to run a turn
    cdef uint64_t timer_ticks           # when a sleep has to end
    cdef int epoll_fd, bell_fd, kick_fd # what a sleep waits for; -1 where only Python sleeps
    cdef object arm                     # shows the other sides of control channels whether this context sleeps
    cdef object answer                  # handles what a sleep has heard besides messages
    cdef readonly bint asleep                    # sources see that this context sleeps; what it heard is not answered yet
    cdef bint rung, kicked, readable    # what it heard: the doorbell, a kick, another descriptor
    cdef uint64_t guest_ticks           # when a thread of the application drove last
    cdef list ending                    # `PassEnd`, each called once at the end of this pass
    cdef bint passing                   # a pass is going on
    cdef long messages_per_pass         # most messages of a session in a pass
    cdef uint64_t long_pass             # ticks; a pass that takes longer was too long

    cdef void adapt(self, long taken, uint64_t ticks) noexcept
    cdef long loop(self, uint64_t began, uint64_t until, uint64_t loops, bint once, bint pulls) except -1
    cdef bint drives(self) noexcept
    cdef int end_pass(self) except -1
    cdef bint at_pass_end(self, PassEnd what) except? True
    cpdef bint take_if_free(self) noexcept
    cdef bint must_stop(self) noexcept
    cdef int sleep(self, uint64_t now, uint64_t until) except -1
    cdef int wake_up(self) except -1
    cdef int leave(self) except -1
    cdef double drive(self, double seconds, Sink sink, long *handled) except? -2
    cdef double wait(self, uint64_t now, double seconds, Sink sink, long *handled) except? -2


cdef bint read_timeout(object timeout, double *seconds) noexcept
