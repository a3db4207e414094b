# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Places of a ring that are lent to an application; see the stub for the words."""
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cimport cython

from ringbuf cimport _atomics
from ringbuf.memory cimport Mapping, forgotten, noted

cdef extern from *:
    """
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>
#include <unistd.h>
/* A second mapping of the pages of a shared one, at `to` (mremap(2): an old size of 0). */
static int ib_map_again(void *of, size_t length, void *to) {
    return mremap(of, 0, length, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to ? 0 : -1;
}
/* Replaces pages at one stroke: who reads them meanwhile finds the old ones or the new ones. */
static int ib_move_pages(void *from, size_t length, void *to) {
    return mremap(from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to ? 0 : -1;
}
static size_t ib_page(void) { return (size_t)sysconf(_SC_PAGESIZE); }
/* Who lends, looks and ends to look holds the GIL; where Python has none, the words need atomic instructions. */
static inline int ib_swap(uint32_t *word, uint32_t was, uint32_t now) {
#ifdef Py_GIL_DISABLED
    return __atomic_compare_exchange_n(word, &was, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
#else
    if (*word != was) return 0;
    *word = now;
    return 1;
#endif
}
    """
    void *mmap(void *addr, size_t length, int prot, int flags, int fd, long offset) nogil
    int munmap(void *addr, size_t length) nogil
    void *MAP_FAILED
    int PROT_NONE, PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
    int ib_map_again(void *of, size_t length, void *to) nogil
    int ib_move_pages(void *source, size_t length, void *to) nogil
    size_t ib_page() nogil
    bint swap "ib_swap"(uint32_t *word, uint32_t was, uint32_t now)

cdef enum:
    PIECES_MAX = 256            # replaced pieces of one mapping; the system allows a process about 65,000 in all
    PATIENCE_STEP = 16
    PATIENCE_MAX = 1024

cdef uint32_t SETTLED = 0x80000000
cdef size_t PAGE = ib_page()


cdef inline uint32_t add(uint32_t *word, uint32_t more) noexcept:
    """Adds to a word that several threads change; returns what it was."""
    cdef uint32_t was
    while True:
        was = _atomics.load_relaxed32(word)
        if swap(word, was, was + more):
            return was


cdef int own_pages(char *start, size_t length, const char *content) except -1:
    """Replaces the pages of `length` bytes by private ones with this content, in which everything else is zero."""
    cdef size_t before = <size_t>start & (PAGE - 1)
    cdef size_t size = (before + length + PAGE - 1) & ~(PAGE - 1)
    cdef char *own = <char *>mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if own == <char *>MAP_FAILED:
        raise MemoryError(f"no {size} bytes of memory for a view that outlives its message")
    memcpy(own + before, content, length)
    if ib_move_pages(own, size, start - before):
        munmap(own, size)
        raise MemoryError(f"the system does not replace {size} bytes of a mapping; see vm.max_map_count")
    return 0


