# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""What a source retains of one topic; the stub has the documentation."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport UINT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cimport cython

from ipcbus.wire._wire_layout cimport (
    FLAG_FRAGMENT, FLAG_STAMPED, FRAGMENT_HEADER_BYTES, MESSAGE_HEADER_BYTES, RETAINED_HEADER_BYTES, TOPIC_BITS,
    FragmentHeader, MessageHeader, RetainedHeader,
)
from ringbuf cimport _atomics
from ringbuf.clock cimport epoch_ns
from ringbuf.ring cimport aligned

cdef enum:
    BLOCKS = 32             # the limit is spread over about this many blocks
    BLOCK_MIN = 1 << 14
    BLOCK_MAX = 1 << 26


cdef inline uint32_t continues(const char *message) noexcept:
    """Returns CONTINUES for a fragment that is not the first one of its message."""
    cdef const MessageHeader *header = <const MessageHeader *>message
    if not header.topic & <uint32_t>FLAG_FRAGMENT << TOPIC_BITS:
        return 0
    return CONTINUES if (<const uint64_t *>(message + MESSAGE_HEADER_BYTES))[0] != header.sequence else 0


cdef inline uint64_t begin_of(const Block *block, uint64_t place) noexcept:
    """Returns the offset of the entry at a place of a block; at `count` that of the end."""
    if place >= block.count:
        return block.used
    return block.index_end[-1 - <int64_t>place] & ~<uint32_t>CONTINUES


cdef Block *new_block(Retained *r, uint64_t need) noexcept:
    """Returns a block with room for an entry; NULL when there is no memory."""
    cdef Block *block = r.spare
    cdef uint64_t size = max(<uint64_t>r.block_bytes, need + 8)
    if block != NULL and block.size >= size:
        r.spare = NULL
    else:
        block = <Block *>malloc(sizeof(Block) + size)
        if block == NULL:
            return NULL
        block.entries = <char *>&block[1]
        block.index_end = <uint32_t *>(block.entries + size)
        block.size = <uint32_t>size
    block.newer = block.older = NULL
    block.count = block.used = 0
    return block


cdef void free_block(Retained *r, Block *block) noexcept:
    """Keeps one block of the usual size for later, so that a full retention takes no memory from the system."""
    if r.spare == NULL and block.size == r.block_bytes:
        r.spare = block
    else:
        free(block)


cdef void drop_entry(Retained *r) noexcept:
    """Drops the oldest entry, and its block with the last entry of it."""
    cdef Block *block = r.oldest
    cdef uint64_t place = r.low - block.first
    r.bytes -= begin_of(block, place + 1) - begin_of(block, place)
    r.low += 1
    if place + 1 == block.count:
        r.oldest = block.newer
        if r.oldest == NULL:
            r.newest = NULL
        else:
            r.oldest.older = NULL
        free_block(r, block)


cdef void drop_oldest(Retained *r) noexcept:
    """Drops the oldest message, with all its fragments."""
    drop_entry(r)
    while r.oldest != NULL and r.oldest.index_end[-1 - <int64_t>(r.low - r.oldest.first)] & CONTINUES:
        drop_entry(r)


cdef void restart(Retained *r, uint64_t following) noexcept:
    """Drops all messages; the next one that can be retained has this number."""
    while r.oldest != NULL:
        drop_entry(r)
    r.low = r.following = following


cdef Block *prepare(Retained *r, uint64_t need, const char *message) noexcept:
    """Returns the block for a message, after making room for it; NULL when the message is not retained."""
    cdef uint64_t sequence = (<const MessageHeader *>message).sequence
    cdef Block *block
    if sequence != r.following:
        restart(r, sequence)
    if need > r.size_limit:
        restart(r, sequence)
    while r.oldest != NULL and r.bytes + need > r.size_limit:
        drop_oldest(r)
    # A message that does not fit, or whose first fragments have left, leaves whole.
    if need > r.size_limit or (r.oldest == NULL and continues(message)):
        r.low = r.following = sequence + 1
        return NULL
    block = r.newest
    if block == NULL or block.used + need + INDEX_BYTES * (<uint64_t>block.count + 1) > block.size:
        block = new_block(r, need)
        if block == NULL:
            restart(r, sequence + 1)
            return NULL
        block.first = sequence
        if r.newest == NULL:
            r.oldest = block
        else:
            r.newest.newer = block
            block.older = r.newest
        r.newest = block
    return block


