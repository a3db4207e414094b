# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The appending path of a journal; the stub documents it."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from ipcbus.errors import GmdAreaFull, GmdError
from ipcbus.gmd._journal_layout cimport (
    END_BYTES,
    HEAD_BYTES,
    KIND_MESSAGE,
    KIND_NOTE,
    KIND_RELEASE,
    KIND_SYNCED,
    RecordHead,
)
from ipcbus.gmd.copy_area cimport CopyArea, Part, PlaceRun, give_back, put_front, take
from ipcbus.gmd.copy_index cimport CopyIndex, Entry
from ipcbus.gmd.journal_records cimport padded, put_end, seal, whole
from ipcbus.gmd.journal_records import segment_stamp
from ipcbus.storage.file_calls cimport write_fully
from ipcbus.wire.control_front cimport EntryFront

cdef enum:
    BESIDE = HEAD_BYTES + END_BYTES     # what is written with a record: the SYNCED record before it, and the end mark
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

    def set_garbage(self, uint64_t older_bytes, uint64_t most):
        self.older_bytes, self.garbage_max = older_bytes, most

    @property
    def durable_number(self):
        return self.durable

    # ------------------------------------------------------------------ records

    def save(self, uint8_t mode, uint64_t place, uint64_t send_time_ns, block, data):
        cdef Part front, back
        cdef size_t need, at
        front.held = back.held = False
        try:
            take(&front, block)
            take(&back, data)
            need = self.need(front.length, back.length)
            if self.end + need + BESIDE > self.room:
                self.make_room(need + BESIDE)
            self.hold(need + BESIDE)
            at = self.put_mark()
            memcpy(self.buffer + at + HEAD_BYTES, front.at, front.length)
            memcpy(self.buffer + at + HEAD_BYTES + front.length, back.at, back.length)
            seal(self.buffer + at, KIND_MESSAGE, mode, front.length, front.length + back.length,
                 self.stamp ^ <uint32_t>((self.end + at) >> 3), self.last + 1, send_time_ns, place)
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
        if self.older_bytes + self.end > 2 * self.index.bytes + self.garbage_max:
            self.drop_garbage()

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

    @property
    def has_unwritten_releases(self):
        return self.run_last != 0

    def write_releases(self):
        if self.refusal is None:
            self.write_run()

    def note_closed(self):
        self.append_other(KIND_SYNCED, self.mark, 1, b"")

    cdef int append_other(self, int kind, uint64_t first, uint64_t second, bytes payload) except -1:
        cdef size_t length = len(payload), need = HEAD_BYTES + padded(length), at
        self.unsavable = 0
        if self.end + need + BESIDE > self.note_room:
            self.make_note_room(need + BESIDE)
        self.hold(need + BESIDE)
        at = self.put_mark()
        memcpy(self.buffer + at + HEAD_BYTES, PyBytes_AS_STRING(payload), length)
        seal(self.buffer + at, kind, 0, 0, length, self.stamp ^ <uint32_t>((self.end + at) >> 3), self.last, first,
             second)
        self.write(at + need)
        self.mark = 0
        self.end += at + need
        return 0

    # ------------------------------------------------------------------ reading

    cdef bytes pack(self, size_t begin, size_t *end, uint64_t size, PlaceRun *run, place_run):
        cdef Entry *entry = self.index.entries + begin
        cdef Entry *last = self.index.entries + end[0] - 1
        cdef uint64_t offset = <uint64_t>entry.place << 3, behind = (<uint64_t>last.place << 3) + last.bytes
        cdef uint32_t stamp = segment_stamp(self.incarnation, entry.serial)
        cdef bytes block = self.read_block(entry.serial, offset, behind - offset)
        cdef bytes packed = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
        cdef char *to = PyBytes_AS_STRING(packed)
        cdef size_t length = PyBytes_GET_SIZE(block), from_
        cdef RecordHead *head
        cdef size_t at
        for at in range(begin, end[0]):
            entry = self.index.entries + at
            from_ = (<uint64_t>entry.place << 3) - offset
            head = NULL
            if from_ < length:
                head = whole(PyBytes_AS_STRING(block) + from_, length - from_, stamp ^ entry.place)
            if head is NULL or head.number != entry.number or HEAD_BYTES + padded(head.length) != entry.bytes:
                end[0] = at
                return packed[:to - PyBytes_AS_STRING(packed)]
            put_front(<EntryFront *>to, head.number, <int64_t>head.first, head.block, head.length - head.block,
                      head.second, run, place_run)
            memcpy(to + sizeof(EntryFront), <char *>head + HEAD_BYTES, padded(head.length))     # with its padding
            to += sizeof(EntryFront) + padded(head.length)
        return packed

    # ------------------------------------------------------------------ writing

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
        """Writes the buffer, and an end mark behind it, at the end of the segment."""
        cdef int worked = False
        put_end(self.buffer + length, self.stamp ^ <uint32_t>((self.end + length) >> 3))
        length += END_BYTES
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

    def drop_garbage(self):
        raise NotImplementedError

    def write_slowly(self, data):
        raise NotImplementedError

    def cut_back(self):
        raise NotImplementedError

    def cut_quietly(self):
        raise NotImplementedError

    def sync_save(self):
        raise NotImplementedError

    def read_block(self, serial, offset, length):
        raise NotImplementedError
