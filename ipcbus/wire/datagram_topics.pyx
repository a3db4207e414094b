# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The topics of a datagram; see the stub for the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t

from ipcbus.wire._wire_layout cimport MESSAGE_HEADER_BYTES, TOPIC_MASK, MessageHeader
from ipcbus.wire.stamps cimport body_bytes, stride


def topics_of(bytes datagram, Py_ssize_t start=0):
    cdef const char *end = PyBytes_AS_STRING(datagram) + PyBytes_GET_SIZE(datagram)
    cdef const MessageHeader *header
    cdef int64_t left = PyBytes_GET_SIZE(datagram) - start     # signed: a wrong length may reach past the end
    cdef uint32_t topic, before = 0xFFFFFFFFU
    cdef set found = set()
    if start < 0:
        return None
    while left >= MESSAGE_HEADER_BYTES:
        header = <const MessageHeader *>(end - left)
        topic = header.topic & TOPIC_MASK
        if topic != before:
            found.add(topic)
            before = topic
        left -= <int64_t>stride(body_bytes(header.length, header.topic))
    return found if left == 0 and found else None
