# The bytes before a message's value: a request header, a header block, or both in this order.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from ringbuf._long_copy cimport copy_message


cdef inline void copy_part(
    char *to, bytes front, const char *data, uint64_t offset, uint64_t length, uint64_t past_caches_from
) noexcept:
    """Copies `length` bytes from `offset` on out of the bytes before the data (None without) followed by the data."""
    cdef uint64_t before = 0 if front is None else <uint64_t>PyBytes_GET_SIZE(front), some
    if offset < before:
        some = min(length, before - offset)
        memcpy(to, PyBytes_AS_STRING(front) + offset, some)
        to, offset, length = to + some, before, length - some
    copy_message(to, data + (offset - before), length, past_caches_from)
