# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Takes messages for a thread that pulls; the stub has the documentation."""
from ipcbus.delivery.pump cimport Pump, read_timeout
from ipcbus.delivery.received_message cimport Message
from ipcbus.delivery.sink cimport Sink

cdef extern from "Python.h":
    Py_ssize_t PyNumber_AsSsize_t(object number, void *error) except? -1    # without an error class, it clips

cdef extern from "math.h":
    const double NAN


cdef class Puller:
    def __init__(self, Pump pump, Sink sink):
        self.pump, self.sink = pump, sink
        self.queue = sink.queue
        self.pops = sink.queue.popleft
        self.may_drive = sink.pulls and sink.event_queue is None

    def take(self, timeout):
        cdef double left
        if self.pump.blocked:
            return NAN
        message = self.pop()
        if message is None:
            left = self.fill(timeout)
            message = self.pop()
            if message is None and not left < 0:
                return left
        return message

    def take_many(self, limit, timeout):
        cdef double left
        cdef Py_ssize_t most = PyNumber_AsSsize_t(limit, NULL)
        cdef list taken = []
        if self.pump.blocked:
            return NAN
        if len(self.queue) < most:
            left = self.fill(timeout if len(self.queue) == 0 else 0)
            if not left < 0 and len(self.queue) < most:
                return left
        while len(taken) < most:
            message = self.pop()
            if message is None:
                break
            taken.append(message)
        return taken

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