cdef uint64_t oldest_message_bytes(const Retained *r) noexcept:
    """Returns the bytes of the oldest message; those of all its fragments follow from its first one."""
    cdef uint64_t place = r.low - r.oldest.first, first = begin_of(r.oldest, place), pieces, length
    cdef const RetainedHeader *entry = <const RetainedHeader *>(r.oldest.entries + first)
    cdef const FragmentHeader *fragment = <const FragmentHeader *>&entry[1]
    cdef uint64_t size = begin_of(r.oldest, place + 1) - first
    if not entry.topic & <uint32_t>FLAG_FRAGMENT << TOPIC_BITS or entry.length <= FRAGMENT_HEADER_BYTES:
        return size
    length = entry.length - FRAGMENT_HEADER_BYTES
    pieces = (fragment.total + length - 1) // length
    if pieces <= 1:
        return size
    return (pieces - 1) * size + RETAINED_HEADER_BYTES + aligned(
        FRAGMENT_HEADER_BYTES + fragment.total - (pieces - 1) * length
    )


cdef void trim(Retained *r, uint64_t now_ticks) noexcept:
    """Drops the messages that both thresholds let go."""
    cdef const RetainedHeader *entry
    while r.oldest != NULL and r.bytes > r.trim_above:
        if r.age_ticks:
            entry = <const RetainedHeader *>(r.oldest.entries + begin_of(r.oldest, r.low - r.oldest.first))
            if <int64_t>(now_ticks - entry.send_ticks) <= r.age_ticks:
                return
        if r.size_threshold and r.bytes < r.size_threshold + oldest_message_bytes(r):
            return
        drop_oldest(r)


cdef void retain(Retained *r, uint64_t send_ticks, const char *message) noexcept:
    """Retains a message: header and payload as they stand in the ring."""
    cdef const MessageHeader *header = <const MessageHeader *>message
    cdef uint64_t length = header.length, need = RETAINED_HEADER_BYTES + aligned(length)
    cdef Block *block = r.newest
    cdef RetainedHeader *entry
    cdef uint32_t mark = 0
    # The first part is rare, or has to be looked at; `prepare` says whether the message is retained at all.
    if (
        block == NULL or header.sequence != r.following or r.bytes + need > r.size_limit
        or header.topic & <uint32_t>FLAG_FRAGMENT << TOPIC_BITS
        or block.used + need + INDEX_BYTES * (<uint64_t>block.count + 1) > block.size
    ):
        block = prepare(r, need, message)
        if block == NULL:
            return
        mark = continues(message)
    entry = <RetainedHeader *>(block.entries + block.used)
    entry.send_ticks = send_ticks
    (<uint64_t *>(block.entries + block.used + need - 8))[0] = 0     # the padding; peers see it
    memcpy(&entry.length, message, MESSAGE_HEADER_BYTES + length)
    entry.topic &= ~(<uint32_t>FLAG_STAMPED << TOPIC_BITS)
    block.index_end[-1 - <int64_t>block.count] = block.used | mark
    block.used += <uint32_t>need
    block.count += 1
    r.bytes += need
    r.following += 1
    if r.bytes > r.trim_above:
        trim(r, send_ticks)


cdef inline bint is_first(const Block **block, uint64_t number) noexcept:
    """Returns whether a message begins with a number that stands in this block or in an older one; finds its block."""
    while number < block[0].first:
        block[0] = block[0].older
    return not block[0].index_end[-1 - <int64_t>(number - block[0].first)] & CONTINUES


