# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Two queues of frames in one shared object; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

cimport cython

import os

from ringbuf cimport _atomics
from ringbuf._layout cimport KIND_PIPE, PIPE_ALIGN, PIPE_FRAME_HEADER, PIPE_QUEUE_MAX, PipeHeader, PipeQueue
from ringbuf.memory cimport Mapping
from ringbuf.shared_words cimport WatchedWord

from ringbuf import layout, segment
from ringbuf.ring_errors import SegmentMismatch, SegmentRefused

cdef enum:
    FRAMES_PER_QUEUE = 4    # at least: one frame must not fill a queue, so that urgent frames need not wait for long


cdef inline uint64_t frame_bytes(uint64_t length) noexcept nogil:
    """Returns the bytes that a frame uses in a queue."""
    return (PIPE_FRAME_HEADER + length + PIPE_ALIGN - 1) & ~<uint64_t>(PIPE_ALIGN - 1)


cdef class Pipe:
    def __init__(self):
        raise TypeError("use create_pipe or join_pipe")

    cdef bint is_damaged(self):
        if self.broken:
            return True
        if _atomics.load_relaxed32(&self.mapping.cut_short):
            self.fail("the pipe was cut short by another program")
            return True
        return False

    cdef object fail(self, str reason):
        self.broken = reason
        return None

    cdef int64_t room(self):
        """Returns the free bytes of the queue to the other side; -1, and the pipe is broken, when that is impossible."""
        cdef uint64_t used = self.written - _atomics.load_acquire64(&self.outgoing.read)  # SYNC room
        if used > self.capacity:
            self.fail("the other side shows an impossible position")
            return -1
        return <int64_t>(self.capacity - used)

    def put(self, bytes frame):
        cdef uint64_t length = PyBytes_GET_SIZE(frame)
        if length == 0 or length > <uint64_t>self.frame_max:
            raise ValueError(f"a frame of {length} bytes does not fit; the pipe takes 1 to {self.frame_max} bytes")
        return bool(self.put_parts(NULL, 0, PyBytes_AS_STRING(frame), length))

    def put_alone(self, bytes frame, waiting):
        cdef uint64_t length = PyBytes_GET_SIZE(frame)
        # No other thread puts a frame between the look and this one.
        with cython.critical_section(self):
            if waiting:
                return False
            if 0 < length <= <uint64_t>self.frame_max:
                return bool(self.append_parts(NULL, 0, PyBytes_AS_STRING(frame), length))
        return self.put(frame)      # says what is wrong

    cdef bint put_parts(self, const char *front, uint64_t front_length, const char *rest, uint64_t rest_length) except? True:
        """Appends a frame of two parts, 1 to `frame_max` bytes together; returns False as `put`. Any thread may call this."""
        with cython.critical_section(self):
            return self.append_parts(front, front_length, rest, rest_length)

    cdef bint append_parts(self, const char *front, uint64_t front_length, const char *rest, uint64_t rest_length) except? True:
        cdef uint64_t length = front_length + rest_length
        if self.is_damaged() or _atomics.load_acquire32(&self.incoming.closed):  # SYNC ended
            return False
        if self.room() < <int64_t>frame_bytes(length):
            _atomics.store_relaxed32(&self.outgoing.waits, 1)  # SYNC full
            _atomics.fence_full()  # SYNC full
            self.waits = True
            if self.room() < <int64_t>frame_bytes(length):
                return False
        if self.waits:
            self.waits = False
            _atomics.store_relaxed32(&self.outgoing.waits, 0)
        (<uint32_t *>(self.out_data + (self.written & (self.capacity - 1))))[0] = <uint32_t>length
        self.copy_in(self.written + PIPE_FRAME_HEADER, front, front_length)
        self.copy_in(self.written + PIPE_FRAME_HEADER + front_length, rest, rest_length)
        if self.checkpoint is not None:
            self.checkpoint("put: copied")
        self.written += frame_bytes(length)
        _atomics.store_release64(&self.outgoing.written, self.written)  # SYNC frames
        if self.checkpoint is not None:
            self.checkpoint("put: published")
        return not self.is_damaged()

    cdef void copy_in(self, uint64_t position, const char *source, uint64_t length) noexcept:
        cdef uint64_t at = position & (self.capacity - 1)
        cdef uint64_t first = min(length, self.capacity - at)
        memcpy(self.out_data + at, source, first)
        memcpy(self.out_data, source + first, length - first)

    cdef void copy_out(self, uint64_t offset, char *place, uint64_t length) noexcept:
        """Copies bytes of the next frame, from `offset` on; they are valid only if the pipe is not damaged afterwards."""
        cdef uint64_t at = (self.read + PIPE_FRAME_HEADER + offset) & (self.capacity - 1)
        cdef uint64_t first = min(length, self.capacity - at)
        memcpy(place, self.in_data + at, first)
        memcpy(place + first, self.in_data, length - first)

    cdef int64_t next_length(self):
        """Returns the length of the next frame; 0 when there is no frame now, or when the pipe has just broken."""
        cdef uint64_t waiting
        cdef uint32_t length
        self.room_wanted = False
        if self.is_damaged():
            return 0
        waiting = _atomics.load_acquire64(&self.incoming.written) - self.read  # SYNC frames
        if waiting == 0:
            if _atomics.load_acquire32(&self.incoming.closed) == 0:  # SYNC ended
                return 0
            # Read again: frames that were put before the end can be seen now.
            waiting = _atomics.load_acquire64(&self.incoming.written) - self.read  # SYNC frames
            if waiting == 0:
                self.fail("the other side has closed the pipe")
                return 0
        if waiting > self.capacity or waiting & (PIPE_ALIGN - 1):
            self.fail("the other side shows an impossible position")
            return 0
        length = _atomics.load_relaxed32(self.in_data + (self.read & (self.capacity - 1)))
        if length == 0 or length > <uint32_t>self.frame_max or frame_bytes(length) > waiting:
            self.fail("the other side has written an impossible length")
            return 0
        self.waiting = waiting
        return length

    cdef bint end_frame(self, uint64_t length) except? True:
        """Gives the bytes of the next frame back; returns False if they were not valid."""
        if self.checkpoint is not None:
            self.checkpoint("take: copied")
        if self.is_damaged():
            return False    # a copy may have zeros of a missing page
        self.read += frame_bytes(length)
        _atomics.store_release64(&self.incoming.read, self.read)  # SYNC room
        _atomics.fence_full()  # SYNC full
        # Half of the queue at once, so that the other side is not called for each frame.
        self.room_wanted = (
            _atomics.load_relaxed32(&self.incoming.waits) != 0  # SYNC full
            and self.waiting - frame_bytes(length) <= self.capacity // 2
        )
        if self.checkpoint is not None:
            self.checkpoint("take: released")
        return True

    def push(self):
        pass

    def take(self):
        cdef int64_t length = self.next_length()
        if length == 0:
            return None
        frame = PyBytes_FromStringAndSize(NULL, length)
        self.copy_out(0, PyBytes_AS_STRING(frame), length)
        return frame if self.end_frame(length) else None

    cdef bint has_news(self):
        """Returns whether there is the end, or room that the last `put` missed."""
        if self.waits and not self.is_damaged() and self.room() >= <int64_t>(self.capacity // 2):
            return True
        return _atomics.load_acquire32(&self.incoming.closed) != 0  # SYNC ended

    def ready(self):
        if self.is_damaged():
            return False
        return _atomics.load_acquire64(&self.incoming.written) != self.read or self.has_news()  # SYNC frames

    @property
    def is_unread(self):
        return not self.is_damaged() and not _atomics.load_acquire32(&self.incoming.closed) and self.room() < <int64_t>self.capacity

    def watched(self):
        cdef WatchedWord watched = WatchedWord.__new__(WatchedWord)
        watched.word, watched.seen, watched.keeps = &self.incoming.written, &self.read, self
        return watched

    def close(self):
        if not self.abandoned:
            _atomics.store_release32(&self.outgoing.closed, 1)  # SYNC ended
        self.broken = self.broken or "the pipe is closed"

    def abandon(self):
        self.abandoned = True
        self.broken = self.broken or "the pipe belongs to the parent process"


cdef Pipe pipe_of(Mapping mapping, uint64_t capacity, bint is_source):
    cdef Pipe pipe = Pipe.__new__(Pipe)
    cdef PipeQueue *queues = <PipeQueue *>(mapping.base + sizeof(PipeHeader))
    cdef char *data = mapping.base + sizeof(PipeHeader) + 2 * sizeof(PipeQueue)
    cdef int outgoing = 0 if is_source else 1
    pipe.mapping = mapping
    pipe.capacity = capacity
    pipe.outgoing, pipe.incoming = &queues[outgoing], &queues[1 - outgoing]
    pipe.out_data, pipe.in_data = data + outgoing * capacity, data + (1 - outgoing) * capacity
    pipe.frame_max = <int>(capacity // FRAMES_PER_QUEUE - PIPE_FRAME_HEADER)
    pipe.broken = ""
    return pipe


def create_pipe(str name, *, queue_bytes, uint32_t session_id, uint32_t slot, uint32_t generation, str group=""):
    cdef Mapping mapping
    cdef PipeHeader *header
    if not 0 < queue_bytes <= PIPE_QUEUE_MAX:
        raise ValueError(f"a queue of {queue_bytes} bytes is impossible; use 1 to {PIPE_QUEUE_MAX}")
    cdef uint64_t capacity = layout.ring_capacity(queue_bytes)
    fd = segment.create(name, layout.pipe_bytes(capacity), group=group)
    try:
        mapping = segment.map_fd(fd, write=True)
    except BaseException:
        segment.remove(name)
        raise
    finally:
        os.close(fd)
    header = <PipeHeader *>mapping.base
    header.layout_id, header.kind, header.version = layout.LAYOUT_ID, KIND_PIPE, layout.VERSION
    header.total_bytes, header.queue_bytes = mapping.size, <uint32_t>capacity
    header.session_id, header.slot, header.generation = session_id, slot, generation
    header.magic = layout.MAGIC
    return pipe_of(mapping, capacity, True)


def join_pipe(str name, *, uint32_t session_id, uint32_t slot, uint32_t generation, owner_uid):
    cdef Mapping mapping
    cdef PipeHeader header
    cdef uint64_t capacity
    fd = segment.open_fd(name, write=True)
    try:
        status = os.fstat(fd)
        if status.st_uid != owner_uid:
            raise SegmentRefused(
                f"{name} belongs to uid {status.st_uid}, but its session to uid {owner_uid}; another program took its "
                "name: remove the object and restart the source"
            )
        if status.st_size < layout.pipe_bytes(layout.PAGE):
            raise SegmentMismatch(f"{name} has {status.st_size} bytes, too few for a pipe; restart its source")
        mapping = segment.map_fd(fd, write=True)
    finally:
        os.close(fd)
    # The other side can change the header at any time: the copy is checked, and nothing is read again.
    memcpy(&header, mapping.base, sizeof(PipeHeader))
    _atomics.compiler_fence()
    if header.magic != layout.MAGIC or header.kind != KIND_PIPE or header.layout_id != layout.LAYOUT_ID:
        raise SegmentMismatch(f"{name} is not a pipe of this release of ipcbus; run the same release on both sides")
    if header.session_id != session_id or header.slot != slot or header.generation != generation:
        raise SegmentMismatch(
            f"{name} belongs to session {header.session_id:08x}, slot {header.slot}, generation {header.generation}, "
            f"expected {session_id:08x}, {slot} and {generation}; join the session again"
        )
    capacity = header.queue_bytes
    if (
        capacity & (capacity - 1) or capacity < layout.PAGE or capacity > PIPE_QUEUE_MAX
        or header.total_bytes != mapping.size or layout.pipe_bytes(capacity) != mapping.size
    ):
        raise SegmentMismatch(f"{name}: its header contradicts itself; its source is damaged, restart it")
    return pipe_of(mapping, capacity, False)