cdef class Twin:
    """The data of a ring, mapped a second time for what is lent."""

    def __dealloc__(self):
        if self.base != NULL:
            forgotten(self.region)
            munmap(self.base, self.mapped)
        free(self.taken)

    cdef bint is_taken(self, size_t first, size_t length) noexcept:
        cdef size_t page
        for page in range(first // PAGE, (first + length - 1) // PAGE + 1):
            if self.taken[page]:
                return True
        return False

    cdef int replace(self, size_t first, size_t length, const char *content) except -1:
        cdef size_t page
        own_pages(self.base + first, length, content)
        self.pieces += 1
        for page in range(first // PAGE, (first + length - 1) // PAGE + 1):
            self.taken[page] = 1
        return 0


cdef Twin twin_of(Mapping mapping, char *data, size_t capacity):
    """None where the system does not map the data again."""
    cdef Twin twin = Twin.__new__(Twin)
    cdef void *place = mmap(NULL, 2 * capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if place == MAP_FAILED:
        return None
    twin.base, twin.mapped = <char *>place, 2 * capacity
    twin.of = mapping
    twin.region = noted(twin.base, twin.mapped, &mapping.cut_short)
    twin.taken = <unsigned char *>calloc(2 * capacity // PAGE + 1, 1)
    if twin.taken == NULL or ib_map_again(data, capacity, twin.base):
        return None
    return None if ib_map_again(data, capacity, twin.base + capacity) else twin


@cython.freelist(4)
cdef class Loan:
    def __getbuffer__(self, Py_buffer *buffer, int flags):
        cdef uint32_t was
        while True:
            was = _atomics.load_relaxed32(&self.exports)
            if was & SETTLED:
                raise BufferError("the message's callback has returned, or the acquire block was left; copy what is kept")
            if swap(&self.exports, was, was + 1):
                break
        try:
            PyBuffer_FillInfo(buffer, self, self.start, self.length, not self.writes, flags)
        except BaseException:
            add(&self.exports, <uint32_t>-1)
            raise

    def __releasebuffer__(self, Py_buffer *buffer):
        # In whatever thread the last array goes.
        if add(&self.exports, <uint32_t>-1) == SETTLED + 1:
            add(&self.twin.kept, <uint32_t>-1)

    cpdef bint settle(self) except -1:
        cdef Lender lender = self.lender
        if _atomics.load_relaxed32(&self.exports) & SETTLED:
            return False
        if lender.out is self:
            lender.out = None
        try:
            return self.end()
        finally:
            self.lender = None

    cdef bint end(self) except -1:
        cdef Lender lender = self.lender
        cdef uint32_t was = add(&self.exports, SETTLED)
        if was == 1:
            add(&self.exports, <uint32_t>-1)
            lender.patience >>= 1
            return False
        add(&self.twin.kept, 1)
        try:
            self.secure()
        finally:
            if add(&self.exports, <uint32_t>-1) == SETTLED + 1:
                add(&self.twin.kept, <uint32_t>-1)
        lender.patience = min(2 * lender.patience + PATIENCE_STEP, PATIENCE_MAX)
        lender.copies = lender.patience
        lender.kept += 1
        if lender.on_kept is not None:
            lender.on_kept()
        return True

    cdef int secure(self) except -1:
        cdef size_t first = self.start - self.twin.base
        if not self.twin.is_taken(first, self.length):
            self.twin.replace(first, self.length, self.lender.data + first)
        return 0


cdef class Lender:
    def __init__(self, Mapping mapping, size_t offset, bint writes, on_kept=None):
        if offset >= mapping.size or offset + 2 * (mapping.size - offset) > mapping.mapped:
            raise ValueError(f"a mapping of {mapping.size} bytes does not show its data from byte {offset} on twice")
        self.mapping = mapping
        self.data = mapping.base + offset
        self.capacity = mapping.size - offset
        self.writes = writes
        self.on_kept = on_kept

    def lend_at(self, size_t place, Py_ssize_t length):
        if length < 0 or place + <size_t>length > 2 * self.capacity:
            raise ValueError(f"no {length} bytes at byte {place} of a ring of {self.capacity}")
        return self.lend(self.data + place, length)

    def secure(self):
        if self.out is not None:
            self.out.secure()

    cdef Loan lend(self, const char *start, Py_ssize_t length):
        cdef size_t first = start - self.data
        cdef Twin twin = self.twin
        cdef Loan loan
        if self.copies:
            self.copies -= 1
            return None
        if self.impossible or length == 0:
            return None
        if twin is not None and twin.pieces and (twin.pieces == PIECES_MAX or twin.is_taken(first, length)):
            if _atomics.load_relaxed32(&twin.kept):
                return None
            twin = self.twin = None     # nobody looks at its pages any more
        if twin is None:
            twin = self.twin = twin_of(self.mapping, self.data, self.capacity)
            if twin is None:
                self.impossible = True
                return None
        loan = Loan.__new__(Loan)
        loan.start, loan.length = twin.base + first, length
        loan.lender, loan.twin, loan.writes = self, twin, self.writes
        loan.exports = 1
        self.out = loan
        return loan
