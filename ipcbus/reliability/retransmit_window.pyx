# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The retransmit window: slots by number; the stub has the documentation."""
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc

from ringbuf.free_threads cimport is_sole

from ipcbus.wire import udp_packets

cdef uint64_t CHARGE = udp_packets.CHARGE

cdef enum:
    DATAGRAM_OVERHEAD = 120
    SLOTS_FIRST = 256
    # Memory of this size is worth keeping: the system clears new pages, and those that have left are in the cache.
    SPARE_BYTES = 4096
    SPARES_BYTES_MAX = 1 << 22  # what leaves the window at once when a receiver that tells its room seldom has got all


cdef class RetransmitWindow:
    OVERHEAD = DATAGRAM_OVERHEAD

    def __cinit__(self, uint64_t size, uint64_t limit, uint64_t prefix=0):
        self.size, self.limit, self.prefix = size, limit, prefix
        self.span = min(size, limit) if limit else size
        self.held = [None] * SLOTS_FIRST
        self.positions = <uint64_t *>malloc(SLOTS_FIRST * sizeof(uint64_t))
        if self.positions == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.positions)

    def __len__(self):
        return <Py_ssize_t>(self.lead - self.trail)

    def add(self, bytes datagram not None):
        self.put(datagram)
        return self.lead - 1

    cdef int put(self, bytes datagram) except -1:
        cdef uint64_t number = self.lead, added = <uint64_t>PyBytes_GET_SIZE(datagram) - self.prefix
        cdef uint64_t mask
        if self.lead - self.trail == <uint64_t>len(self.held):
            self.grow()
        mask = <uint64_t>len(self.held) - 1
        self.held[<Py_ssize_t>(number & mask)] = datagram
        self.positions[number & mask] = self.position
        self.position += added + CHARGE
        self.bytes += added
        self.lead = number + 1
        while self.trail != number and (
            self.bytes > self.size
            or (self.limit and self.bytes + DATAGRAM_OVERHEAD * (self.lead - self.trail) > self.limit)
        ):
            self.drop_oldest()
        return 0

    cdef int drop_oldest(self) except -1:
        """Removes the oldest datagram; there must be one."""
        cdef Py_ssize_t place = <Py_ssize_t>(self.trail & (<uint64_t>len(self.held) - 1))
        cdef bytes datagram = <bytes>self.held[place]
        self.bytes -= <uint64_t>PyBytes_GET_SIZE(datagram) - self.prefix
        self.held[place] = None
        self.trail += 1
        if (
            self.spares is not None
            and PyBytes_GET_SIZE(datagram) >= SPARE_BYTES
            and len(self.spares) * PyBytes_GET_SIZE(datagram) < SPARES_BYTES_MAX
            and is_sole(<PyObject *>datagram)
        ):
            self.spares.append(datagram)
        return 0

    cdef bytes room_for(self, Py_ssize_t size):
        """Returns bytes that the caller fills before any other code sees them."""
        cdef bytes spare
        if self.spares is None:
            self.spares = []
        if size >= SPARE_BYTES and self.spares:
            spare = <bytes>self.spares.pop()
            if PyBytes_GET_SIZE(spare) == size:
                return spare
            self.spares.clear()
        return PyBytes_FromStringAndSize(NULL, size)

    cdef int grow(self) except -1:
        """Doubles the number of slots."""
        cdef uint64_t mask = <uint64_t>len(self.held) - 1, larger = 2 * mask + 1, number
        cdef list held = [None] * <Py_ssize_t>(larger + 1)
        cdef uint64_t *positions = <uint64_t *>malloc((larger + 1) * sizeof(uint64_t))
        if positions == NULL:
            raise MemoryError()
        for number in range(self.trail, self.lead):
            held[<Py_ssize_t>(number & larger)] = self.held[<Py_ssize_t>(number & mask)]
            positions[number & larger] = self.positions[number & mask]
        free(self.positions)
        self.held, self.positions = held, positions
        return 0

    def get(self, number):
        if not self.trail <= number < self.lead:
            return None
        return self.held[<Py_ssize_t>(<uint64_t>number & (<uint64_t>len(self.held) - 1))]

    def position_of(self, number):
        cdef uint64_t found
        if number >= self.lead or self.trail == self.lead:
            return self.position
        found = max(number, self.trail)
        return self.positions[found & (<uint64_t>len(self.held) - 1)]

    def drop_below(self, uint64_t number):
        number = min(number, self.lead)
        while self.trail < number:
            self.drop_oldest()

    def clear(self):
        self.held, self.spares = [None] * len(self.held), None
        self.bytes = 0
        self.trail = self.lead
