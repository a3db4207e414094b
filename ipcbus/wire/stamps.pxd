# The distance from one message of a datagram to the next, and the stamps of messages.
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ipcbus.wire._wire_layout cimport FLAG_STAMPED, MESSAGE_HEADER_BYTES, STAMP_BYTES, TOPIC_BITS
from ringbuf.ring cimport aligned

cdef enum:
    STAMPED = FLAG_STAMPED << TOPIC_BITS    # bit of a header's topic word
    STAMP_SHIFT = TOPIC_BITS + 3            # moves that bit to the value of STAMP_BYTES


cdef inline uint64_t body_bytes(uint32_t length, uint32_t word) noexcept nogil:
    """Returns the bytes behind a message header, without padding: the payload, and the stamp if it has one."""
    return <uint64_t>length + (word >> STAMP_SHIFT & STAMP_BYTES)


cdef inline uint64_t stride(uint64_t body) noexcept nogil:
    """Returns the bytes from a message's header to the next one."""
    return MESSAGE_HEADER_BYTES + aligned(body)


cdef inline uint64_t stamp_ticks(const char *message, uint32_t length, double ticks_per_stamp) noexcept nogil:
    """Returns the time in the stamp of a message: ticks since the begin of its datagram."""
    cdef uint32_t stamp
    memcpy(&stamp, message + MESSAGE_HEADER_BYTES + length, STAMP_BYTES)
    return <uint64_t><int64_t>(<double>stamp * ticks_per_stamp)  # signed: one instruction


cdef inline void put_stamp(char *place, uint64_t ticks, double stamps_per_tick) noexcept nogil:
    cdef double units = <double><int64_t>ticks * stamps_per_tick
    cdef uint32_t stamp = <uint32_t>units if units < 4294967295.0 else 0xFFFFFFFFU
    memcpy(place, &stamp, STAMP_BYTES)
