# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The records of a journal; the stub documents it."""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from ipcbus.gmd._journal_layout cimport (
    BODY_MAX,
    END_BYTES,
    END_MAGIC,
    KIND_COPY,
    KIND_MESSAGE,
    KIND_RELEASE,
    RECORD_MAGIC,
    EndMark,
)
from ipcbus.gmd.copy_index cimport CopyIndex, Entry
from ringbuf._checksum cimport crc32c


cdef void seal(char *record, int kind, int mode, size_t block, size_t length, uint32_t stamp, uint64_t number,
               uint64_t first, uint64_t second) noexcept nogil:
    """Writes head and padding of a record whose body is in place.

    `stamp` is the stamp of the segment XOR the record's offset divided by 8.
    """
    cdef RecordHead *head = <RecordHead *>record
    memset(record + HEAD_BYTES + length, 0, padded(length) - length)
    head.magic = <uint32_t>RECORD_MAGIC
    head.length = <uint32_t>length
    head.kind = <uint8_t>kind
    head.mode = <uint8_t>mode
    head.block = <uint16_t>block
    head.stamp = stamp
    head.number = number
    head.first = first
    head.second = second
    head.body_crc = crc32c(0, record + HEAD_BYTES, padded(length))
    head.head_crc = crc32c(0, &head.body_crc, HEAD_BYTES - 8)


cdef void put_end(char *at, uint32_t stamp) noexcept nogil:
    """Writes an end mark; for `stamp` see `seal`."""
    cdef EndMark *mark = <EndMark *>at
    mark.stamp, mark.magic = stamp, <uint32_t>END_MAGIC


cdef RecordHead *good_head(const char *data, size_t left, uint32_t stamp) noexcept nogil:
    """Returns the head of a record; NULL where it is damaged or not there."""
    cdef RecordHead *head = <RecordHead *>data
    if left < HEAD_BYTES or head.magic != <uint32_t>RECORD_MAGIC or head.stamp != stamp or head.length > BODY_MAX:
        return NULL
    if head.head_crc != crc32c(0, &head.body_crc, HEAD_BYTES - 8) or head.block > head.length:
        return NULL
    return head


cdef RecordHead *whole(const char *data, size_t left, uint32_t stamp) noexcept nogil:
    """Returns the head of a record whose body is good, too; NULL otherwise."""
    cdef RecordHead *head = good_head(data, left, stamp)
    if head is NULL or padded(head.length) > left - HEAD_BYTES:
        return NULL
    if head.body_crc != crc32c(0, data + HEAD_BYTES, padded(head.length)):
        return NULL
    return head


cdef inline uint32_t stamp_at(uint32_t stamp, size_t at) noexcept nogil:
    return stamp ^ <uint32_t>(at >> 3)


@cython.final
cdef class Record:
    cdef readonly int kind, mode
    cdef readonly object number, first, second
    cdef readonly bytes block, body
    cdef readonly size_t offset, size


@cython.final
cdef class Bytes:
    """The bytes of a buffer, for the time of a call."""
    cdef Py_buffer view
    cdef const char *at
    cdef size_t length

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.at, self.length = <const char *>self.view.buf, <size_t>self.view.len

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


def checksum(data):
    cdef Bytes some = Bytes(data)
    return crc32c(0, some.at, some.length)


def segment_stamp(uint64_t incarnation, uint64_t serial):
    cdef uint64_t both[2]
    both[0], both[1] = incarnation, serial
    return crc32c(0, both, sizeof(both))


def pack(int kind, uint32_t stamp, size_t offset, uint64_t number, *, uint64_t first=0, uint64_t second=0, int mode=0,
         block=b"", body=b""):
    cdef Bytes front = Bytes(block), back = Bytes(body)
    cdef size_t length = front.length + back.length
    cdef bytes record = PyBytes_FromStringAndSize(NULL, HEAD_BYTES + padded(length))
    cdef char *at = PyBytes_AS_STRING(record)
    if length > BODY_MAX or front.length > 0xFFFF:
        raise ValueError(f"a record of {length} bytes, {front.length} of them headers, is too long for a journal")
    memcpy(at + HEAD_BYTES, front.at, front.length)
    memcpy(at + HEAD_BYTES + front.length, back.at, back.length)
    seal(at, kind, mode, front.length, length, stamp_at(stamp, offset), number, first, second)
    return record


def end_mark(uint32_t stamp, size_t offset):
    cdef char mark[END_BYTES]
    put_end(mark, stamp_at(stamp, offset))
    return mark[:END_BYTES]


def read(data, size_t at, uint32_t stamp):
    cdef Bytes some = Bytes(data)
    cdef RecordHead *head
    cdef const char *body
    cdef Record record
    if at > some.length:
        return None
    head = whole(some.at + at, some.length - at, stamp_at(stamp, at))
    if head is NULL:
        return None
    body = some.at + at + HEAD_BYTES
    record = Record()
    record.kind, record.mode = head.kind, head.mode
    record.number, record.first, record.second = head.number, head.first, head.second
    record.block = body[:head.block]
    record.body = body[head.block:head.length]
    record.offset, record.size = at, HEAD_BYTES + padded(head.length)
    return record


def claim(data, size_t at, uint32_t stamp):
    cdef Bytes some = Bytes(data)
    cdef RecordHead *head = NULL
    if at < some.length:
        head = good_head(some.at + at, some.length - at, stamp_at(stamp, at))
    return None if head is NULL else (head.kind, HEAD_BYTES + padded(head.length))


def find(data, size_t at, uint32_t stamp):
    cdef Bytes some = Bytes(data)
    at = padded(at)
    while at + HEAD_BYTES <= some.length:
        if whole(some.at + at, some.length - at, stamp_at(stamp, at)) is not NULL:
            return at
        at += 8
    return -1


def replay(data, size_t at, size_t stop, uint32_t stamp, uint32_t serial, CopyIndex index not None, int64_t last):
    cdef Bytes some = Bytes(data)
    cdef RecordHead *head
    cdef Entry *entry
    cdef size_t size
    stop = min(stop, some.length)
    while at < stop:
        head = whole(some.at + at, some.length - at, stamp_at(stamp, at))
        if head is NULL:
            break
        size = HEAD_BYTES + padded(head.length)
        if head.kind == KIND_MESSAGE and last >= 0:
            if head.number != <uint64_t>last + 1:
                break
            last += 1
            index.append(head.number, 0, 0, 0, head.mode)
            index.move(index.entries + index.end - 1, serial, at, <uint32_t>size, head.mode)
        elif head.kind == KIND_MESSAGE or head.kind == KIND_COPY:
            entry = index.find(head.number)
            if entry is not NULL and (entry.bytes == 0 or entry.serial <= serial):
                index.move(entry, serial, at, <uint32_t>size, head.mode)
        elif last >= 0:
            if head.kind != KIND_RELEASE or head.number > <uint64_t>last:
                break
            index.drop(head.first, head.second)
        at += size
    return at, last
