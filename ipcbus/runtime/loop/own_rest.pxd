from libc.stdint cimport uint64_t

from ipcbus.delivery.linger cimport Linger, epoll_event, epoll_wait
from ringbuf.answer_wait cimport AnswerWait
from ringbuf.held_locks cimport HeldLocks

cdef class OwnRest:
    cdef object pump            # a weak reference
    cdef object epoll           # stays open meanwhile
    cdef int timeout_ms
    cdef double early_s         # seconds after which it returns as soon as something has come
    cdef Linger linger          # decides whether to spin before the sleep; None never does
    cdef AnswerWait answers     # None: does not spin for answers
    cdef Linger answer_linger   # decides whether to spin for one
    cdef uint64_t woke          # ticks when the last sleep ended; 0: a spin ended after that, or it is learned from
    cdef HeldLocks locks        # looked at during the sleep; None for no such looks
    cdef int look_ms, look_every_ms
    cdef readonly list woken
    cdef readonly bint fetched  # all that has come over the network was fetched
    cdef int network_fd         # -1 without sessions over the network
    cdef object fetch
    cdef int others[2]          # descriptors that end `sleep_without_network`
    cdef int others_count
    cdef bint leaves_network    # the next sleep begins with `sleep_without_network`
    cdef long handled
    cdef object error

    cdef bint look_for_answer(self, epoll_event *events, int *count) except -1
    cdef bint end_sleep(self, epoll_event *events, int *count) except -1
    cdef void take_kick(self, epoll_event *events, int *count) noexcept
    cdef void learn(self, uint64_t rung_at) noexcept
    cdef void note_experience(self) noexcept
    cdef int sleep(self, int fd, epoll_event *events) noexcept nogil
    cdef void sleep_without_network(self) noexcept nogil
    cdef int spin(self, int fd, epoll_event *events)
    cdef bint deliver(self, epoll_event *events, int count, uint64_t until) except -1
