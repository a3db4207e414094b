# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""What an area in memory and an area in files have in common; the stub documents it."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport UINT16_MAX

from ipcbus.errors import GmdAreaFull, GmdError, MessageTooLarge
from ipcbus.gmd._journal_layout cimport BODY_MAX, HEAD_BYTES
from ipcbus.gmd.copy_index cimport CopyIndex, Entry
from ipcbus.gmd.journal_records cimport padded


cdef int take(Part *part, object data) except -1:
    """Gives access to the bytes of an object, until `give_back`."""
    part.held = not PyBytes_CheckExact(data)
    if part.held:
        PyObject_GetBuffer(data, &part.view, PyBUF_SIMPLE)
        part.at, part.length = <const char *>part.view.buf, <size_t>part.view.len
    else:
        part.at, part.length = PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data)
    return 0


cdef void give_back(Part *part) noexcept:
    if part.held:
        PyBuffer_Release(&part.view)


cdef class CopyArea:
    @property
    def last_number(self):
        return self.last

    @property
    def size(self):
        return self.index.bytes

    @property
    def pending(self):
        return self.index.count

    def refuse(self, str reason not None):
        self.refusal = reason

    cdef size_t need(self, size_t block, size_t data) except 0:
        """Returns the bytes of a message's record; checks that the area takes it."""
        cdef size_t need = HEAD_BYTES + padded(block + data)
        if self.refusal is not None:
            raise GmdError(self.refusal)
        if self.max_size and self.index.bytes + need > self.max_size:
            raise GmdAreaFull(
                f"the GMD area of {self.sender} for topic {self.topic} holds {self.index.bytes} bytes, and a message "
                f"of {need} bytes would exceed its maximum of {self.max_size}; let receivers acknowledge messages, or "
                "raise the maximum (gmd_set_max_size)"
            )
        if block > UINT16_MAX or block + data > BODY_MAX:
            raise MessageTooLarge(
                f"topic {self.topic}: a guaranteed message of {data} bytes with {block} bytes of headers is longer "
                f"than a GMD area takes ({BODY_MAX} bytes, {UINT16_MAX} of them headers); send it in parts"
            )
        return need

    cdef int check_unsave(self, uint64_t number) except -1:
        if number == 0 or number != self.unsavable:
            raise GmdError(
                f"the GMD area of {self.sender} for topic {self.topic}: message {number} was not saved by the last "
                "call, so it cannot be taken back; release it"
            )
        return 0

    def load_range(self, uint64_t first, uint64_t last, long long bytes_max):
        cdef size_t at = self.index.lower(first)
        cdef Entry *entry
        cdef list found = []
        while at < self.index.end and self.index.entries[at].number <= last:
            entry = self.index.entries + at
            at += 1
            # Bytes of the record: no more messages are read than fit.
            if entry.released or entry.bytes == 0:
                continue
            if found and bytes_max < <long long>entry.bytes - HEAD_BYTES - 7:
                break
            message = self.load(entry.number)
            bytes_max -= len(message.block) + len(message.data)
            if bytes_max < 0 and found:
                break
            found.append(message)
        return found
