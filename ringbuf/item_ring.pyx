# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""A queue of items between many processes; the stub has the documentation."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

import fcntl
import hmac
import os
from hashlib import blake2b

from ringbuf cimport _atomics
from ringbuf._item_layout cimport (
    ITEM_ALIGN, ITEM_CHUNK, ITEM_CHUNKS_MAX, ITEM_HEADER_BYTES, ITEM_KEEP, ITEM_MAP_OFFSET, ITEM_SIGNED, ITEM_TAG_BYTES,
    ITEM_WRITABLE, ItemHeader, ItemSide,
)
from ringbuf._robust_lock cimport LOCK_BUSY, LOCK_INHERITED, lock_make, lock_release, lock_try, lock_wait
from ringbuf.clock cimport monotonic_ns
from ringbuf.memory cimport Mapping
from ringbuf.wake cimport futex_wait, futex_wake

from ringbuf import item_layout, segment
from ringbuf.ring_errors import SegmentFull, SegmentMismatch, SegmentRefused, SegmentSpoiled

cdef extern from "<fcntl.h>" nogil:
    int posix_fallocate(int fd, int64_t offset, int64_t length)
    int fallocate(int fd, int mode, int64_t offset, int64_t length)
    int FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE

cdef extern from "<unistd.h>" nogil:
    uint32_t geteuid()
    int close(int fd)

cdef enum:
    DONE, FULL_OF_ITEMS, FULL_OF_BYTES, NO_MEMORY, DAMAGED

cdef enum:
    BIG = 1 << 16               # bytes from which on an item is copied without the GIL
    SIGNED_WHOLE = 1 << 10
    GIVEN_BACK = 8              # most pieces that one item gives back to the system
    SPINS_MIN = 64
    SPINS_MAX = 1024
    LOCK_SPINS = 200
    LOCK_SLICE_NS = 50_000_000  # signals are looked at between two slices
    RECHECK_NS = 250_000_000    # who wakes a process may be killed before it does, or the one that was woken

cdef int64_t PATIENCE_NS = 20_000_000
"""How long a call waits beyond its timeout for a lock, while no item is put, or got, under it.

A call that does not wait would fail beside a holder that copies one item, for microseconds, or that the system has set
aside for the turn of another process. A holder that is stopped, or copies very much, is not waited for any longer.
"""

cdef int64_t TURN_NS = 200_000_000
"""How long a call waits beyond its timeout for a lock which others take, one after the other."""

cdef bint ALONE = len(os.sched_getaffinity(0)) == 1


cdef inline uint64_t item_bytes(uint32_t kind, uint64_t length) noexcept nogil:
    cdef uint64_t front = ITEM_HEADER_BYTES + (ITEM_TAG_BYTES if kind & ITEM_SIGNED else 0)
    return (front + length + ITEM_ALIGN - 1) & ~<uint64_t>(ITEM_ALIGN - 1)


cdef int64_t deadline_of(object timeout) except? -2:
    """Returns the time of the monotonic clock at which a wait ends: now for no wait, -1 for never."""
    if timeout is None:
        return -1
    cdef double seconds = timeout
    if not seconds > 0:
        seconds = 0
    return <int64_t>monotonic_ns + <int64_t>(min(seconds, 1e9) * 1e9)


