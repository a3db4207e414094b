# cython: language_level=3, embedsignature=True
"""Takes responses; the stub has the documentation."""
from libc.stdint cimport uint64_t

from ipcbus.wire.control_front cimport ControlFront, FrameTaker


cdef class ResponseTaker(FrameTaker):
    def __init__(self, deliver, count):
        self.deliver, self.count = deliver, count

    cdef bint takes(self, const ControlFront *front) noexcept:
        return front.zeros == 0 and front.detail == 0 and front.topic == 0

    cdef long take(self, object peer, const ControlFront *front, bytes rest) except -1:
        return self.give(front.number, rest)

    cdef long give(self, uint64_t number, data) except -1:
        """Delivers a response; returns the number of messages."""
        return self.deliver(number, data)

    def respond(self, uint64_t number, data):
        cdef long messages = self.give(number, data)
        if messages:
            self.count(messages)
