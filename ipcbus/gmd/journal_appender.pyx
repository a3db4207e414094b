# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The appending path of a journal; the stub documents it."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from ipcbus.errors import GmdAreaFull, GmdError
from ipcbus.gmd._journal_layout cimport HEAD_BYTES, KIND_MESSAGE, KIND_NOTE, KIND_RELEASE, KIND_SYNCED
from ipcbus.gmd.copy_area cimport CopyArea, Part, give_back, take
from ipcbus.gmd.copy_index cimport CopyIndex
from ipcbus.gmd.journal_records cimport padded, seal
from ipcbus.gmd.journal_records import segment_stamp
from ipcbus.storage.file_calls cimport write_fully

cdef enum:
    LONG_WRITE = 1 << 18    # other threads run during a longer write
    RUN_CALLS_MAX = 64      # calls of release that one record joins


cdef class JournalAppender(CopyArea):
    def __init__(self, str sender not None, str topic not None, uint64_t incarnation, uint64_t max_size,
                 CopyIndex index not None, uint64_t last, *, bint each):
        self.sender, self.topic, self.incarnation, self.max_size = sender, topic, incarnation, max_size
        self.index, self.last, self.each = index, last, each
        self.fd = -1

    def __dealloc__(self):
        free(self.buffer)

    def begin_segment(self, file, uint64_t serial, uint64_t end):
        self.current, self.fd = file, file.descriptor
        self.stamp = segment_stamp(self.incarnation, serial)
        self.serial, self.end = serial, end
        self.room = self.note_room = self.appended = self.mark = self.unsavable = 0
        self.run_first = self.run_last = 0      # the state of the segment says it
        self.run_calls = 0

    def set_room(self, uint64_t room, uint64_t note_room):
        self.room, self.note_room = room, note_room

    @property
    def durable_number(self):
        return self.durable

    # ------------------------------------------------------------------ records

    def save(self, uint8_t mode, uint64_t timeout_ns, uint64_t send_time_ns, block, data):
        cdef Part front, back
        cdef size_t need, at
        front.held = back.held = False
        try:
            take(&front, block)
            take(&back, data)
            need = self.need(front.length, back.length)
            if self.end + need + HEAD_BYTES > self.room:
                self.make_room(need + HEAD_BYTES)
            self.hold(need + HEAD_BYTES)
            at = self.put_mark()
            memcpy(self.buffer + at + HEAD_BYTES, front.at, front.length)
            memcpy(self.buffer + at + HEAD_BYTES + front.length, back.at, back.length)
            seal(self.buffer + at, KIND_MESSAGE, mode, front.length, front.length + back.length,
                 self.stamp ^ <uint32_t>((self.end + at) >> 3), self.last + 1, send_time_ns, timeout_ns)
        finally:
            give_back(&front)
            give_back(&back)
        self.write(at + need)
        self.mark = 0
        self.end += at
        self.index.append(self.last + 1, <uint32_t>self.serial, self.end, <uint32_t>need, mode)
        self.end += need
        self.appended += need
        self.last += 1
        self.unsavable = self.last
        if self.each:
            try:
                self.sync_save()
            except BaseException:
                self.unsavable = 0
                self.index.drop_last()
                self.last -= 1
                self.end -= need
                self.appended -= need
                self.cut_quietly()
                raise
        return self.last

    def unsave(self, uint64_t number):
        cdef uint64_t length
        self.check_unsave(number)
        self.unsavable = 0
        length = self.index.entries[self.index.end - 1].bytes
        self.index.drop_last()
        self.last -= 1
        self.end -= length
        self.appended -= length
        self.durable = min(self.durable, self.last)
        self.syncing_number = min(self.syncing_number, self.last)
        self.syncing_end = min(self.syncing_end, self.end)
        self.mark = min(self.mark, self.end)
        self.room = self.note_room = 0      # the cut gives up what was allocated
        self.cut_back()

    def release(self, uint64_t first, uint64_t last):
        self.unsavable = 0
        last = min(last, self.last)     # a later message may be saved before the record is written
        if not self.index.drop(first, last) or self.refusal is not None:
            return
        if self.run_last and (first > self.run_last + 1 or last + 1 < self.run_first):
            self.write_run()
        self.run_first = min(first, self.run_first) if self.run_last else first
        self.run_last = max(last, self.run_last)
        self.run_calls += 1
        if self.run_calls >= RUN_CALLS_MAX:
            self.write_run()

    cdef int write_run(self) except -1:
        cdef uint64_t first = self.run_first, last = self.run_last
        self.run_first = self.run_last = 0
        self.run_calls = 0
        if last:
            try:
                self.append_other(KIND_RELEASE, first, last, b"")
            except GmdAreaFull:
                pass    # the next segment says it; until then, a restart sends these messages again
        return 0

    def note(self, bytes payload not None):
        if self.refusal is not None:
            raise GmdError(self.refusal)
        self.write_run()
        self.append_other(KIND_NOTE, 0, 0, payload)

    def write_releases(self):
        self.write_run()

    def note_closed(self):
        self.append_other(KIND_SYNCED, self.mark, 1, b"")

    cdef int append_other(self, int kind, uint64_t first, uint64_t second, bytes payload) except -1:
        cdef size_t length = len(payload), need = HEAD_BYTES + padded(length), at
        self.unsavable = 0
        if self.end + need + HEAD_BYTES > self.note_room:
            self.make_note_room(need + HEAD_BYTES)
        self.hold(need + HEAD_BYTES)
        at = self.put_mark()
        memcpy(self.buffer + at + HEAD_BYTES, PyBytes_AS_STRING(payload), length)
        seal(self.buffer + at, kind, 0, 0, length, self.stamp ^ <uint32_t>((self.end + at) >> 3), self.last, first,
             second)
        self.write(at + need)
        self.mark = 0
        self.end += at + need
        return 0

    cdef int hold(self, size_t length) except -1:
        """Makes the buffer large enough."""
        cdef char *larger
        if length > self.buffer_size:
            length += length // 2
            larger = <char *>realloc(self.buffer, length)
            if larger is NULL:
                raise MemoryError
            self.buffer, self.buffer_size = larger, length
        return 0

    cdef size_t put_mark(self) noexcept:
        """Begins what is written with a SYNCED record, if one is due; returns its length."""
        if self.mark == 0:
            return 0
        seal(self.buffer, KIND_SYNCED, 0, 0, 0, self.stamp ^ <uint32_t>(self.end >> 3), self.last, self.mark, 0)
        return HEAD_BYTES

    cdef int write(self, size_t length) except -1:
        """Writes the buffer at the end of the segment."""
        cdef int worked = False
        if self.fd >= 0:
            if length > LONG_WRITE:
                with nogil:
                    worked = write_fully(self.fd, self.buffer, length, self.end)
            else:
                worked = write_fully(self.fd, self.buffer, length, self.end)
        if not worked:
            self.write_slowly(PyBytes_FromStringAndSize(self.buffer, length))
        return 0

    # ------------------------------------------------------------------ syncing, maybe in another thread

    def begin_sync(self):
        self.syncing_number, self.syncing_end, self.syncing = self.last, self.end, self.current
        return self.current

    def end_sync(self, bint worked):
        if worked:
            self.durable = max(self.durable, self.syncing_number)
            if self.syncing is self.current:
                self.mark = self.syncing_end
        self.syncing = None

    def all_durable(self):
        self.durable = self.last

    # ------------------------------------------------------------------ what a subclass does

    def make_room(self, need):
        raise NotImplementedError

    def make_note_room(self, need):
        raise NotImplementedError

    def write_slowly(self, data):
        raise NotImplementedError

    def cut_back(self):
        raise NotImplementedError

    def cut_quietly(self):
        raise NotImplementedError

    def sync_save(self):
        raise NotImplementedError
