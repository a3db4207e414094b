# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Checks many readers for records; the stub has the documentation."""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from ringbuf cimport _atomics
from ringbuf.clock cimport clock_kind, ns_per_tick, read_ticks
from ringbuf.ring cimport Reader, RingReader, reader_ready
from ringbuf.shared_words cimport WatchedWord


cdef class Poller:
    def __init__(self):
        self.readers = []
        self.kept = []

    def __dealloc__(self):
        free(self.items)
        free(self.watches)

    def watch(self, readers, words=()):
        cdef int i, n
        self.watch_words(list(words))
        watched = list(readers)
        n = len(watched)
        cdef Reader **items = <Reader **>malloc(max(n, 1) * sizeof(Reader *))
        if items == NULL:
            raise MemoryError()
        for i in range(n):
            items[i] = &(<RingReader?>watched[i]).r
        free(self.items)
        self.items = items
        self.count = n
        self.readers = watched

    cdef int watch_words(self, list words) except -1:
        cdef int i, n = len(words)
        cdef WatchedWord word
        cdef Watch *watches = <Watch *>malloc(max(n, 1) * sizeof(Watch))
        if watches == NULL:
            raise MemoryError()
        for i in range(n):
            word = <WatchedWord?>words[i]
            watches[i].word, watches[i].seen = word.word, word.seen
        free(self.watches)
        self.watches = watches
        self.words_count = n
        # Not a word that calls back: a thread that spins refers to this object, and must not keep a context alive.
        self.kept = [each if type(each) is WatchedWord else (<WatchedWord>each).keeps for each in words]
        return 0

    def poke(self):
        self.poked = 1

    def spin(self, uint64_t loops, uint64_t timeout_ns):
        cdef uint32_t clock = clock_kind()
        cdef uint64_t until = read_ticks(clock) + <uint64_t>(timeout_ns / ns_per_tick())
        cdef bint ready
        with nogil:
            ready = self.wait(loops, until, clock)
        return ready

    cdef int arm(self, bint sleeps) except -1:
        for each in self.readers:
            (<RingReader>each).arm(sleeps)
        return 0

    cdef bint any_ready(self) noexcept nogil:
        cdef int i
        for i in range(self.count):
            if reader_ready(self.items[i]):
                return True
        return False

    cdef bint any_word_changed(self) noexcept nogil:
        cdef int i
        for i in range(self.words_count):
            if _atomics.load_acquire64(self.watches[i].word) != self.watches[i].seen[0]:
                return True
        return False

    cdef long take_words(self, list words) except -1:
        """Handles the words that have changed, and notes whether Python has to look; returns the number of messages."""
        cdef WatchedWord word
        cdef long messages = 0
        self.stuck = False
        if not self.any_word_changed():
            return 0
        for each in words:
            word = <WatchedWord>each
            if _atomics.load_acquire64(word.word) != word.seen[0]:
                messages += word.take()
                self.stuck |= word.stuck
        return messages

    cdef bint wait(self, uint64_t loops, uint64_t until_ticks, uint32_t clock) noexcept nogil:
        cdef uint64_t n = 0
        while n < loops and not self.poked:
            if self.any_ready() or self.any_word_changed():
                return True
            _atomics.pause()
            n += 1
            # Reading the clock costs more than a check, so it is read at every 64th check.
            if n % 64 == 0 and read_ticks(clock) >= until_ticks:
                break
        self.poked = 0
        return False