cdef class ItemRing:
    def __cinit__(self):
        self.fd = -1

    def __init__(self, int fd, bytes secret):
        cdef ItemHeader header
        if len(secret) != 32:
            raise ValueError(f"a key of {len(secret)} bytes; give 32")
        self.mapping = Mapping(fd, os.fstat(fd).st_size, True)
        memcpy(&header, self.mapping.base, sizeof(ItemHeader))
        if (
            not 0 < header.chunks_max <= header.map_size <= ITEM_CHUNKS_MAX or header.map_size & (header.map_size - 1)
            or header.data_offset != item_layout.data_offset(header.map_size)
            or header.data_offset + <uint64_t>header.chunks_max * ITEM_CHUNK != self.mapping.size
        ):
            raise SegmentMismatch(f"descriptor {fd} does not lead to an item ring; pass the queue to a new process as an argument")
        self.putters = <ItemSide *>(self.mapping.base + sizeof(ItemHeader))
        self.getters = self.putters + 1
        self.map = <uint32_t *>(self.mapping.base + ITEM_MAP_OFFSET)
        self.spare = self.map + header.map_size
        self.data = self.mapping.base + header.data_offset
        self.mask, self.chunks_max = header.map_size - 1, header.chunks_max
        self.items_max, self.uid = header.items_max, header.uid
        self.item_max = <uint64_t>(header.chunks_max - 1) * ITEM_CHUNK - ITEM_HEADER_BYTES - ITEM_TAG_BYTES
        self.spins = SPINS_MAX
        self.key = secret
        self.fd = fd

    def __dealloc__(self):
        # Not earlier: a thread that is inside a call uses the number.
        if self.fd >= 0:
            close(self.fd)

    cdef void step(self, const char *name) noexcept nogil:
        if self.checkpoint is not None:
            with gil:
                self.checkpoint((<bytes>name).decode())

    # ------------------------------------------------------------------------------------------------ locks

    cdef bint lock(self, ItemSide *side, int64_t deadline) except? False:
        """Takes the lock of a side; returns False when the deadline, and the patience beyond it, are over."""
        cdef int result = lock_try(side.lock), tries
        cdef uint64_t seen = _atomics.load_relaxed64(&side.count)
        # Not from now on: a call that takes the lock several times would add the patience up.
        cdef int64_t now, rest, give_up = -1 if deadline < 0 else deadline + PATIENCE_NS
        while result == LOCK_BUSY:
            with nogil:
                for tries in range(0 if ALONE else LOCK_SPINS):
                    _atomics.pause()
                    result = lock_try(side.lock)
                    if result != LOCK_BUSY:
                        break
                if result == LOCK_BUSY:
                    now, rest = <int64_t>monotonic_ns, LOCK_SLICE_NS
                    if 0 <= give_up:
                        if _atomics.load_relaxed64(&side.count) != seen:
                            seen = _atomics.load_relaxed64(&side.count)
                            give_up = max(give_up, min(now + PATIENCE_NS, deadline + TURN_NS))
                        rest = min(give_up - now, <int64_t>LOCK_SLICE_NS)
                    if rest > 0:
                        self.step(b"lock: busy")
                        result = lock_wait(side.lock, rest)
            if result == LOCK_BUSY:
                PyErr_CheckSignals()
                if rest <= 0:
                    return False
        self.settle(side, result)
        return True

    cdef void settle(self, ItemSide *side, int result) noexcept nogil:
        """Counts an item that the holder before was in the middle of, when it was killed."""
        if result == LOCK_INHERITED and side.begun != side.count:
            side.cut += 1
            side.begun = side.count

    # ------------------------------------------------------------------------------------------------ bytes

    cdef bint copy_in(self, uint64_t position, const char *source, uint64_t length) noexcept nogil:
        cdef uint64_t offset, n
        cdef uint32_t piece
        while length:
            offset = position % ITEM_CHUNK
            n = min(length, ITEM_CHUNK - offset)
            piece = self.map[(position / ITEM_CHUNK) & self.mask]
            if piece >= self.chunks_max:
                return False
            memcpy(self.data + <uint64_t>piece * ITEM_CHUNK + offset, source, n)
            position, source, length = position + n, source + n, length - n
        return True

    cdef bint copy_out(self, uint64_t position, char *place, uint64_t length) noexcept nogil:
        cdef uint64_t offset, n
        cdef uint32_t piece
        while length:
            offset = position % ITEM_CHUNK
            n = min(length, ITEM_CHUNK - offset)
            piece = self.map[(position / ITEM_CHUNK) & self.mask]
            if piece >= self.chunks_max:
                return False
            memcpy(place, self.data + <uint64_t>piece * ITEM_CHUNK + offset, n)
            position, place, length = position + n, place + n, length - n
        return True

    cdef int provide(self, uint64_t end, uint64_t head, uint64_t *mapped, uint32_t *pieces, uint32_t *made) noexcept nogil:
        """Gives a piece to each chunk below `end`; the caller keeps the result with its next count, or forgets it.

        The chunks from `mapped - pieces` to `mapped` have all pieces in use; those below `head` are read and free.
        """
        cdef uint64_t last = (end - 1) / ITEM_CHUNK, oldest
        cdef uint32_t piece
        cdef int given = 0
        cdef bint popped = False
        if pieces[0] > made[0] or made[0] > self.chunks_max or pieces[0] > mapped[0] or last > mapped[0] + self.chunks_max:
            return DAMAGED
        while mapped[0] <= last:
            oldest = mapped[0] - pieces[0]
            if oldest < head:
                piece = self.map[oldest & self.mask]
            elif pieces[0] == self.chunks_max:
                return FULL_OF_BYTES
            else:
                piece = made[0]
                if made[0] > pieces[0]:
                    piece, popped = self.spare[made[0] - pieces[0] - 1], True
                else:
                    made[0] += 1
                if piece >= self.chunks_max:
                    return DAMAGED
                if posix_fallocate(self.fd, self.data - self.mapping.base + <int64_t>piece * ITEM_CHUNK, ITEM_CHUNK):
                    return NO_MEMORY
                pieces[0] += 1
            self.map[mapped[0] & self.mask] = piece
            mapped[0] += 1
        # A spare number that was taken must stay on the stack: this item may be given up.
        while not popped and given < GIVEN_BACK and mapped[0] - pieces[0] + ITEM_KEEP < head:
            piece = self.map[(mapped[0] - pieces[0]) & self.mask]
            if piece >= self.chunks_max:
                return DAMAGED
            self.spare[made[0] - pieces[0]] = piece
            pieces[0], given = pieces[0] - 1, given + 1
            fallocate(
                self.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                self.data - self.mapping.base + <int64_t>piece * ITEM_CHUNK, ITEM_CHUNK,
            )
        return DONE

    # -------------------------------------------------------------------------------------------------- put

    cdef int store(self, Item *item) noexcept nogil:
        """Appends an item; the caller holds the lock of the producers."""
        cdef ItemSide *side = self.putters
        cdef uint64_t number = side.count, taken, head, position, end, at
        cdef int here = number & 1, then = here ^ 1, status
        cdef uint64_t mapped = side.mapped[here]
        cdef uint32_t pieces = side.pieces[here], made = side.made[here]
        cdef uint64_t header[2]
        cdef uint8_t tag[ITEM_TAG_BYTES]
        while True:
            taken = _atomics.load_acquire64(&self.getters.count)  # SYNC taken
            head = _atomics.load_relaxed64(&self.getters.position[taken & 1])
            _atomics.fence_acquire()
            if _atomics.load_relaxed64(&self.getters.count) == taken:
                break
        item.taken = taken
        if taken > number:
            return DAMAGED
        if self.items_max and number - taken >= self.items_max:
            return FULL_OF_ITEMS
        at = position = side.position[here]
        end = position + item_bytes(item.kind, item.front_length + item.body_length)
        status = self.provide(end, head / ITEM_CHUNK, &mapped, &pieces, &made)
        if status != DONE:
            return status
        side.begun = number + 1
        self.step(b"put: begun")
        header[0], header[1] = item.front_length + item.body_length, item.kind
        if not self.copy_in(at, <const char *>header, ITEM_HEADER_BYTES):
            return DAMAGED
        at += ITEM_HEADER_BYTES
        if item.kind & ITEM_SIGNED:
            if not self.sign(number, item, tag):
                return NO_MEMORY
            self.copy_in(at, <const char *>tag, ITEM_TAG_BYTES)
            at += ITEM_TAG_BYTES
        self.copy_in(at, item.front, item.front_length)
        self.step(b"put: half copied")
        self.copy_in(at + item.front_length, item.body, item.body_length)
        self.step(b"put: copied")
        side.position[then], side.mapped[then], side.pieces[then], side.made[then] = end, mapped, pieces, made
        self.step(b"put: noted")
        _atomics.store_release64(&side.count, number + 1)  # SYNC items
        self.step(b"put: counted")
        return DONE

    cdef bint sign(self, uint64_t number, Item *item, uint8_t *tag) noexcept nogil:
        """Puts the tag of an item there; returns False if there is no memory for that."""
        with gil:
            try:
                found = tag_of(self.key, number, item.kind, item.front_length, <bytes>item.signed_text)
            except MemoryError:
                return False
            memcpy(tag, PyBytes_AS_STRING(found), ITEM_TAG_BYTES)
        return True

    def put(self, uint32_t kind, bytes front, body, timeout):
        cdef Item item
        cdef Py_buffer view
        cdef int64_t deadline = deadline_of(timeout)
        cdef bint held = body is not None
        item.kind, item.front, item.front_length = kind, PyBytes_AS_STRING(front), PyBytes_GET_SIZE(front)
        item.body, item.body_length = NULL, 0
        if held:
            PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
            item.body, item.body_length = <const char *>view.buf, view.len
        try:
            if item.front_length + item.body_length > self.item_max:
                raise ValueError(f"an item of {item.front_length + item.body_length} bytes; {self.item_max} fit")
            if kind & ITEM_SIGNED:
                self.check_user()
                if item.body_length:
                    raise ValueError("a signed item has one part only; give it as the front")
                text = signed_text(front)
                item.signed_text = <PyObject *>text
            return self.put_item(&item, deadline)
        finally:
            if held:
                PyBuffer_Release(&view)

    cdef put_item(self, Item *item, int64_t deadline):
        cdef int status
        cdef bint big = item.front_length + item.body_length > BIG
        while True:
            if not self.lock(self.putters, deadline):
                return False
            if big:
                with nogil:
                    status = self.store(item)
                    lock_release(self.putters.lock)
            else:
                status = self.store(item)
                lock_release(self.putters.lock)
            if status == DONE:
                self.step(b"put: unlocked")
                self.wake(self.putters)
                return True
            if status > FULL_OF_BYTES:
                return self.fail(status, item)
            if 0 <= deadline and <int64_t>monotonic_ns >= deadline:
                return False
            with nogil:
                self.await_change(self.getters, item.taken, deadline, status == FULL_OF_BYTES)
            PyErr_CheckSignals()

    cdef object fail(self, int status, Item *item):
        if status == NO_MEMORY:
            raise SegmentFull(
                f"the system has no memory for an item of {item.front_length + item.body_length} bytes beside the "
                f"{self.qsize()} items that wait; take items out, or put smaller ones"
            )
        raise SegmentSpoiled("the memory of the queue is damaged: a process wrote into it; make a new queue")

    # -------------------------------------------------------------------------------------------------- get

    def get(self, timeout):
        cdef int64_t deadline = deadline_of(timeout)
        cdef uint64_t seen
        while True:
            seen = _atomics.load_acquire64(&self.putters.count)  # SYNC items
            if _atomics.load_relaxed64(&self.getters.count) != seen:
                if not self.lock(self.getters, deadline):
                    return None
                found = self.take()
                if found is not None:
                    return found
                continue
            if 0 <= deadline and <int64_t>monotonic_ns >= deadline:
                return None
            with nogil:
                self.await_change(self.putters, seen, deadline, False)
            PyErr_CheckSignals()

    cdef object take(self):
        """Takes the next item and gives the lock of the consumers back; returns None without an item, or a false one."""
        cdef ItemSide *side = self.getters
        cdef uint64_t number = side.count, position = side.position[number & 1]
        cdef uint64_t header[2]
        cdef uint8_t tag[32]
        cdef uint32_t kind
        cdef char *place
        cdef object data = None
        cdef int status = DAMAGED
        if _atomics.load_acquire64(&self.putters.count) == number:  # SYNC items
            lock_release(side.lock)
            return None
        try:
            if not self.copy_out(position, <char *>header, ITEM_HEADER_BYTES) or header[0] > self.item_max:
                self.fail(DAMAGED, NULL)
            kind = <uint32_t>header[1]
            if kind & ITEM_SIGNED:
                self.check_user()
            if kind & ITEM_WRITABLE and not kind & ITEM_SIGNED:
                data = PyByteArray_FromStringAndSize(NULL, <Py_ssize_t>header[0])
                place = PyByteArray_AS_STRING(data)
            else:
                data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>header[0])
                place = PyBytes_AS_STRING(data)
        except BaseException:
            lock_release(side.lock)
            raise
        if header[0] > BIG:
            with nogil:
                status = self.finish(number, position, kind, place, header[0], tag)
                lock_release(side.lock)
        else:
            status = self.finish(number, position, kind, place, header[0], tag)
            lock_release(side.lock)
        if status != DONE:
            self.fail(status, NULL)
        self.step(b"get: unlocked")
        self.wake(side)
        if kind & ITEM_SIGNED and not self.is_genuine(number, kind, data, tag):
            self.refuse()
            return None
        return kind, data

    cdef int finish(self, uint64_t number, uint64_t position, uint32_t kind, char *place, uint64_t length, uint8_t *tag) noexcept nogil:
        """Copies an item out, and takes it off the ring; the caller holds the lock of the consumers."""
        cdef ItemSide *side = self.getters
        cdef uint64_t at = position + ITEM_HEADER_BYTES
        side.begun = number + 1
        self.step(b"get: begun")
        if kind & ITEM_SIGNED:
            if not self.copy_out(at, <char *>tag, ITEM_TAG_BYTES):
                return DAMAGED
            at += ITEM_TAG_BYTES
        if not self.copy_out(at, place, length):
            return DAMAGED
        self.step(b"get: copied")
        side.position[(number + 1) & 1] = position + item_bytes(kind, length)
        self.step(b"get: noted")
        _atomics.store_release64(&side.count, number + 1)  # SYNC taken
        self.step(b"get: counted")
        return DONE

    cdef bint is_genuine(self, uint64_t number, uint32_t kind, object data, const uint8_t *tag) except? False:
        return hmac.compare_digest(tag_of(self.key, number, kind, len(data), signed_text(data)), tag[:ITEM_TAG_BYTES])

    def refuse(self):
        cdef uint64_t refused
        while True:
            refused = _atomics.load_relaxed64(&self.getters.refused)
            if _atomics.cas64(&self.getters.refused, refused, refused + 1):
                return

    def check_user(self):
        if geteuid() != self.uid:
            raise SegmentRefused(
                f"the queue belongs to uid {self.uid}, this process has uid {geteuid()}: objects go only between processes of "
                "one user, as unpickling runs what they say; put bytes, text, numbers or arrays"
            )

    # ---------------------------------------------------------------------------------------------- waiting

    cdef void await_change(self, ItemSide *side, uint64_t seen, int64_t deadline, bint for_bytes) noexcept nogil:
        """Waits until the count of a side is not `seen`, until the deadline, or a little, whatever comes first."""
        cdef int tries
        cdef int64_t rest = RECHECK_NS
        for tries in range(0 if ALONE else self.spins):
            if _atomics.load_acquire64(&side.count) != seen:
                self.spins = min(2 * self.spins, SPINS_MAX)
                return
            _atomics.pause()
        self.spins = max(self.spins // 2, SPINS_MIN)
        if for_bytes:
            _atomics.store_relaxed32(&side.wake_all, 1)
        _atomics.store_relaxed64(&side.parked, seen + 1)  # SYNC asleep
        _atomics.fence_full()  # SYNC asleep
        if _atomics.load_acquire64(&side.count) != seen:  # SYNC asleep
            return
        if 0 <= deadline:
            rest = min(rest, deadline - <int64_t>monotonic_ns)
        if rest > 0:
            futex_wait(&side.count, <uint32_t>seen, rest)

    cdef void wake(self, ItemSide *side) noexcept nogil:
        """Wakes one process that sleeps until the count of a side changes."""
        cdef uint64_t parked
        _atomics.fence_full()  # SYNC asleep
        parked = _atomics.load_relaxed64(&side.parked)  # SYNC asleep
        # Who saw the present count sleeps for the next one.
        if parked == 0 or parked > _atomics.load_relaxed64(&side.count):
            return
        if futex_wake(&side.count, 1 << 30 if _atomics.load_relaxed32(&side.wake_all) else 1) == 0:
            _atomics.cas64(&side.parked, parked, 0)

    # -------------------------------------------------------------------------------------------- numbers

    def qsize(self):
        cdef uint64_t taken = _atomics.load_acquire64(&self.getters.count)  # SYNC taken
        return max(0, <int64_t>(_atomics.load_acquire64(&self.putters.count) - taken))  # SYNC items

    def counts(self):
        return (
            _atomics.load_relaxed64(&self.putters.count), _atomics.load_relaxed64(&self.getters.count),
            _atomics.load_relaxed64(&self.putters.cut), _atomics.load_relaxed64(&self.getters.cut),
            _atomics.load_relaxed64(&self.getters.refused),
        )

    def memory(self):
        cdef int here = self.putters.count & 1
        return <uint64_t>self.putters.pieces[here] * ITEM_CHUNK


cdef bytes signed_text(bytes data):
    """Returns what a tag is computed of while a lock is held: short bytes themselves, of others what they hash to."""
    return data if len(data) <= SIGNED_WHOLE else blake2b(data, digest_size=ITEM_TAG_BYTES).digest()


cdef bytes tag_of(bytes key, uint64_t number, uint32_t kind, uint64_t length, bytes text):
    cdef uint64_t words[3]
    words[0], words[1], words[2] = number, kind, length
    return blake2b((<char *>words)[:sizeof(words)] + text, key=key, digest_size=ITEM_TAG_BYTES).digest()


def create_item_ring(*, uint64_t bytes_max, uint64_t items_max=0):
    cdef Mapping mapping
    cdef ItemHeader *header
    cdef ItemSide *sides
    cdef uint64_t chunks = max(<uint64_t>2, (bytes_max + ITEM_CHUNK - 1) // ITEM_CHUNK + 1)
    if chunks > ITEM_CHUNKS_MAX:
        raise ValueError(f"{bytes_max} bytes; give at most {(ITEM_CHUNKS_MAX - 1) * <uint64_t>ITEM_CHUNK}")
    cdef uint32_t words = item_layout.map_size(chunks)
    cdef uint64_t data_offset = item_layout.data_offset(words)
    fd = os.memfd_create("ipcbus.queue", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, data_offset + chunks * ITEM_CHUNK)
        # No process can cut it short under the others.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        mapping = Mapping(fd, data_offset + chunks * ITEM_CHUNK, True)
    except BaseException:
        os.close(fd)
        raise
    header = <ItemHeader *>mapping.base
    header.map_size, header.chunks_max, header.items_max = words, chunks, items_max
    header.data_offset, header.uid = data_offset, geteuid()
    sides = <ItemSide *>(mapping.base + sizeof(ItemHeader))
    if lock_make(sides[0].lock) or lock_make(sides[1].lock):
        os.close(fd)
        raise OSError("this system has no robust locks between processes")
    return fd
