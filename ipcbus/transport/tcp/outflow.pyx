# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""What a source sends over connections; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from ringbuf._layout cimport RECORD_HEADER, Record
from ringbuf._long_copy cimport copy_message
from ringbuf.answer_wait cimport AnswerWait
from ringbuf.clock cimport epoch_ns, monotonic_ns
from ringbuf.ring cimport NOTHING_HELD, RingReader, next_record, show_steps, step_over

from ipcbus.transport.udp.mmsg cimport iovec, msghdr
from ipcbus.wire.data_front cimport DataFront, fill, htobe32
from ipcbus.wire import udp_packets

cdef extern from *:
    """
#include <sys/socket.h>
#include <sys/types.h>
    """
    enum: MSG_DONTWAIT, MSG_NOSIGNAL
    Py_ssize_t sendmsg(int fd, const msghdr *message, int flags) nogil

cdef enum:
    LENGTH_BYTES = 4
    # Most records and bytes in one system call: the processor's cache still holds them when the system copies them.
    RECORDS = 64
    BYTES = 262144
    # Most records in one call: the ring's writer learns only then that there is room.
    MOST = 512
    PARTS = 3   # of a packet: its length, its header, its body
    # Bodies from this length on are copied past the caches, where they are read again only if a connection breaks.
    KEPT_LONG = 4096
    # Bytes of packets that were sent directly after which the state machine takes note.
    UNSETTLED_BYTES = 1048576

cdef uint8_t DATA = udp_packets.DATA
cdef uint8_t VERSION = udp_packets.VERSION


def take_packet(RingReader reader not None, uint32_t session_id, uint64_t number):
    return take(reader, session_id, number)


cdef bytes take(RingReader reader, uint32_t session_id, uint64_t number):
    cdef uint32_t length
    cdef const Record *record = next_record(reader, &length)
    cdef bytes packet
    if record == NULL:
        return None
    packet = room_for(record, length, session_id, number)
    memcpy(body_of(packet), <const char *>record + RECORD_HEADER, length - RECORD_HEADER)
    step_over(reader, record, record.messages)
    return packet


cdef inline char *body_of(bytes packet) noexcept:
    return PyBytes_AS_STRING(packet) + sizeof(DataFront)


cdef bytes room_for(const Record *record, uint32_t length, uint32_t session_id, uint64_t number):
    """Returns the packet of a record, into which the body is still to be copied."""
    cdef DataFront front
    cdef bytes packet = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>sizeof(front) + length - RECORD_HEADER)
    fill(&front, VERSION, DATA, session_id, number, 0, record.messages, <uint64_t>epoch_ns(record.send_ticks))
    memcpy(PyBytes_AS_STRING(packet), &front, sizeof(front))
    return packet


def send_records(RingReader reader not None, list numbers not None, uint32_t session_id, uint64_t number):
    cdef iovec parts[PARTS * RECORDS]
    cdef uint32_t lengths[RECORDS]
    cdef Py_ssize_t gathered, count, size, total
    cdef uint64_t begin
    cdef list packets = [], sent = []
    cdef bint event = False, drained = False, whole = True
    while whole and not drained and len(packets) < MOST:
        gathered, count, total = len(packets), 0, 0
        # The system copies from the ring itself, whose bytes the processor's cache still holds.
        reader.r.held = begin = reader.r.position
        try:
            while count < RECORDS and total < BYTES:
                size = gather(reader, &parts[PARTS * count], &lengths[count], packets, session_id, number)
                if size == 0:
                    drained = True
                    break
                count += 1
                number += 1
                total += size
            if count:
                sent = [send_parts(fd, parts, PARTS * count) for fd in numbers]
                whole = min(sent) == total
                # What a connection has not taken is sent from the copies, soon.
                keep_bodies(parts, packets, gathered, KEPT_LONG if whole else <uint64_t>-1)
        finally:
            reader.r.held = NOTHING_HELD
        # A source that waits for room need not wait for all of them. Damaged records may have been skipped.
        if reader.r.position != begin or reader.owes_event:
            event |= show_steps(reader)
    if whole:
        return packets, event, drained and not reader.r.stopped, [], []
    return packets, event, False, sent, packets[gathered:]


