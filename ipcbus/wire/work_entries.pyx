# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Retained messages as entries of a SHARE_WORK; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ipcbus.wire._wire_layout cimport (
    FLAG_FRAGMENT, FLAG_GUARANTEED, FLAG_PROPERTIES, FLAG_REQUEST, FRAGMENT_HEADER_BYTES, GUARANTEED_HEADER_BYTES,
    REQUEST_HEADER_BYTES, RETAINED_HEADER_BYTES, TOPIC_BITS, FragmentHeader, RetainedHeader,
)
from ipcbus.wire.control_front cimport EntryFront
from ipcbus.wire.properties cimport block_check
from ipcbus.wire.topic_places cimport place_of
from ringbuf.ring cimport aligned

from collections import namedtuple

WorkMessage = namedtuple("WorkMessage", ("first", "last", "is_request", "entry"))


def take_apart(bytes retained not None, uint64_t following):
    cdef const char *at = PyBytes_AS_STRING(retained)
    cdef const char *end = at + PyBytes_GET_SIZE(retained)
    cdef const RetainedHeader *header
    cdef const FragmentHeader *fragment
    cdef const char *body
    cdef bytes whole = None
    cdef uint64_t length, first = 0, got = 0
    cdef int64_t sent_ns = 0
    cdef uint32_t flags
    cdef list found = []
    while end - at >= RETAINED_HEADER_BYTES:
        header = <const RetainedHeader *>at
        body, length = at + RETAINED_HEADER_BYTES, header.length
        if length > <uint64_t>(end - body):
            break
        at = body + aligned(length)
        flags = header.topic >> TOPIC_BITS
        if not flags & FLAG_FRAGMENT:
            found.append(work_message(header.sequence, header.sequence, flags, header.send_ticks, body, length))
            following = header.sequence + 1
            continue
        fragment = <const FragmentHeader *>body
        if length < FRAGMENT_HEADER_BYTES:
            break
        length -= FRAGMENT_HEADER_BYTES
        if fragment.offset == 0:
            whole, first, got, sent_ns = PyBytes_FromStringAndSize(NULL, fragment.total), header.sequence, 0, header.send_ticks
        if whole is None or fragment.offset != got or length > PyBytes_GET_SIZE(whole) - got:
            whole, following = None, header.sequence + 1
            continue
        memcpy(PyBytes_AS_STRING(whole) + got, body + FRAGMENT_HEADER_BYTES, length)
        got += length
        if got == <uint64_t>PyBytes_GET_SIZE(whole):
            found.append(work_message(first, header.sequence, flags, sent_ns, PyBytes_AS_STRING(whole), got))
            whole, following = None, header.sequence + 1
    return found, following


def goes_on(bytes retained not None, uint64_t first):
    cdef const char *at = PyBytes_AS_STRING(retained)
    cdef const RetainedHeader *header = <const RetainedHeader *>at
    cdef const FragmentHeader *fragment = <const FragmentHeader *>(at + RETAINED_HEADER_BYTES)
    if PyBytes_GET_SIZE(retained) < RETAINED_HEADER_BYTES + FRAGMENT_HEADER_BYTES:
        return False
    if not header.topic >> TOPIC_BITS & FLAG_FRAGMENT or header.length < FRAGMENT_HEADER_BYTES or fragment.first != first:
        return False
    return <uint64_t>fragment.offset + header.length - FRAGMENT_HEADER_BYTES < fragment.total


cdef object work_message(uint64_t first, uint64_t last, uint32_t flags, int64_t sent_ns, const char *data, uint64_t length):
    """Returns a message with these numbers; `data` begins with its request header, guaranteed header and header block."""
    cdef EntryFront front
    cdef uint64_t size
    cdef char *to
    front.number, front.send_time_ns, front.opening, front.place = first + 1, sent_ns, 0, place_of(first, last - first + 1)
    front.block = 0
    if flags & FLAG_REQUEST and length >= REQUEST_HEADER_BYTES:
        memcpy(&front.opening, data, REQUEST_HEADER_BYTES)
        data, length = data + REQUEST_HEADER_BYTES, length - REQUEST_HEADER_BYTES
    if flags & FLAG_GUARANTEED and length >= GUARANTEED_HEADER_BYTES:
        data, length = data + GUARANTEED_HEADER_BYTES, length - GUARANTEED_HEADER_BYTES
    if flags & FLAG_PROPERTIES:
        front.block = <uint32_t>block_check(data, length)
    front.value = <uint32_t>(length - front.block)
    size = (sizeof(EntryFront) + length + 7) & ~<uint64_t>7
    entry = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(entry)
    (<uint64_t *>(to + size - 8))[0] = 0    # the padding
    memcpy(to, &front, sizeof(EntryFront))
    memcpy(to + sizeof(EntryFront), data, length)
    return WorkMessage(first, last, bool(flags & FLAG_REQUEST), entry)
