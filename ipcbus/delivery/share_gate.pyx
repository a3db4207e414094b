# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Stands between the delivery controller of a topic and a member of a share; the stub has the documentation."""
from ipcbus.delivery.event_merging cimport is_event
from ipcbus.delivery.gmd_gate cimport GmdGate
from ipcbus.delivery.received_message cimport KIND_REQUEST, UMQ_REASSIGNED, UMQ_ULB, Message, Origin, resent_copy
from ipcbus.delivery.sink cimport Sink
from ipcbus.wire.control_front cimport EntryFront
from ipcbus.wire.resent_entries cimport ResentEntries


cdef class ShareGate(GmdGate):
    def __init__(self, Sink target not None, *args, **kwargs):
        GmdGate.__init__(self, target, *args, **kwargs)
        # It never stops the session: no message of the session goes to the receiver.
        self.sink = Sink(self.take, 1)
        self.sink.owner = target.owner

    def take(self, Message message not None):
        if is_event(message):
            self.keeper.take_event(message)

    def deliver_work(self, ResentEntries entries not None, Origin origin, *, bint reassigned, bint requests, bint without_limit=False):
        return self.pass_work(entries, origin, reassigned, requests, without_limit)

    cdef long pass_work(self, ResentEntries entries, Origin origin, bint reassigned, bint requests, bint without_limit) except -1:
        cdef Sink target = self.target
        cdef const EntryFront *front
        cdef Message message
        cdef long count = 0
        while without_limit or not (target.pulls and not target.closed and target.is_full_now()):
            front = entries.take()
            if front is NULL:
                break
            count += 1
            message = resent_copy(origin, front, front.opening)
            message.flags = UMQ_ULB | UMQ_REASSIGNED * reassigned
            if requests:
                message.kind, message.request = KIND_REQUEST, front.opening
            self.pass_message(message)
        return count
