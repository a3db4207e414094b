# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Takes messages for a thread that pulls; the stub has the documentation."""
from libc.stdint cimport uint64_t

from ipcbus.delivery.pump cimport Pump, read_timeout
from ipcbus.delivery.received_message cimport Message
from ipcbus.delivery.sink cimport Sink
from ringbuf.clock cimport clock_kind, ns_per_tick, read_ticks

cdef double SHARE_NS = 1e6

cdef extern from "Python.h":
    Py_ssize_t PyNumber_AsSsize_t(object number, void *error) except? -1    # without an error class, it clips

cdef extern from "math.h":
    const double NAN


cdef class Puller:
    def __init__(self, Pump pump, Sink sink, take_slowly, take_many_slowly):
        self.pump, self.sink = pump, sink
        self.take_slowly, self.take_many_slowly = take_slowly, take_many_slowly
        self.queue = sink.queue
        self.pops = sink.queue.popleft
        self.may_drive = sink.pulls and sink.event_queue is None

    def take(self, timeout):
        cdef double left
        if self.pump.blocked:
            return self.take_slowly(timeout)
        message = self.pop()
        if message is None:
            left = self.fill(timeout)
            message = self.pop()
            if message is None and not left < 0:
                return self.take_slowly(timeout if left != left else left)
        return message

    def take_many(self, limit, timeout):
        cdef double left
        cdef Py_ssize_t most = PyNumber_AsSsize_t(limit, NULL)
        cdef list taken = []
        if self.pump.blocked:
            return self.take_many_slowly(limit, timeout)
        if len(self.queue) < most:
            left = self.fill(timeout if len(self.queue) == 0 else 0)
            if not left < 0 and len(self.queue) < most:
                return self.take_many_slowly(limit, timeout if left != left else left)
        while len(taken) < most:
            message = self.pop()
            if message is None:
                break
            taken.append(message)
        return taken

    def wait(self, timeout):
        return self.fill(timeout)

    def take_queued(self):
        cdef uint64_t now = read_ticks(clock_kind())
        if self.pump.blocked or now >= self.share_ends:
            self.share_ends = now + <uint64_t>(SHARE_NS / ns_per_tick())
            return None
        return self.pop()

    cdef object pop(self):
        """Returns the next message of the queue; None if it is empty."""
        if len(self.queue) == 0:
            return None
        try:
            return self.pops()
        except IndexError:      # another thread was faster
            return None

    cdef double fill(self, timeout) except? -2:
        """Drives until the queue has a message; returns the seconds left if Python has to go on, NaN to begin there."""
        cdef double seconds
        cdef long handled = 0
        if self.error is not None or not self.may_drive or self.sink.closed or not read_timeout(timeout, &seconds):
            return NAN
        seconds = self.pump.drive(seconds, self.sink, &handled)
        return NAN if self.sink.closed else seconds
