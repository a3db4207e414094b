# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Frames of receivers straight out of their pipes; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t

from ipcbus.transport.ring.frame_front cimport FRAME_HEADER, FrameFront
from ipcbus.wire.control_front cimport FrameTaker
from ringbuf cimport _atomics
from ringbuf.pipe cimport Pipe
from ringbuf.shared_words cimport SharedWords

cdef extern from *:
    int lowest_bit "__builtin_ctzll"(unsigned long long bits) noexcept nogil

cdef enum:
    KINDS = 256
    NOT_TAKEN = -1

cdef uint64_t ZERO = 0         # not in the object, which a poller does not keep


cdef long take_frame(Pipe pipe, list takers, object peer) except -2:
    """Takes the next frame if it holds a whole message that has a taker.

    Returns:
        The number of messages that the application got; NOT_TAKEN when the frame, if there is one, is still there.
    """
    cdef FrameFront head
    cdef FrameTaker taker
    cdef bytes rest
    cdef uint64_t length = <uint64_t>pipe.next_length()
    if length < sizeof(head):
        return NOT_TAKEN
    pipe.copy_out(0, <char *>&head, sizeof(head))
    if head.lane or head.first != 1 or head.reserved or head.remaining != length - FRAME_HEADER:
        return NOT_TAKEN
    taker = <FrameTaker>takers[head.front.kind]
    if taker is None or not taker.takes(&head.front):
        return NOT_TAKEN
    rest = PyBytes_FromStringAndSize(NULL, length - sizeof(head))
    pipe.copy_out(sizeof(head), PyBytes_AS_STRING(rest), length - sizeof(head))
    if not pipe.end_frame(length):
        return NOT_TAKEN
    return taker.take(peer, &head.front, rest)


cdef class SessionInlet(WatchedWord):
    def __init__(self, SharedWords words, size_t calls_at, list channel_words_at):
        cdef int slot
        self.slots = len(channel_words_at)
        if self.slots > 64:
            raise ValueError(f"{self.slots} slots do not fit the 64 bits of the calls")
        self.calls = <uint64_t *>words._at(calls_at, 8, True)
        self.word, self.seen, self.keeps = self.calls, &ZERO, words
        for slot in range(self.slots):
            self.channel_words[slot] = <const uint64_t *>words._at(channel_words_at[slot], 8, False)
        self.takers = [None] * KINDS
        self.pipes, self.peers, self.call_receivers = [None] * self.slots, [None] * self.slots, [None] * self.slots

    def hand(self, uint8_t kind, FrameTaker taker):
        self.takers[kind] = taker

    def serve(self, int slot, Pipe pipe, uint64_t settled_word, call_receiver, peer=None):
        if not 0 <= slot < self.slots:
            raise IndexError(f"slot {slot} of {self.slots}")
        self.pipes[slot], self.call_receivers[slot], self.peers[slot] = pipe, call_receiver, peer
        self.settled_words[slot] = settled_word

    def changed(self):
        return self.taking > 0 or _atomics.load_acquire64(self.calls) != 0

    def take_now(self):
        messages = self.take()
        return messages, self.stuck

    cdef long take(self) except -1:
        cdef uint64_t calls, left = 0
        cdef long messages = 0
        cdef int slot
        cdef bint has_more
        self.taking += 1
        # A receiver sets its bit after each frame: frames that this call does not see have a new bit.
        calls = _atomics.and64(self.calls, 0)
        try:
            while calls:
                slot = lowest_bit(calls)
                has_more = False
                if slot < self.slots:   # a damaged word may have bits without a slot
                    messages += self.take_all(slot, &has_more)
                if has_more:
                    left |= <uint64_t>1 << slot
                calls &= calls - 1
        finally:
            left |= calls
            self.stuck = left != 0
            if left:
                _atomics.or64(self.calls, left)
            self.taking -= 1
        return messages

    cdef long take_all(self, int slot, bint *left) except -1:
        """Takes the frames of one receiver that are there now; sets `left` when Python has something to do."""
        cdef Pipe pipe = self.pipes[slot]
        cdef uint64_t until
        cdef long messages = 0, more
        if pipe is None or _atomics.load_acquire64(self.channel_words[slot]) != self.settled_words[slot]:
            left[0] = True
            return 0
        until = _atomics.load_acquire64(&pipe.incoming.written)  # SYNC frames
        # Up to here only, so that one receiver can keep no context busy.
        while <int64_t>(until - pipe.read) > 0:
            more = take_frame(pipe, self.takers, self.peers[slot])
            if more == NOT_TAKEN:
                left[0] = True
                return messages
            messages += more
            if pipe.room_wanted and self.call_receivers[slot] is not None:
                self.call_receivers[slot]()
        left[0] = pipe.has_news()
        return messages


cdef class SourceInlet(WatchedWord):
    def __init__(self, Pipe pipe not None, list takers not None, peer, call_source):
        self.pipe, self.takers, self.peer, self.call_source = pipe, takers, peer, call_source
        self.word, self.seen, self.keeps = &pipe.incoming.written, &pipe.read, pipe

    cdef long take(self) except -1:
        cdef Pipe pipe = self.pipe
        cdef uint64_t until = _atomics.load_acquire64(&pipe.incoming.written)  # SYNC frames
        cdef long messages = 0, more
        self.stuck = False
        # Up to here only, so that a source can keep no context busy.
        while <int64_t>(until - pipe.read) > 0:
            more = take_frame(pipe, self.takers, self.peer)
            if more == NOT_TAKEN:
                self.stuck = True
                return messages
            messages += more
            if pipe.room_wanted:
                self.call_source()
        self.stuck = pipe.has_news()
        return messages
