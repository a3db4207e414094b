# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Reads and writes records for transports over another medium; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ringbuf._layout cimport RECORD_HEADER, Record
from ringbuf._long_copy cimport copy_in_caches
from ringbuf.clock cimport epoch_ns, ticks_of
from ringbuf.ring cimport RingReader, RingWriter, aligned, next_record, step_over, writer_claim, writer_publish


def take(RingReader reader):
    cdef uint32_t messages, length
    cdef const Record *record = next_record(reader, &length)
    cdef int64_t send_time_ns
    if record == NULL:
        return None
    body = PyBytes_FromStringAndSize(<const char *>record + RECORD_HEADER, length - RECORD_HEADER)
    messages, send_time_ns = record.messages, epoch_ns(record.send_ticks)
    step_over(reader, record, messages)
    return body, messages, send_time_ns


def put(RingWriter writer, bytes packet, Py_ssize_t start, uint32_t messages, int64_t send_time_ns):
    cdef Py_ssize_t length = PyBytes_GET_SIZE(packet) - start
    return put_bytes(writer, PyBytes_AS_STRING(packet) + start, length if start >= 0 else -1, messages, send_time_ns)


cdef int64_t put_bytes(
    RingWriter writer, const char *body, Py_ssize_t length, uint32_t messages, int64_t send_time_ns
) except? -2:
    cdef char *place
    if length < 0 or RECORD_HEADER + length > writer.w.record_max:
        raise ValueError(
            f"a record of {length} bytes does not fit: the records of this ring have 0 to "
            f"{writer.w.record_max - RECORD_HEADER} bytes; make a ring for longer records"
        )
    if writer.w.used:
        raise ValueError("a record is open already; commit or cancel it first")
    place = writer_claim(&writer.w, aligned(length))
    if place == NULL:
        return -1
    copy_in_caches(place, body, <size_t>length)
    writer.w.used += length
    writer.w.messages = messages
    writer.w.open_ticks = ticks_of(send_time_ns)
    return <int64_t>writer_publish(&writer.w)
