# The room in a ring: how far the readers are, and where the writer may write.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ringbuf cimport _atomics
from ringbuf._layout cimport RECORD_ALIGN, SLOT_ACTIVE, WRITER_SLEEPS, Slot
from ringbuf._skips cimport find_place, take_back
from ringbuf.ring cimport NO_SKIP, Writer
from ringbuf.wake cimport barrier, futex_wait

cdef enum:
    SLOT_BYTES = sizeof(Slot)
    UNFENCED_NS = 1_000_000     # longest sleep where readers may not see that the writer sleeps


cdef inline Slot *slot_at(char *slots, uint32_t index) noexcept nogil:
    return <Slot *>(slots + <size_t>index * SLOT_BYTES)


cdef inline bint is_possible(const Writer *w, uint64_t position, bint known) noexcept nogil:
    """Returns whether a reader may have this position.

    A joining reader may be more than one ring behind for a moment; once accepted, a reader is protected. A writer that
    goes back is up to a ring further, as skips count as bytes.
    """
    cdef uint64_t rings = (1 if known else 2) + (w.longest != 0)
    return position & (RECORD_ALIGN - 1) == 0 and w.head - position <= rings * (w.mask + 1)


cdef inline uint64_t published(const Writer *w) noexcept nogil:
    """Returns the position up to which records are published."""
    return w.head if w.skip_at == NO_SKIP else w.skip_at


cdef inline uint64_t slowest_position(Writer *w) noexcept nogil:
    """Returns the position of the slowest active reader; that of the next publication when there is no active reader.

    Each position is compared with the last accepted one. An impossible position was not written by the reader: the last
    accepted one counts until the reader shows its position again. A wrong position that is too far ahead, but not beyond
    the head, cannot be detected.
    """
    cdef uint64_t least = published(w), position
    cdef uint32_t i, generation
    cdef bint known
    cdef Slot *slot
    for i in range(w.slots_max):
        slot = slot_at(w.slots, i)
        if _atomics.load_acquire32(&slot.state) != SLOT_ACTIVE:  # SYNC state
            continue
        generation = _atomics.load_relaxed32(&slot.generation)
        known = w.accepted_generation[i] == generation
        position = _atomics.load_acquire64(&slot.position)  # SYNC position
        if (known and position == w.accepted[i]) or is_possible(w, position, known):
            if known and position < w.accepted[i]:
                _atomics.store_relaxed64(&w.header.position_errors, w.header.position_errors + 1)
            # A lower position is accepted too: it is the safe choice, and the one before it may have been wrong.
            w.accepted[i] = position
            w.accepted_generation[i] = generation
        else:
            _atomics.store_relaxed64(&w.header.position_errors, w.header.position_errors + 1)
            if not known:
                continue
            position = w.accepted[i]
        if position < least:
            least = position
    return least


cdef inline bint has_made_room(const Writer *w, uint64_t end) noexcept nogil:
    """Returns whether all readers have read what lies a ring before `end`, so that the bytes up to there may be written.

    It changes nothing: a thread that waits without the interpreter lock would else undo what a sending one notes.
    """
    cdef uint64_t position
    cdef uint32_t i
    cdef bint known
    cdef Slot *slot
    if _atomics.load_relaxed32(w.control_cut):
        return False
    for i in range(w.slots_max):
        slot = slot_at(w.slots, i)
        if _atomics.load_acquire32(&slot.state) != SLOT_ACTIVE:  # SYNC state
            continue
        known = w.accepted_generation[i] == _atomics.load_relaxed32(&slot.generation)
        position = _atomics.load_acquire64(&slot.position)  # SYNC position
        if not is_possible(w, position, known):
            if not known:
                continue
            position = w.accepted[i]
        if end - position > w.mask + 1:
            return False
    return True


cdef inline bint find_room(Writer *w, uint64_t need) noexcept nogil:
    """Raises the limit so that `need` bytes may be written at the head; returns False when readers still need them.

    A writer that goes back may move the head, where no record is open.
    """
    cdef uint64_t slowest
    if w.source_paced:
        w.limit = w.head + need + w.intent_step
        # SYNC intent
        _atomics.store_relaxed64(&w.header.intent, w.limit)
        _atomics.fence_release()
        return True
    if not w.used:
        take_back(w)
    _atomics.fence_full()  # SYNC join
    slowest = slowest_position(w)
    w.limit = find_place(w, slowest, need) if w.longest else slowest + w.mask + 1
    if _atomics.load_relaxed32(w.control_cut):
        w.limit = w.head    # the slots of the readers are lost
    if w.longest:
        # Readers do not look at it: those that observe without a slot do (`ipcbus.stats.peek`).
        _atomics.store_relaxed64(&w.header.intent, w.limit)
    _atomics.fence_release()  # SYNC evict
    return w.head + need <= w.limit


cdef inline void writer_wait(Writer *w, uint64_t end, uint64_t spins, int64_t timeout_ns) noexcept nogil:
    cdef uint64_t i
    cdef uint32_t word
    for i in range(spins):
        if has_made_room(w, end):
            return
        _atomics.pause()
    # The writer waits for a quarter of the ring, so that it is not woken for each record, but never beyond the head.
    _atomics.store_relaxed64(&w.control.wanted, min(end - (w.mask + 1) + (w.mask + 1) // 4, published(w)))
    _atomics.or32(&w.control.writer_waits, WRITER_SLEEPS)
    if not barrier() and (timeout_ns < 0 or timeout_ns > UNFENCED_NS):  # SYNC wait
        timeout_ns = UNFENCED_NS
    if not has_made_room(w, end):
        word = _atomics.load_relaxed32(&w.control.writer_waits)
        if word & WRITER_SLEEPS:
            futex_wait(&w.control.writer_waits, word, timeout_ns)
