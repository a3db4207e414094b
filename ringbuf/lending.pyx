# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Lends parts of a ring to an application; the stub has the documentation."""
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cimport cython

from ringbuf cimport _atomics
from ringbuf.memory cimport Mapping, unwatch_region, watch_region

cdef extern from *:
    """
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>
#include <unistd.h>
/* Maps the pages of a shared mapping a second time, at `to` (mremap(2): an old size of 0). */
static int ib_map_again(void *of, size_t length, void *to) {
    return mremap(of, 0, length, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to ? 0 : -1;
}
/* Replaces pages atomically: a thread that reads them meanwhile finds the old or the new pages. */
static int ib_move_pages(void *from, size_t length, void *to) {
    return mremap(from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to ? 0 : -1;
}
static size_t ib_page(void) { return (size_t)sysconf(_SC_PAGESIZE); }
/* All callers hold the GIL; where Python has no GIL, the words need atomic instructions. */
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
    REPLACEMENTS_MAX = 256            # for each mapping; the system allows a process about 65,000 in all
    COPIES_STEP = 16
    COPIES_MAX = 1024

cdef uint32_t SETTLED = 0x80000000
cdef size_t PAGE = ib_page()


cdef inline uint32_t add(uint32_t *word, uint32_t more) noexcept:
    """Adds to a word that several threads change; returns its old value."""
    cdef uint32_t was
    while True:
        was = _atomics.load_relaxed32(word)
        if swap(word, was, was + more):
            return was


cdef int own_pages(char *start, size_t length, const char *content) except -1:
    """Replaces the pages of `length` bytes by private pages with this content, and zeros around it."""
    cdef size_t before = <size_t>start & (PAGE - 1)
    cdef size_t size = (before + length + PAGE - 1) & ~(PAGE - 1)
    cdef char *own = <char *>mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if own == <char *>MAP_FAILED:
        raise MemoryError(f"cannot get {size} bytes of memory for a view that outlives its message; keep fewer views, or copy their bytes")
    memcpy(own + before, content, length)
    if ib_move_pages(own, size, start - before):
        munmap(own, size)
        raise MemoryError(
            f"cannot give a view that outlives its message {size} bytes of its own; keep fewer views, or raise vm.max_map_count"
        )
    return 0


cdef class SecondMapping:
    """The data of a ring, mapped a second time for loans."""

    def __dealloc__(self):
        if self.base != NULL:
            unwatch_region(self.region)
            munmap(self.base, self.mapped)
        free(self.replaced)

    cdef bint is_replaced(self, size_t first, size_t length) noexcept:
        cdef size_t page
        for page in range(first // PAGE, (first + length - 1) // PAGE + 1):
            if self.replaced[page]:
                return True
        return False

    cdef int replace_range(self, size_t first, size_t length, const char *content) except -1:
        cdef size_t page
        own_pages(self.base + first, length, content)
        self.replacements += 1
        for page in range(first // PAGE, (first + length - 1) // PAGE + 1):
            self.replaced[page] = 1
        return 0


cdef SecondMapping map_again(Mapping mapping, char *data, size_t capacity):
    """Maps the data of a ring a second time; returns None if the system refuses."""
    cdef SecondMapping second_mapping = SecondMapping.__new__(SecondMapping)
    cdef void *place = mmap(NULL, 2 * capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if place == MAP_FAILED:
        return None
    second_mapping.base, second_mapping.mapped = <char *>place, 2 * capacity
    second_mapping.first_mapping = mapping
    second_mapping.region = watch_region(second_mapping.base, second_mapping.mapped, &mapping.cut_short)
    second_mapping.replaced = <unsigned char *>calloc(2 * capacity // PAGE + 1, 1)
    if second_mapping.replaced == NULL or ib_map_again(data, capacity, second_mapping.base):
        return None
    return None if ib_map_again(data, capacity, second_mapping.base + capacity) else second_mapping


@cython.freelist(4)
cdef class Loan:
    def __getbuffer__(self, Py_buffer *buffer, int flags):
        cdef uint32_t was
        while True:
            was = _atomics.load_relaxed32(&self.exports)
            if was & SETTLED:
                raise BufferError(
                    "this view has ended with its callback or its acquire() block; copy the bytes that you keep before that"
                )
            if swap(&self.exports, was, was + 1):
                break
        try:
            PyBuffer_FillInfo(buffer, self, self.start, self.length, not self.writes, flags)
        except BaseException:
            add(&self.exports, <uint32_t>-1)
            raise

    def __releasebuffer__(self, Py_buffer *buffer):
        # Runs in the thread that drops the last array.
        if add(&self.exports, <uint32_t>-1) == SETTLED + 1:
            add(&self.second_mapping.kept_loans, <uint32_t>-1)

    cpdef bint settle(self) except -1:
        cdef Lender lender
        with cython.critical_section(self):
            lender, self.lender = self.lender, None
        if lender is None:
            return False    # it is settled, or another thread settles it
        with cython.critical_section(lender):
            if lender.current_loan is self:
                lender.current_loan = None
            return self.end(lender)

    cdef bint end(self, Lender lender) except -1:
        cdef uint32_t was = add(&self.exports, SETTLED)
        if was == 1:
            add(&self.exports, <uint32_t>-1)
            lender.copies_after_kept >>= 1
            return False
        add(&self.second_mapping.kept_loans, 1)
        try:
            self.replace_pages(lender)
        finally:
            if add(&self.exports, <uint32_t>-1) == SETTLED + 1:
                add(&self.second_mapping.kept_loans, <uint32_t>-1)
        lender.copies_after_kept = min(2 * lender.copies_after_kept + COPIES_STEP, COPIES_MAX)
        lender.copies_left = lender.copies_after_kept
        lender.kept_loans += 1
        if lender.on_kept is not None:
            lender.on_kept()
        return True

    cdef int replace_pages(self, Lender lender) except -1:
        cdef SecondMapping second_mapping = self.second_mapping
        cdef size_t first = self.start - second_mapping.base
        cdef size_t page = first // PAGE, end = (first + self.length - 1) // PAGE + 1, behind
        # Whole pages: another loan that lasts may lie beside this one, or may have had one of its pages replaced.
        while page < end:
            behind = page + 1
            if not second_mapping.replaced[page]:
                while behind < end and not second_mapping.replaced[behind]:
                    behind += 1
                second_mapping.replace_range(page * PAGE, (behind - page) * PAGE, lender.data + page * PAGE)
            page = behind
        return 0


cdef class Lender:
    def __init__(self, Mapping mapping, size_t offset, bint writes, on_kept=None):
        if offset >= mapping.size or offset + 2 * (mapping.size - offset) > mapping.mapped:
            raise ValueError(
                f"a mapping of {mapping.size} bytes does not show its data from byte {offset} on twice; map it with "
                f"twice_from={offset}"
            )
        self.mapping = mapping
        self.data = mapping.base + offset
        self.capacity = mapping.size - offset
        self.writes = writes
        self.on_kept = on_kept

    def lend_at(self, size_t place, Py_ssize_t length):
        if length < 0 or place + <size_t>length > 2 * self.capacity:
            raise ValueError(
                f"{length} bytes from byte {place} on lie outside a ring of {self.capacity} bytes; lend bytes inside it"
            )
        return self.lend(self.data + place, length)

    def replace_pages(self):
        with cython.critical_section(self):
            if self.current_loan is not None:
                self.current_loan.replace_pages(self)

    cdef Loan lend(self, const char *start, Py_ssize_t length):
        with cython.critical_section(self):
            return self.make_loan(start, length)

    cdef Loan make_loan(self, const char *start, Py_ssize_t length):
        cdef size_t first = start - self.data
        cdef SecondMapping second_mapping = self.second_mapping
        cdef Loan loan
        if self.copies_left:
            self.copies_left -= 1
            return None
        if self.impossible or length == 0:
            return None
        if second_mapping is not None and second_mapping.replacements and (second_mapping.replacements >= REPLACEMENTS_MAX or second_mapping.is_replaced(first, length)):
            if _atomics.load_relaxed32(&second_mapping.kept_loans):
                return None
            second_mapping = self.second_mapping = None     # no view shows its pages any more
        if second_mapping is None:
            second_mapping = self.second_mapping = map_again(self.mapping, self.data, self.capacity)
            if second_mapping is None:
                self.impossible = True
                return None
        loan = Loan.__new__(Loan)
        loan.start, loan.length = second_mapping.base + first, length
        loan.lender, loan.second_mapping, loan.writes = self, second_mapping, self.writes
        loan.exports = 1
        self.current_loan = loan
        return loan
