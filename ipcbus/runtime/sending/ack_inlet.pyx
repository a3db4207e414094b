# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Acknowledgements in order, from a pipe to the state of a guaranteed source; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from ipcbus.gmd.copy_area cimport CopyArea
from ipcbus.gmd.ordered_acks cimport OrderedAcks
from ipcbus.topic.message_saver cimport MessageSaver
from ipcbus.wire.control_front cimport AckRange, ControlFront, FrameTaker


cdef class AckInlet(FrameTaker):
    def __init__(self, callback):
        FrameTaker.__init__(self, callback)
        self.sources = {}

    def add(self, uint32_t topic, MessageSaver saver not None, CopyArea area not None, OrderedAcks acks not None, events):
        self.sources[topic] = (saver, area, acks, events)

    def remove(self, uint32_t topic):
        self.sources.pop(topic, None)

    cdef long take(self, object peer, const ControlFront *front, bytes rest) except -1:
        cdef AckRange numbers
        cdef tuple found = self.sources.get(front.topic)
        if found is not None and front.detail == 0 and PyBytes_GET_SIZE(rest) == sizeof(numbers):
            memcpy(&numbers, PyBytes_AS_STRING(rest), sizeof(numbers))
            if take_in_order(found, peer, front.number, &numbers):
                if (<OrderedAcks>found[2]).confirmed_first:
                    found[3]()
                return 0
        return FrameTaker.take(self, peer, front, rest)


cdef bint take_in_order(tuple source, object peer, uint64_t instance, const AckRange *numbers) except? True:
    cdef MessageSaver saver = <MessageSaver>source[0]
    cdef CopyArea area = <CopyArea>source[1]
    if not numbers.first <= numbers.last:
        return False
    saver.acquire()
    try:
        if saver.closes:
            return False
        if saver.sends and numbers.last == area.last and (<OrderedAcks>source[2]).knows(peer, instance):
            saver.sends = False     # the receiver has it before the thread that sent it has said so
        return (<OrderedAcks>source[2]).take(
            peer, instance, numbers.incarnation, numbers.first, numbers.last, area.last - saver.sends
        )
    finally:
        saver.release()
