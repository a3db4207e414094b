# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""What an area in memory and an area in files have in common; the stub documents it."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport UINT16_MAX

from ipcbus.errors import GmdAreaFull, GmdError, MessageTooLarge
from ipcbus.gmd._journal_layout cimport BODY_MAX, HEAD_BYTES
from ipcbus.gmd.copy_index cimport CopyIndex, Entry
from ipcbus.gmd.journal_records cimport padded
from ipcbus.wire.control_front cimport EntryFront

cdef enum:
    GAP_MAX = 4096      # bytes of other records that are read between two messages


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
        if self.max_size and need > self.max_size:
            raise GmdAreaFull(
                f"topic {self.topic}: a guaranteed message of {need} bytes never fits into the GMD area of {self.sender}, "
                f"which has a maximum of {self.max_size}; raise the maximum (option gmd_max_size, gmd_set_max_size), or "
                "send it in parts"
            )
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

    def entries(self, uint64_t first, uint64_t last, uint64_t bytes_max, place_run):
        cdef CopyIndex index = self.index
        cdef size_t at = index.lower(first), begin, packed
        cdef uint64_t total = 0, size
        cdef Entry *entry
        cdef Entry *before
        cdef PlaceRun run
        cdef list parts = []
        cdef size_t count = 0
        run.number = run.end = 0
        while at < index.end and index.entries[at].number <= last:
            begin, size = at, 0
            while at < index.end:
                entry = index.entries + at
                if entry.number > last or entry.released or entry.bytes == 0:
                    break
                if total + size and total + size + entry_bytes(entry) > bytes_max:
                    last = entry.number - 1
                    break
                if at > begin:
                    before = entry - 1
                    if not follows(before, entry):
                        break
                size += entry_bytes(entry)
                at += 1
            if at == begin:
                at += 1     # nothing is kept of this number, or it is above the last one
                continue
            packed = at
            part = self.pack(begin, &packed, size, &run, place_run)
            if packed > begin:
                parts.append(part)
                count += packed - begin
                total += len(part)
            if packed < at:
                last = index.entries[packed].number - 1
                if not parts:
                    self.load(last + 1)     # says what is damaged
                break
        return parts, count, total, last + 1

    cdef bytes pack(self, size_t begin, size_t *end, uint64_t size, PlaceRun *run, place_run):
        """Returns the copies index.entries[begin:end] as entries of a GMD_RESENT; `end` is where damage begins."""
        raise NotImplementedError


cdef inline uint64_t entry_bytes(Entry *entry) noexcept:
    """Returns the bytes of a message as an entry of a GMD_RESENT; both it and the record are padded to 8."""
    return entry.bytes - HEAD_BYTES + sizeof(EntryFront)


cdef inline bint follows(Entry *before, Entry *entry) noexcept:
    """Returns whether a record stands closely behind another one, so that one read gets both."""
    cdef uint64_t end = (<uint64_t>before.place << 3) + before.bytes, begin = <uint64_t>entry.place << 3
    return before.serial == entry.serial and end <= begin <= end + GAP_MAX


cdef int put_front(EntryFront *front, uint64_t number, int64_t send_time_ns, uint32_t block, uint32_t value,
                   uint64_t place, PlaceRun *run, object place_run) except -1:
    """Writes the front of an entry; `place` is the one of the record."""
    if not run.number <= number <= run.end or run.number == 0:
        run.opening, corrected, run.end = place_run(number)
        run.number, run.is_corrected = number, corrected is not None
        run.place = 0 if corrected is None else corrected
    front.number, front.send_time_ns, front.block, front.value = number, send_time_ns, block, value
    front.opening, front.place = run.opening, run.place if run.is_corrected else place
    return 0