cdef uint64_t before_messages(const Retained *r, uint64_t until, uint64_t messages) noexcept:
    """Returns the first number of the last `messages` messages below a number; the lowest one if there are fewer.

    It walks back from the end: other threads wait meanwhile, and the retention may be much longer.
    """
    cdef const Block *block = r.newest
    cdef uint64_t number = until
    while messages and number > r.low:
        number -= 1
        messages -= is_first(&block, number)
    return number


cdef uint64_t messages_from(const Retained *r, uint64_t first) noexcept:
    """Returns how many messages that it holds begin at this number or above. It walks back from the end, as above."""
    cdef const Block *block = r.newest
    cdef uint64_t number = r.following, low = max(first, r.low), messages = 0
    while number > low:
        number -= 1
        messages += is_first(&block, number)
    return messages


cdef Block *block_of(const Retained *r, uint64_t number) noexcept:
    """Returns the block with a number that is retained."""
    cdef Block *block = r.oldest
    while number - block.first >= block.count:
        block = block.newer
    return block


cdef uint64_t place_up_to(const Block *block, uint64_t place, uint64_t end, uint64_t bytes_max) noexcept:
    """Returns the highest place, `end` at most, before which the entries from `place` on have `bytes_max` bytes at most."""
    cdef uint64_t begin = begin_of(block, place), low = place, middle
    while low < end:
        middle = (low + end + 1) // 2
        if begin_of(block, middle) - begin <= bytes_max:
            low = middle
        else:
            end = middle - 1
    return low


cdef inline object lock_of(Retention retention):
    """Returns the object in whose critical section the messages change: the batch of the source that sends them."""
    return retention if retention.owner is None else retention.owner


