# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, auto_pickle=False
"""Messages that a thread which pulls looks at in the ring; the stub has the documentation."""
cimport cython
from cpython.object cimport PyObject

from ipcbus.delivery.received_message cimport KIND_REQUEST, Message
from ipcbus.delivery.spare_bytes cimport own_bytes
from ipcbus.wire.array_form import LentArray
from ringbuf.lending cimport end_view
from ringbuf cimport _atomics
from ringbuf.ring cimport NOTHING_HELD, reader_bytes_since, reader_release


cdef class RecordHolder:
    def __cinit__(self):
        self.leased = []

    cdef int hold(self, LeasedMessage message) except -1:
        """Shows the current record as read only when this message is released."""
        message.holder, message.position = self, self.r.position
        with cython.critical_section(self):
            self.r.leases = True
            if not self.leased:
                self.r.held = message.position
            self.leased.append(message)
        return 0

    cdef int limit_leases(self) except -1:
        """Gives messages memory of their own that hold back more than half of the ring."""
        cdef LeasedMessage oldest
        while _atomics.load_relaxed64(&self.r.held) != NOTHING_HELD:
            with cython.critical_section(self):
                oldest = <LeasedMessage>self.leased[0] if self.leased else None
            if oldest is None or 2 * reader_bytes_since(self.r, oldest.position) <= self.r.mask:
                break
            oldest.own_memory()
            self.forget(oldest)
        return 0

    cdef bint forget(self, LeasedMessage message) except -1:
        """Holds nothing back for a message any more; returns False if another thread has done so."""
        with cython.critical_section(self):
            if message not in self.leased:
                return False
            self.leased.remove(message)
            self.r.held = (<LeasedMessage>self.leased[0]).position if self.leased else NOTHING_HELD
        return True

    cdef int own_leases(self) except -1:
        """Gives each leased message memory of its own, before the slot is given back or the process forks."""
        cdef list leased
        with cython.critical_section(self):
            leased, self.leased = self.leased, []
        for message in leased:
            (<LeasedMessage>message).own_memory()
        if self.r != NULL:
            self.r.held = NOTHING_HELD
        return 0

    cdef bint release(self, LeasedMessage message) except -1:
        """Returns whether the source waits for an event, which the context has to send."""
        if self.forget(message) and not self.detached and reader_release(self.r):
            self.wakes_writer = True
        return self.wakes_writer


cdef class LeasedMessage(Message):
    cdef int own_memory(self) except -1:
        """Makes the message independent of the ring; views that were made of it keep their address."""
        with cython.critical_section(self):
            self.make_own()
        return 0

    cdef int make_own(self) except -1:
        self.holder = None
        if self.own is not None or self.start == NULL:
            return 0
        if self.loan is not None and self.loan.settle():
            self.start = self.loan.start    # the pages there are its own now
            return 0
        self.own = own_bytes(self.start, self.length)
        self.lent, self.start = False, NULL
        return 0

    cdef int give_up(self) except -1:
        """Makes it a message like others, which owns its bytes."""
        cdef RecordHolder holder
        with cython.critical_section(self):
            holder = self.holder
            self.make_own()
        if holder is not None:
            holder.release(self)
        return 0

    def array(self, shape, dtype):
        """The payload as a read-only array, until the end of the block."""
        lent = LentArray(self.view, shape, dtype, self.origin.topic)
        with cython.critical_section(self):
            if self.arrays is None:
                self.arrays = []
            self.arrays.append(lent)
        return lent.array

    def end(self):
        cdef RecordHolder holder
        with cython.critical_section(self):
            arrays, self.arrays = self.arrays, None
        for lent in arrays or ():
            lent.end()
        with cython.critical_section(self):
            holder = self.holder
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
