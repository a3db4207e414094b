# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Keeps messages for a thread that pulls; the stub has the documentation."""
cimport cython
from cpython.pythread cimport PyThread_get_thread_ident

from ipcbus.delivery.leasing cimport LeasedMessage

cdef enum:
    SLOTS_MIN = 64


# What a block under `with cython.critical_section` does: see `event_buffer.pyx`. It makes no list that stays, either: this
# may run the garbage collector, and so Python code and other threads.


cdef class MessageQueue:
    def __cinit__(self, size_t limit=<size_t>-1, size_t bytes_limit=<size_t>-1):
        self.limit = self.maximum = limit
        self.bytes_limit = bytes_limit
        self.pass_messages = PASS_MESSAGES
        self.slots = [None] * SLOTS_MIN
        self.mask = SLOTS_MIN - 1

    def __len__(self):
        return self.count

    def has_room_again(self):
        return self.count <= self.maximum // 2 and self.bytes <= self.bytes_limit // 2

    def __iter__(self):
        with cython.critical_section(self):
            found = [queued_at(self, place) for place in range(<Py_ssize_t>self.count)]
        return iter(found)

    def __getitem__(self, Py_ssize_t place):
        with cython.critical_section(self):
            if place < 0:
                place += self.count
            if 0 <= place < <Py_ssize_t>self.count:
                return queued_at(self, place)
        raise IndexError("fewer messages wait")

    def append(self, message):
        self.put(message)

    def extend(self, messages):
        for message in messages:
            self.put(message)

    def appendleft(self, message):
        cdef bint fits = False
        while not fits:
            with cython.critical_section(self):
                fits = self.count <= self.mask
                if fits:
                    self.first = (self.first - 1) & self.mask
                    self.slots[self.first] = message
                    self.count += 1
                    self.bytes += bytes_of(message)
            if not fits:
                self.grow()

    def popleft(self):
        message = self.take()
        if message is None:
            raise IndexError("no message waits")
        return message

    def remove(self, message):
        cdef size_t place
        with cython.critical_section(self):
            for place in range(self.count):
                if queued_at(self, place) is message:
                    self.remove_at(place)
                    return
        raise ValueError("the message does not wait")

    def clear(self):
        self.take_many(self.count)

    @cython.final
    cdef int grow(self) except -1:
        """Doubles the slots of a full queue; the caller holds no critical section, and looks for room again."""
        cdef list wider = [None] * <Py_ssize_t>(2 * (self.mask + 1))
        cdef size_t place
        with cython.critical_section(self):
            # Another thread may have taken a message meanwhile, or grown the queue.
            if self.count > self.mask and <size_t>len(wider) > self.count:
                for place in range(self.count):
                    wider[place] = queued_at(self, place)
                self.slots = wider
                self.first = 0
                self.mask = <size_t>len(wider) - 1
        return 0

    @cython.final
    cdef int put(self, object message) except -1:
        cdef size_t length = bytes_of(message)
        cdef bint fits = False
        while not fits:
            with cython.critical_section(self):
                fits = self.count <= self.mask
                if fits:
                    self.slots[(self.first + self.count) & self.mask] = message
                    self.count += 1
                    self.bytes += length
                    if length > PASS_BYTES // PASS_MESSAGES:
                        self.pass_messages = <long>max(<size_t>PASS_BYTES // length, <size_t>1)
                    elif length:
                        self.pass_messages = PASS_MESSAGES
            if not fits:
                self.grow()
        return 0

    @cython.final
    cdef object take(self):
        """Takes the oldest message; returns None when the queue is empty."""
        message = None
        with cython.critical_section(self):
            if self.count:
                message = self.slots[self.first]
                self.slots[self.first] = None
                self.first = (self.first + 1) & self.mask
                self.count -= 1
                self.bytes -= bytes_of(message)
        if message is self.in_place and message is not None:
            self.detach()
        return message

    cpdef bint has_long(self) noexcept:
        return self.pass_messages < PASS_MESSAGES

    cpdef int set_leases(self, bint leases) except -1:
        with cython.critical_section(self):
            self.leases = leases
            self.maximum = min(self.limit, <size_t>1) if leases else self.limit
        return 0

    def count_leasing(self, int more):
        with cython.critical_section(self):
            self.leasing += more

    cdef int set_in_place(self, LeasedMessage message) except -1:
        with cython.critical_section(self):
            before, self.in_place = self.in_place, message      # freed behind the section
        return 0

    @cython.final
    cdef int detach(self) except -1:
        """Gives the message in place to the thread that leases; for another thread it is made one like others."""
        cdef LeasedMessage message
        with cython.critical_section(self):
            message, self.in_place = self.in_place, None
        if message is not None and self.lessee != PyThread_get_thread_ident():
            self.set_leases(False)
            message.give_up()
        return 0

    @cython.final
    cdef list take_many(self, size_t most):
        """Takes the oldest messages."""
        cdef size_t i
        cdef list taken = [None] * <Py_ssize_t>min(most, self.count)
        with cython.critical_section(self):
            # Another thread may have taken some meanwhile.
            most = min(<size_t>len(taken), self.count)
            for i in range(most):
                taken[i] = self.slots[self.first]
                self.bytes -= bytes_of(taken[i])
                self.slots[self.first] = None
                self.first = (self.first + 1) & self.mask
            self.count -= most
        if most < <size_t>len(taken):
            del taken[most:]
        if self.in_place is not None:
            with cython.critical_section(self):
                in_place = self.in_place
            if in_place is not None and in_place in taken:
                self.detach()
        return taken

    @cython.final
    cdef int remove_at(self, size_t place) except -1:
        """Takes out what waits at a place from the front; the caller holds the critical section."""
        self.count -= 1
        self.bytes -= bytes_of(queued_at(self, place))
        while place < self.count:
            self.slots[(self.first + place) & self.mask] = queued_at(self, place + 1)
            place += 1
        self.slots[(self.first + self.count) & self.mask] = None
        return 0