cdef class Retention:
    """The messages of one topic that a source retains, in private memory."""
    def __init__(self, uint64_t size_threshold, int64_t age_threshold_ns, uint64_t size_limit):
        if age_threshold_ns < 0:
            raise ValueError(f"age_threshold_ns = {age_threshold_ns}, but an age is at least 0")
        self.age_threshold_ns = age_threshold_ns
        self.retained.size_limit = size_limit
        self.retained.size_threshold = size_threshold
        self.retained.trim_above = size_threshold if size_threshold or age_threshold_ns else UINT64_MAX
        self.retained.block_bytes = <uint32_t>min(max(size_limit // BLOCKS, <uint64_t>BLOCK_MIN), <uint64_t>BLOCK_MAX) & ~<uint32_t>7
        self.set_clock(1.0)
        self.own_published = UINT64_MAX
        self.published_word = &self.own_published

    def __dealloc__(self):
        restart(&self.retained, 0)
        free(self.retained.spare)

    cdef void attach(self, uint64_t number, double ns_per_tick, const uint64_t *published, object owner):
        """Has a source put its messages here.

        Args:
            number: the number of its next message.
            ns_per_tick: unit of its send times.
            published: the word with the number after the last message that it has published.
            owner: keeps the memory of the word.
        """
        if self.retained.following != number:
            restart(&self.retained, number)
        self.set_clock(ns_per_tick)
        self.published_word, self.owner = published, owner

    cdef void set_clock(self, double ns_per_tick) noexcept:
        if self.age_threshold_ns:
            self.retained.age_ticks = max(<int64_t>(<double>self.age_threshold_ns / ns_per_tick), 1)

    @property
    def low(self):
        return self.retained.low

    @property
    def next(self):
        return self.retained.following

    @property
    def published(self):
        return _atomics.load_relaxed64(self.published_word)

    @published.setter
    def published(self, uint64_t number):
        self.own_published = number
        self.published_word = &self.own_published

    @property
    def retained_bytes(self):
        return self.retained.bytes

    @property
    def memory(self):
        cdef const Block *block
        cdef uint64_t total = 0
        with cython.critical_section(lock_of(self)):
            block = self.retained.oldest
            if self.retained.spare != NULL:
                total = sizeof(Block) + self.retained.spare.size
            while block != NULL:
                total += sizeof(Block) + block.size
                block = block.newer
        return total

    def put(self, uint64_t send_ticks, bytes message not None):
        cdef const MessageHeader *header = <const MessageHeader *>PyBytes_AS_STRING(message)
        if len(message) < MESSAGE_HEADER_BYTES or len(message) - MESSAGE_HEADER_BYTES != header.length:
            raise ValueError(f"a message of {len(message)} bytes does not have the length that its header says")
        if header.topic & <uint32_t>FLAG_FRAGMENT << TOPIC_BITS and header.length < FRAGMENT_HEADER_BYTES:
            raise ValueError(f"a fragment of {header.length} bytes has no fragment header")
        with cython.critical_section(lock_of(self)):
            retain(&self.retained, send_ticks, PyBytes_AS_STRING(message))

    def expire(self, uint64_t now_ticks):
        if self.retained.age_ticks:
            with cython.critical_section(lock_of(self)):
                trim(&self.retained, now_ticks)

    def clear(self):
        with cython.critical_section(lock_of(self)):
            restart(&self.retained, self.retained.following)

    def drop_below(self, uint64_t number):
        with cython.critical_section(lock_of(self)):
            while self.retained.oldest != NULL and self.retained.low < number:
                drop_oldest(&self.retained)

    cdef uint64_t end(self) noexcept:
        """Returns the number after the highest one that it holds and that is published."""
        return min(self.retained.following, _atomics.load_relaxed64(self.published_word))

    def info(self, history=None, before=None):
        cdef uint64_t following, until, low
        with cython.critical_section(lock_of(self)):
            until = following = self.end()
            low = min(self.retained.low, following)
            if before is not None and before < until:
                until = max(<uint64_t>before, low)
            if history is None or history >= until - low:
                return low, following
            return before_messages(&self.retained, until, history), following

    def count_from(self, uint64_t first):
        with cython.critical_section(lock_of(self)):
            return messages_from(&self.retained, first)

    def read(self, uint64_t first, uint64_t last, uint64_t bytes_max, *, bint epoch=False):
        with cython.critical_section(lock_of(self)):
            return self.copy_entries(first, last, bytes_max, epoch)

    cdef object copy_entries(self, uint64_t first, uint64_t last, uint64_t bytes_max, bint epoch):
        # Between here and the last copy no object is made that the garbage collector counts: collecting may let another
        # thread send, and a send may free blocks.
        cdef Retained *r = &self.retained
        cdef uint64_t number = max(first, r.low), until = self.end(), size = 0, place, end, some
        cdef Block *block
        cdef char *to
        if last < until:
            until = last + 1
        if number >= until:
            return first, first, b""
        first = number
        block = block_of(r, number)
        while True:
            place = number - block.first
            end = min(<uint64_t>block.count, until - block.first)
            end = place_up_to(block, place, end, bytes_max - size)
            if size == 0 and end == place:
                end = place + 1     # a long message goes alone
            size += begin_of(block, end) - begin_of(block, place)
            number = block.first + end
            if number == until or end < block.count or size >= bytes_max:
                break
            block = block.newer
        entries = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(entries)
        block = block_of(r, first)
        place = first - block.first
        while size:
            some = min(size, block.used - begin_of(block, place))
            memcpy(to, block.entries + begin_of(block, place), some)
            to, size, place = to + some, size - some, 0
            block = block.newer
        if epoch:
            times_since_epoch(entries)
        return first, number, entries


cdef void times_since_epoch(bytes entries) noexcept:
    """Converts the send times of entries from ticks to ns since the epoch."""
    cdef char *at = PyBytes_AS_STRING(entries)
    cdef char *end = at + len(entries)
    cdef RetainedHeader *entry
    while at < end:
        entry = <RetainedHeader *>at
        entry.send_ticks = <uint64_t>epoch_ns(entry.send_ticks)
        at += RETAINED_HEADER_BYTES + aligned(entry.length)
