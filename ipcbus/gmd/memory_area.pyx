# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""A sender's GMD area in memory; the stub documents it."""
cimport cython
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_CheckExact
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ipcbus.errors import GmdError
from ipcbus.gmd.copy_area cimport CopyArea
from ipcbus.gmd.copy_index cimport CopyIndex, Entry
from ipcbus.gmd.sender_area import Recovered, SavedMessage


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

    def save(self, uint8_t mode, uint64_t timeout_ns, uint64_t send_time_ns, block, data):
        cdef bytes front = copied(block), back = copied(data)
        cdef size_t need = self.need(len(front), len(back))
        number = self.last + 1
        self.messages[number] = (number, mode, timeout_ns, send_time_ns, front, back)
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

    def load(self, uint64_t number):
        found = self.messages.get(number)
        return None if found is None else SavedMessage._make(found)

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

    def close(self):
        self.refuse(f"the GMD area of {self.sender} for topic {self.topic} is closed; make a new source")
        self.messages.clear()
        self.index = CopyIndex()
