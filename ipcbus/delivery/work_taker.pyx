# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Takes messages that are assigned to members of shares; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from ipcbus.delivery.received_message cimport Origin
from ipcbus.delivery.share_gate cimport ShareGate
from ipcbus.wire.control_front cimport ControlFront, FrameTaker
from ipcbus.wire.resent_entries cimport ResentEntries

from ipcbus.wire import share_messages
from ipcbus.wire.control_messages import NUMBER_MAX
from ipcbus.wire.resent_entries import checked

cdef unsigned REASSIGNED = share_messages.REASSIGNED, REQUEST = share_messages.REQUEST
cdef uint64_t HIGHEST = NUMBER_MAX


cdef class WorkTaker(FrameTaker):
    def __init__(self, callback):
        FrameTaker.__init__(self, callback)
        self.members = {}

    def add(self, uint32_t topic, uint64_t instance, ShareGate gate not None, Origin origin not None, waiting, keep):
        self.members[topic, instance] = (gate, origin, waiting, keep)

    def remove(self, uint32_t topic, uint64_t instance):
        self.members.pop((topic, instance), None)

    cdef long take(self, object peer, const ControlFront *front, bytes rest) except -1:
        cdef tuple found = self.members.get((front.topic, front.number))
        cdef uint64_t numbers[2]
        cdef ResentEntries entries
        cdef long count
        if found is None or found[2] or front.detail > (REASSIGNED | REQUEST) or PyBytes_GET_SIZE(rest) < sizeof(numbers):
            return FrameTaker.take(self, peer, front, rest)
        memcpy(numbers, PyBytes_AS_STRING(rest), sizeof(numbers))
        if not 0 < numbers[0] < numbers[1] <= HIGHEST:
            return FrameTaker.take(self, peer, front, rest)
        entries = checked(rest, sizeof(numbers), numbers[0], numbers[1])
        if entries is None or entries.count == 0:
            return FrameTaker.take(self, peer, front, rest)
        count = (<ShareGate>found[0]).pass_work(
            entries, <Origin>found[1], front.detail & REASSIGNED != 0, front.detail & REQUEST != 0, False
        )
        if entries.count:
            found[3](front.detail, entries)
        return count
