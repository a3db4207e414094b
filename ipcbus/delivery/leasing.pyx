# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, auto_pickle=False
"""Messages that a thread which pulls looks at in the ring; the stub has the documentation."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject

from ipcbus.delivery.received_message cimport KIND_REQUEST, Message
from ipcbus.wire.array_form import LentArray
from ringbuf.lending cimport end_view
from ringbuf.ring cimport NOTHING_HELD, reader_show


cdef class RecordHolder:
    def __cinit__(self):
        self.leased = []

    cdef int hold(self, LeasedMessage message) except -1:
        """Shows the current record as read only when this message is released."""
        message.holder, message.position = self, self.r.position
        if not self.leased:
            self.r.held = message.position
        self.leased.append(message)
        return 0

    cdef int limit_leases(self) except -1:
        """Gives messages memory of their own that hold back more than half of the ring."""
        cdef LeasedMessage oldest
        while self.r.held != NOTHING_HELD:
            oldest = <LeasedMessage>self.leased[0]
            if 2 * (self.r.position - oldest.position) <= self.r.mask:
                break
            oldest.own_memory()
            del self.leased[0]
            self.r.held = (<LeasedMessage>self.leased[0]).position if self.leased else NOTHING_HELD
        return 0

    cdef int own_leases(self) except -1:
        """Gives each leased message memory of its own, before the slot is given back or the process forks."""
        while self.leased:
            (<LeasedMessage>self.leased.pop()).own_memory()
        if self.r != NULL:
            self.r.held = NOTHING_HELD
        return 0

    cdef bint release(self, LeasedMessage message) except -1:
        """Returns whether the source waits for an event, which the context has to send."""
        self.leased.remove(message)
        self.r.held = (<LeasedMessage>self.leased[0]).position if self.leased else NOTHING_HELD
        if not self.detached and reader_show(self.r):
            self.wakes_writer = True
        return self.wakes_writer


cdef class LeasedMessage(Message):
    cdef int own_memory(self) except -1:
        """Makes the message independent of the ring; views that were made of it keep their address."""
        self.holder = None
        if self.own is not None:
            return 0
        if self.loan is not None and self.loan.settle():
            self.start = self.loan.start    # the pages there are its own now
            return 0
        self.own = PyBytes_FromStringAndSize(self.start, self.length)
        self.lent, self.start = False, NULL
        return 0

    cdef int give_up(self) except -1:
        """Makes it a message like others, which owns its bytes."""
        cdef RecordHolder holder = self.holder
        self.own_memory()
        if holder is not None:
            holder.release(self)
        return 0

    def array(self, shape, dtype):
        """The payload as a read-only array, until the end of the block."""
        lent = LentArray(self.view, shape, dtype, self.origin.topic)
        if self.arrays is None:
            self.arrays = []
        self.arrays.append(lent)
        return lent.array

    def end(self):
        cdef RecordHolder holder = self.holder
        arrays, self.arrays = self.arrays, None
        for lent in arrays or ():
            lent.end()
        if self.given_view is not None and self.loan is None:
            end_view(<PyObject *>self.given_view)
        self.release_view()
        self.own, self.start, self.length = None, NULL, 0
        self.lent, self.lender, self.holder = False, None, None
        return holder is not None and holder.release(self)


def leased(Message message not None):
    cdef LeasedMessage found
    if isinstance(message, LeasedMessage):
        return message
    if message.gate is not None or (message.kind != 0 and message.kind != KIND_REQUEST):
        return None
    found = LeasedMessage.__new__(LeasedMessage)
    message.copy_to(found)
    return found
