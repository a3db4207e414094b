# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""What a source sends over connections; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from ringbuf._layout cimport RECORD_HEADER, Record
from ringbuf.clock cimport epoch_ns, ns_per_tick
from ringbuf.ring cimport RingReader, reader_done, reader_next_sealed, reader_sample, reader_show

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

cdef uint8_t DATA = udp_packets.DATA
cdef uint8_t VERSION = udp_packets.VERSION


def take_packet(RingReader reader not None, uint32_t session_id, uint64_t number):
    return take(reader, session_id, number)


cdef bytes take(RingReader reader, uint32_t session_id, uint64_t number):
    cdef uint32_t length
    cdef DataFront front
    cdef const Record *record = reader_next_sealed(&reader.r, &length)
    cdef bytes packet
    if record == NULL:
        return None
    length -= RECORD_HEADER
    fill(&front, VERSION, DATA, session_id, number, 0, record.messages, <uint64_t>epoch_ns(record.send_ticks))
    packet = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>sizeof(front) + length)
    memcpy(PyBytes_AS_STRING(packet), &front, sizeof(front))
    memcpy(PyBytes_AS_STRING(packet) + sizeof(front), <const char *>record + RECORD_HEADER, length)
    reader.r.sample_weight = record.messages
    reader_sample(&reader.r, record.send_ticks, ns_per_tick())
    if reader_done(&reader.r):
        reader.owes_event = True
    return packet


def send_records(RingReader reader not None, list numbers not None, uint32_t session_id, uint64_t number):
    cdef iovec parts[2 * RECORDS]
    cdef uint32_t lengths[RECORDS]
    cdef Py_ssize_t gathered, total
    cdef bytes packet
    cdef list packets = [], sent = []
    cdef bint event = reader.owes_event, drained = False, whole = True
    reader.owes_event = False
    while whole and not drained and len(packets) < MOST:
        gathered, total = len(packets), 0
        while len(packets) - gathered < RECORDS and total < BYTES:
            packet = take(reader, session_id, number)
            if packet is None:
                drained = True
                break
            number += 1
            packets.append(packet)
            total += LENGTH_BYTES + PyBytes_GET_SIZE(packet)
        if len(packets) == gathered:
            break
        fill_parts(parts, lengths, packets, gathered)
        sent = [send_parts(fd, parts, 2 * (len(packets) - gathered)) for fd in numbers]
        whole = min(sent) == total
        # A source that waits for room need not wait for all of them.
        event |= reader_show(&reader.r) or reader.owes_event
        reader.owes_event = False
    if whole:
        return packets, event, drained and not reader.r.stopped, [], []
    return packets, event, False, sent, packets[gathered:]


cdef void fill_parts(iovec *parts, uint32_t *lengths, list packets, Py_ssize_t start) noexcept:
    """Lists the bytes of packets, each behind its length."""
    cdef Py_ssize_t i
    cdef bytes packet
    for i in range(len(packets) - start):
        packet = <bytes>packets[start + i]
        lengths[i] = htobe32(<uint32_t>PyBytes_GET_SIZE(packet))
        parts[2 * i].iov_base = &lengths[i]
        parts[2 * i].iov_len = LENGTH_BYTES
        parts[2 * i + 1].iov_base = PyBytes_AS_STRING(packet)
        parts[2 * i + 1].iov_len = <size_t>PyBytes_GET_SIZE(packet)


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
