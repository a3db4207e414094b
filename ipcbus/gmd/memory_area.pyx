# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""A sender's GMD area in memory; the stub documents it."""
cimport cython
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from ipcbus.errors import GmdError
from ipcbus.gmd.copy_area cimport CopyArea, PlaceRun, put_front
from ipcbus.gmd.copy_index cimport CopyIndex, Entry
from ipcbus.gmd.journal_records cimport padded
from ipcbus.gmd.sender_area import Recovered, SavedMessage
from ipcbus.wire.control_front cimport EntryFront


cdef bytes copied(data):
    if PyBytes_CheckExact(data):
        return data
    if not PyObject_CheckBuffer(data):
        raise TypeError(f"a message is bytes or another buffer, not {type(data).__name__}")
    return bytes(data)


@cython.final
cdef class MemoryArea(CopyArea):
    def __init__(self, str sender not None, str topic not None, uint64_t incarnation, uint64_t max_size=0):
        self.sender, self.topic, self.incarnation, self.max_size = sender, topic, incarnation, max_size
        self.checkpoint = list
        self.index = CopyIndex()
        self.messages = {}

    @property
    def durable_number(self):
        return self.last

    def save(self, uint8_t mode, uint64_t place, uint64_t send_time_ns, block, data):
        cdef bytes front = copied(block), back = copied(data)
        cdef size_t need = self.need(len(front), len(back))
        number = self.last + 1
        self.messages[number] = (number, mode, place, send_time_ns, front, back)
        self.index.append(self.last + 1, 0, 0, <uint32_t>need, mode)
        self.last += 1
        self.unsavable = self.last
        return number

    def unsave(self, uint64_t number):
        self.check_unsave(number)
        self.unsavable = 0
        del self.messages[number]
        self.index.drop_last()
        self.last -= 1

    @property
    def has_unwritten_releases(self):
        return False

    def write_releases(self):
        pass

    def load(self, uint64_t number):
        found = self.messages.get(number)
        return None if found is None else SavedMessage._make(found)

    cdef bytes pack(self, size_t begin, size_t *end, uint64_t size, PlaceRun *run, place_run):
        cdef bytes packed = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
        cdef char *to = PyBytes_AS_STRING(packed)
        cdef bytes block, data
        cdef size_t at, length, of_block
        cdef tuple message
        for at in range(begin, end[0]):
            message = self.messages[self.index.entries[at].number]
            block, data = message[4], message[5]
            of_block, length = PyBytes_GET_SIZE(block), PyBytes_GET_SIZE(block) + PyBytes_GET_SIZE(data)
            put_front(<EntryFront *>to, message[0], message[3], <uint32_t>of_block, <uint32_t>(length - of_block),
                      message[2], run, place_run)
            to += sizeof(EntryFront)
            memcpy(to, PyBytes_AS_STRING(block), of_block)
            memcpy(to + of_block, PyBytes_AS_STRING(data), length - of_block)
            memset(to + length, 0, padded(length) - length)
            to += padded(length)
        return packed

    def release(self, uint64_t first, uint64_t last):
        cdef size_t at = self.index.lower(first)
        cdef Entry *entry
        self.unsavable = 0
        while at < self.index.end and self.index.entries[at].number <= last:
            entry = self.index.entries + at
            if not entry.released:
                del self.messages[entry.number]
            at += 1
        self.index.drop(first, last)

    def note(self, payload):
        if self.refusal is not None:
            raise GmdError(self.refusal)
        self.unsavable = 0

    def recovered(self):
        return Recovered([], [], [], [])

    def sync(self):
        pass

    def check(self):
        pass

    def close(self):
        self.refuse(f"the GMD area of {self.sender} for topic {self.topic} is closed; make a new source")
        self.messages.clear()
        self.index = CopyIndex()
