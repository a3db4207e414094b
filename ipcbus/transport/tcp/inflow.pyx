# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""What comes over a connection; the stub has the documentation."""
cimport cython
from cpython.buffer cimport PyBUF_WRITE
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from ringbuf.relay cimport put_bytes
from ringbuf.ring cimport RingWriter

from ipcbus.transport.udp.datagram_relay cimport FETCH_CAME, FETCH_HAS_MORE, FETCH_NOTHING
from ipcbus.wire.data_front cimport DataFront, be32toh, be64toh, is_data

from ipcbus.wire import udp_packets

cdef extern from *:
    """
#include <sys/socket.h>
#include <sys/types.h>
    """
    enum: MSG_DONTWAIT
    Py_ssize_t recv(int fd, void *room, size_t size, int flags) nogil

cdef enum:
    LENGTH = 4
    PIECE = 131072  # the ring of a receiver holds several times as many

READ_BYTES = PIECE

cdef uint8_t DATA = udp_packets.DATA
cdef uint8_t VERSION = udp_packets.VERSION
cdef uint64_t NUMBER_MAX = udp_packets.NUMBER_MAX


cdef class Inflow:
    def __cinit__(self, Py_ssize_t frame_max):
        self.frame_max = frame_max
        self.size = frame_max + LENGTH + PIECE
        self.broken = False
        # Not cleared: the system gives memory only to pages that are written.
        self.room = <char *>malloc(<size_t>self.size)
        if self.room == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.room)

    cdef void compact(self) noexcept:
        """Moves what was not taken yet to the front."""
        if self.begin:
            memmove(self.room, self.room + self.begin, <size_t>(self.end - self.begin))
            self.end -= self.begin
            self.begin = 0

    def fill(self, read):
        cdef Py_ssize_t got
        self.compact()
        view = PyMemoryView_FromMemory(self.room + self.end, self.size - self.end, PyBUF_WRITE)
        try:
            got = read(self.size - self.end, view)
        finally:
            view.release()
        self.end += got
        return got

    @property
    def is_tls(self):
        return self.end - self.begin > 1 and 0x14 < self.room[self.begin] < 0x17 and self.room[self.begin + 1] == 3

    def read(self, int fd):
        cdef Py_ssize_t got
        cdef int error
        self.compact()
        while True:
            with nogil:
                got = recv(fd, self.room + self.end, <size_t>min(self.size - self.end, <Py_ssize_t>PIECE), MSG_DONTWAIT)
                error = errno
            if got >= 0:
                self.end += got
                return got
            if error != EINTR:
                return -1 if error == EAGAIN else 0

    cdef Py_ssize_t length(self) noexcept:
        """Returns the length of the first packet; -1 while it has not come, or when no packet has this length."""
        cdef uint32_t length
        if self.end - self.begin < LENGTH:
            return -1
        memcpy(&length, self.room + self.begin, sizeof(length))
        length = be32toh(length)
        if length == 0 or length > <size_t>self.frame_max:
            self.broken = True
            return -1
        return <Py_ssize_t>length if self.end - self.begin - LENGTH >= <Py_ssize_t>length else -1

    def packet(self):
        cdef Py_ssize_t length
        with cython.critical_section(self):
            length = self.length()
            if length < 0:
                return None
            found = PyBytes_FromStringAndSize(self.room + self.begin + LENGTH, length)
            self.begin += LENGTH + length
            return found

    def relay(self, RingWriter writer not None, uint32_t session_id, uint64_t number):
        cdef int count = 0
        cdef Py_ssize_t total
        with cython.critical_section(self):
            total = self.move(writer, session_id, number, &count)
        return count, total

    def direct(self, int fd, RingWriter writer not None, uint32_t session_id, uint64_t number, uint64_t room_min):
        with cython.critical_section(self):
            before = self.writer    # freed behind the section
            self.fd, self.writer, self.session_id, self.number, self.room_min = fd, writer, session_id, number, room_min

    def fetch(self):
        with cython.critical_section(self):
            return self.fetch_some()

    cdef int fetch_some(self) except -9:
        cdef Py_ssize_t got
        cdef int count = 0
        cdef RingWriter writer = self.writer
        if writer is None or self.found_packet() or not writer.has_room(self.room_min):
            return FETCH_HAS_MORE
        self.compact()
        # In the section, for which `stop` waits, so that no thread closes the descriptor meanwhile; a piece takes 15 us.
        got = recv(self.fd, self.room + self.end, PIECE, MSG_DONTWAIT)
        if got < 0 and errno == EAGAIN:
            return FETCH_NOTHING
        if got <= 0:
            return FETCH_HAS_MORE
        self.end += got
        self.fetched_bytes += self.move(writer, self.session_id, self.number, &count)
        self.number += <uint64_t>count
        self.fetched += count
        self.came += got
        return FETCH_HAS_MORE if self.found_packet() else FETCH_CAME

    def stop(self):
        with cython.critical_section(self):
            before, self.writer = self.writer, None     # freed behind the section

    def settle(self):
        cdef tuple found
        with cython.critical_section(self):
            found = (self.fetched, self.fetched_bytes, self.came)
            before, self.writer = self.writer, None     # freed behind the section
            self.fetched, self.fetched_bytes, self.came = 0, 0, 0
        return found

    cdef bint found_packet(self) noexcept:
        return self.length() > 0 or self.broken

    @property
    def has_packet(self):
        return self.found_packet()

    cdef Py_ssize_t move(self, RingWriter writer, uint32_t session_id, uint64_t number, int *count) except -1:
        """Moves datagrams to a ring as `relay`; returns their bytes."""
        cdef Py_ssize_t length, total = 0
        cdef const char *packet
        cdef DataFront front
        while True:
            length = self.length()
            if length <= <Py_ssize_t>sizeof(front):
                break
            packet = self.room + self.begin + LENGTH
            memcpy(&front, packet, sizeof(front))
            length -= sizeof(front)
            if not is_data(&front, VERSION, DATA, session_id, number) or number > NUMBER_MAX:
                break
            if put_bytes(writer, packet + sizeof(front), length, 1, <int64_t>be64toh(front.send_time)) < 0:
                break
            self.begin += LENGTH + <Py_ssize_t>sizeof(front) + length
            total += length
            number += 1
            count[0] += 1
        return total
