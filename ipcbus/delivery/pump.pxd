from libc.stdint cimport uint64_t

from ipcbus.delivery.linger cimport Linger, epoll_event
from ipcbus.delivery.sink cimport Sink
from ringbuf.poller cimport Poller

cdef class PassEnd:
    """Called at the end of a pass over the sessions, if a message of the pass has asked for it."""
    cdef int pass_ends(self) except -1

cdef class Pump:
    cdef object __weakref__
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
    cdef Linger linger                  # how long they spin before they sleep
    cdef Linger network_linger          # the same where they also look at sockets
    cdef uint64_t python_bits           # which of `wanted` send a turn to Python
    cdef bint split                     # the context's own thread leaves the rings and the callbacks to guests
    cdef public bint quiet              # the driver does not call back; for the driver only
    cdef public uint64_t last_guest     # ident of the thread of the application that drove last, or 0
    cdef uint64_t due_ticks             # when Python has to run a turn
    cdef uint64_t timer_ticks           # when a sleep has to end
    cdef uint64_t early_ticks           # when timers may run early in a context that is awake
    cdef int epoll_fd, bell_fd, kick_fd # what a sleep waits for; -1 where only Python sleeps
    cdef object arm                     # shows the other sides of control channels whether this context sleeps
    cdef object answer                  # handles what a sleep has heard besides messages
    cdef public object delivered        # wakes the tasks whose messages have come
    cdef public bint armed              # sources see between two turns that this context sleeps: its descriptor is watched
    cdef bint fences                    # other processes look whether this context sleeps
    cdef bint channels_armed            # the other sides of control channels see that this context sleeps
    cdef bint slept                     # in this turn
    cdef public bint kick_waits         # the descriptor is readable, because there is something to do
    cdef uint64_t heard_at, hear_ticks  # when the descriptors were last looked at in a turn, and how often they are
    cdef uint64_t network_ticks, network_slice  # how often sockets are looked at, and read when `made_room`
    cdef uint64_t read_at               # when they were read last
    cdef bint made_room                 # datagrams were taken from rings since then
    cdef public bint room_awaited       # something from the network waits for room in the rings
    cdef readonly bint asleep                    # sources see that this context sleeps; what it heard is not answered yet
    cdef bint rung, kicked, readable    # what it heard: the doorbell, a kick, another descriptor
    cdef uint64_t guest_ticks           # when a thread of the application drove last
    cdef list ending                    # `PassEnd`, each called once at the end of this pass
    cdef bint passing                   # a pass is going on
    cdef long messages_per_pass         # most messages of a session in a pass
    cdef public bint copies_all         # a pass goes on after it has copied PASS_BYTES of long messages
    cdef uint64_t long_pass, long_pull  # ticks; a pass that takes longer was too long, to callbacks and to a thread that pulls

    cdef void adapt(self, long taken, uint64_t ticks, uint64_t longest) noexcept
    cdef long loop(self, uint64_t began, uint64_t until, uint64_t loops, bint once, long pulled) except -1
    cdef bint drives(self) noexcept
    cdef bint may_deliver(self) noexcept
    cdef int end_pass(self) except -1
    cdef bint at_pass_end(self, PassEnd what) except? True
    cpdef bint take_if_free(self) noexcept
    cdef bint must_stop(self) noexcept
    cdef int sleep(self, uint64_t now, uint64_t until) except -1
    cdef int hear(self, int timeout_ms) except -1
    cdef bint spin_at_network(self, uint64_t now, uint64_t until) except -1
    cdef void note(self, const epoll_event *events, int count) noexcept
    cdef uint64_t hear_network(self, uint64_t now) except 0
    cdef int wake_up(self, bint later=*) except -1
    cdef int disarm(self) except -1
    cdef int disarm_channels(self) except -1
    cdef int answer_heard(self) except -1
    cdef int wake_tasks(self) except -1
    cdef int make_readable(self, bint for_python) except -1
    cdef int leave(self) except -1
    cdef double drive(self, double seconds, Sink sink, long *handled, long most=*, bint rows=*, bint copies_all=*) except? -2
    cdef double wait(self, uint64_t now, double seconds, Sink sink, long *handled, long most, bint rows) except? -2
    cdef long fill_rows(self, Sink sink) except -1


cdef bint read_timeout(object timeout, double *seconds) noexcept
