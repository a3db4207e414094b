# Walks through the messages of a datagram and reads their headers.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.wire._wire_layout cimport (
    FLAG_FRAGMENT, FLAG_TSNI, FRAGMENT_HEADER_BYTES, MESSAGE_HEADER_BYTES, STAMP_BYTES, TOPIC_BITS, FragmentHeader,
    MessageHeader,
)
from ipcbus.wire.stamps cimport STAMPED, body_bytes, stamp_ticks, stride

cdef extern from "Python.h":
    bint unlikely(bint condition) noexcept nogil    # defined in the code that Cython generates

cdef enum:
    TSNI_BIT = TOPIC_BITS + 3


cdef inline int flags_of(uint32_t word) noexcept:
    """Returns the flags of a message, without the one that only says how it was sent."""
    return (word & ~<uint32_t>STAMPED) >> TOPIC_BITS


cdef inline int64_t count_messages(const char *cursor, const char *end) noexcept:
    """Returns the number of messages in a datagram; -1 when they do not end exactly where it ends."""
    cdef const MessageHeader *header
    cdef int64_t left = end - cursor, count = 0     # signed: a wrong length may reach past the end
    cdef uint64_t body, before = 0, step = MESSAGE_HEADER_BYTES
    cdef uint32_t word
    if left >= MESSAGE_HEADER_BYTES:
        header = <const MessageHeader *>cursor
        word = header.topic
        if left == <int64_t>stride(body_bytes(header.length, word)):
            return ~(word >> TSNI_BIT) & 1      # one message, as in each datagram of LBT-SMX
    while left >= MESSAGE_HEADER_BYTES:
        header = <const MessageHeader *>cursor
        word = header.topic
        count += ~(word >> TSNI_BIT) & 1
        body = body_bytes(header.length, word)
        # Mostly as long as the message before: then the next header can be read without waiting for this one.
        if unlikely(body != before):
            before, step = body, stride(body)
        left -= step
        cursor = end - left
    return count if left == 0 else -1


cdef inline uint64_t sent_after(const char *cursor, const char *end, int64_t place, double ticks_per_stamp) noexcept:
    """Returns how many ticks after its datagram was begun the message at this place was sent."""
    cdef const MessageHeader *header
    cdef const char *first = cursor
    cdef uint32_t word, length
    while end - cursor >= MESSAGE_HEADER_BYTES:
        header = <const MessageHeader *>cursor
        word, length = header.topic, header.length
        if <int64_t>body_bytes(length, word) > end - cursor - MESSAGE_HEADER_BYTES:
            break
        if place == 0 and not word >> TSNI_BIT & 1:
            if word & STAMPED and cursor != first:
                return stamp_ticks(cursor, length, ticks_per_stamp)
            break
        place -= ~(word >> TSNI_BIT) & 1
        cursor += stride(body_bytes(length, word))
    return 0


cdef inline uint64_t published_after(const char *first, const char *end, double ticks_per_stamp) noexcept:
    """Returns how many ticks after it was begun a datagram was published."""
    cdef const MessageHeader *header = <const MessageHeader *>first
    cdef uint32_t length
    if end - first < MESSAGE_HEADER_BYTES or not header.topic & STAMPED:
        return 0
    length = header.length  # once: its source may change it
    if <int64_t>length + STAMP_BYTES > end - first - MESSAGE_HEADER_BYTES:
        return 0
    return stamp_ticks(first, length, ticks_per_stamp)


cdef inline bint completes(const char *payload, uint32_t length, uint32_t flags) noexcept:
    """Returns whether an item with an unusual flag is a message, or the last fragment of one."""
    cdef const FragmentHeader *fragment = <const FragmentHeader *>payload
    if flags & FLAG_TSNI:
        return False
    if not flags & FLAG_FRAGMENT:
        return True
    if length < FRAGMENT_HEADER_BYTES:
        return False
    return <uint64_t>fragment.offset + length - FRAGMENT_HEADER_BYTES >= fragment.total
