# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Acknowledgements that come in order; the stub has the documentation."""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from ipcbus.errors import GmdError
from ipcbus.gmd import sender_notes

cdef extern from *:
    """
typedef struct {
    uint8_t kind, zero;
    uint16_t error;
    uint32_t name;
    uint64_t first, last;
} ipcbus_AckNote;
_Static_assert(sizeof(ipcbus_AckNote) == 24, "AckNote size");
    """
    ctypedef struct AckNote "ipcbus_AckNote":
        uint8_t kind
        uint8_t zero
        uint16_t error
        uint32_t name
        uint64_t first
        uint64_t last

cdef uint8_t ACK = sender_notes.ACK


@cython.final
cdef class _Name:
    cdef uint32_t id
    cdef uint64_t floor         # it has acknowledged all messages up to this one
    cdef bint was_heard


@cython.final
cdef class _Receiver:
    cdef object peer
    cdef uint64_t instance
    cdef _Name name


cdef class OrderedAcks:
    def __init__(self, note, release, uint64_t incarnation, *, bint confirms):
        self.note, self.release, self.incarnation, self.confirms = note, release, incarnation, confirms
        self.names, self.receivers = [], []

    def begin(self, uint64_t low, *, bint any_is_enough, names, receivers):
        cdef _Name name
        cdef _Receiver receiver
        self.names, self.receivers = [], []
        for number, floor in names:
            name = _Name.__new__(_Name)
            name.id, name.floor = number, floor
            self.names.append(name)
        for peer, instance, place in receivers:
            receiver = _Receiver.__new__(_Receiver)
            receiver.peer, receiver.instance, receiver.name = peer, instance, self.names[place]
            self.receivers.append(receiver)
        self.low, self.any_is_enough = low, any_is_enough
        self.is_ready = True

    def pause(self):
        self.is_ready = False

    def floors(self):
        cdef _Name name
        found = []
        for each in self.names:
            name = <_Name>each
            found.append((name.floor, name.was_heard))
            name.was_heard = False
        return found

    def try_take(self, peer, uint64_t instance, uint64_t incarnation, uint64_t first, uint64_t last, uint64_t last_number):
        return self.take(peer, instance, incarnation, first, last, last_number)

    def take_confirmed(self):
        if self.confirmed_first == 0:
            return None
        found = self.confirmed_first, self.confirmed_last
        self.confirmed_first = 0
        return found

    cdef bint knows(self, object peer, uint64_t instance) except? True:
        """Returns whether acknowledgements of this receiver come this way."""
        return self.is_ready and self.find(peer, instance) is not None

    cdef object find(self, object peer, uint64_t instance):
        for each in self.receivers:
            if (<_Receiver>each).instance == instance and (<_Receiver>each).peer == peer:
                return each
        return None

    cdef bint take(
        self, object peer, uint64_t instance, uint64_t incarnation, uint64_t first, uint64_t last, uint64_t last_number
    ) except? True:
        cdef _Receiver receiver
        cdef _Name name
        cdef AckNote note
        cdef uint64_t low = last + 1
        if not self.is_ready or incarnation != self.incarnation or last > last_number:
            return False
        receiver = self.find(peer, instance)
        if receiver is None or first > receiver.name.floor + 1:
            return False
        name = receiver.name
        name.was_heard = True
        if last <= name.floor:
            return True
        note.kind, note.zero, note.error, note.name, note.first, note.last = ACK, 0, 0, name.id, name.floor + 1, last
        try:
            self.note(PyBytes_FromStringAndSize(<char *>&note, sizeof(note)))
        except GmdError:
            return False    # the machine counts it
        self.count += last - name.floor
        name.floor = last
        if not self.any_is_enough:
            for each in self.names:
                low = min(low, (<_Name>each).floor + 1)
        if low > self.low:
            self.advance(low)
        return True

    cdef int advance(self, uint64_t low) except -1:
        """Completes the messages below a number."""
        cdef uint64_t first = self.low
        for each in self.names:
            (<_Name>each).floor = max((<_Name>each).floor, low - 1)
        self.low = low  # first: the area may ask for a checkpoint
        if self.confirms:
            if self.confirmed_first == 0:
                self.confirmed_first = first
            self.confirmed_last = low - 1
        self.release(first, low - 1)
        return 0