cdef Py_ssize_t gather(
    RingReader reader, iovec *parts, uint32_t *length_sent, list packets, uint32_t session_id, uint64_t number
) except -1:
    """Appends the packet of the next record, and lists its bytes, behind its length; returns how many; 0 without one."""
    cdef uint32_t length
    cdef const Record *record = next_record(reader, &length)
    cdef bytes packet
    if record == NULL:
        return 0
    packet = room_for(record, length, session_id, number)
    packets.append(packet)
    length -= RECORD_HEADER
    length_sent[0] = htobe32(<uint32_t>PyBytes_GET_SIZE(packet))
    parts[0].iov_base, parts[0].iov_len = length_sent, LENGTH_BYTES
    parts[1].iov_base, parts[1].iov_len = PyBytes_AS_STRING(packet), sizeof(DataFront)
    parts[2].iov_base, parts[2].iov_len = <char *>record + RECORD_HEADER, length
    if reader.r.copies:
        # The next record overwrites it.
        memcpy(body_of(packet), parts[2].iov_base, length)
        parts[2].iov_base = body_of(packet)
    step_over(reader, record, record.messages)
    return LENGTH_BYTES + PyBytes_GET_SIZE(packet)


cdef void keep_bodies(const iovec *parts, list packets, Py_ssize_t start, uint64_t past_caches_from) noexcept:
    """Copies what was sent from the ring into its packets."""
    cdef Py_ssize_t i
    cdef const iovec *part
    cdef char *body
    for i in range(len(packets) - start):
        part = &parts[PARTS * i + 2]
        body = body_of(<bytes>packets[start + i])
        if part.iov_base != body:
            copy_message(body, <const char *>part.iov_base, part.iov_len, past_caches_from)


cdef Py_ssize_t send_parts(int fd, iovec *parts, Py_ssize_t count):
    """Sends what there is room for; returns how many bytes, or -1 when the connection has ended."""
    cdef msghdr message
    cdef Py_ssize_t done
    cdef int error
    memset(&message, 0, sizeof(message))
    message.msg_iov = parts
    message.msg_iovlen = <size_t>count
    while True:
        with nogil:
            done = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
            error = errno
        if done >= 0:
            return done
        if error != EINTR:
            return 0 if error == EAGAIN else -1


cdef class RecordStream:
    def __cinit__(self, RingReader reader not None, uint32_t session_id):
        self.reader, self.session_id = reader, session_id
        self.packets, self.numbers = [], []

    def allow(self, uint64_t mask, lock, published, on_room, AnswerWait answers=None):
        self.mask, self.lock, self.published, self.on_room, self.answers = mask, lock, published, on_room, answers

    def aim(self, socket_lock, keep, tuple connections not None, list numbers not None):
        self.socket_lock, self.keep, self.connections, self.numbers = socket_lock, keep, connections, numbers
        self.aimed = True

    def send(self, uint64_t number):
        cdef list packets, taken, last
        cdef bint event, drained
        packets, event, drained, taken, last = send_records(self.reader, self.numbers, self.session_id, number)
        if taken:
            self.keep(self.connections, last, taken)
        return packets, event, drained

    def start(self, uint64_t number):
        self.number, self.ready = number, self.aimed

    def stop(self):
        self.ready = self.aimed = False

    def __call__(self, uint64_t mask):
        cdef bint done = False
        # A thread that has to wait for a lock, or that has it, leaves this to Python.
        if self.ready and mask == self.mask and not self.sending and self.lock.acquire(False):
            try:
                done = self.send_directly()
            finally:
                self.lock.release()
        if not done:
            self.published(mask)
        if self.answers is not None and mask == self.mask:
            self.answers.rung()

    cdef bint send_directly(self) except -1:
        """Sends what waits; returns False when the state machine has to go on."""
        cdef bint event = False, drained = False
        cdef list packets
        if self.size >= UNSETTLED_BYTES or not self.socket_lock.acquire(False):
            return False
        self.sending = True
        try:
            if self.ready:  # until the lock was taken, a connection may have ended
                packets, event, drained = self.send(self.number)
                self.note(packets)
        finally:
            self.sending = False
            self.socket_lock.release()
        self.ready = self.ready and drained
        if event:
            self.on_room()
        return drained

    cdef void note(self, list packets):
        """Notes packets that were sent."""
        for packet in packets:
            self.size += <uint64_t>PyBytes_GET_SIZE(<bytes>packet)
        self.number += <uint64_t>len(packets)
        self.packets += packets
        self.sent_ns = <int64_t>monotonic_ns

    def settle(self):
        cdef tuple found = (self.packets, len(self.numbers), self.sent_ns)
        self.ready = False
        self.packets, self.size = [], 0
        return found

    @property
    def unsettled(self):
        return self.ready or self.size != 0
