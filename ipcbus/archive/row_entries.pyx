# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Recorded messages of one topic of one session, row by row; the stub documents them."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from ipcbus.archive._archive_layout cimport (
    AGAIN_NS,
    BATCH_WAIT_BIT,
    TYPE_BOS,
    TYPE_DATA,
    TYPE_EOS,
    TYPE_LOSS_RECORDER,
    TYPE_UNRECOVERABLE_LOSS,
    TYPE_UNRECOVERABLE_LOSS_BURST,
    Row,
)
from ipcbus.wire._wire_layout cimport (
    FLAG_END_BATCH,
    FLAG_FRAGMENT,
    FLAG_PROPERTIES,
    FLAG_START_BATCH,
    TOPIC_BITS,
    FragmentHeader,
    RetainedHeader,
)

from ipcbus.embedding import NUMBER_MAX

cdef uint32_t BATCH_WAIT = <uint32_t>1 << BATCH_WAIT_BIT
cdef enum:
    UNKNOWN = -1    # topic number of rows before which no row of type BOS says it
    ANOTHER = -2    # topic number of rows that are not of the wanted one, whatever they are of


cdef inline uint64_t aligned(uint64_t length) noexcept:
    return (length + 7) & ~<uint64_t>7


cdef inline uint64_t ceil_div(uint64_t size, uint64_t part) noexcept:
    return (size + part - 1) // part


cdef inline int64_t numbers_of(const Row *row) noexcept:
    """Returns how many numbers a message has."""
    return 1 if row.numbers >= BATCH_WAIT else row.numbers


cdef inline uint64_t entries_size(const Row *row) noexcept:
    """Returns the bytes of a message's entries, or a little more."""
    cdef uint64_t count = numbers_of(row), length = <uint64_t>row.length + row.headers
    if count == 1:
        return sizeof(RetainedHeader) + aligned(length)
    return length + count * (sizeof(RetainedHeader) + sizeof(FragmentHeader) + 7)


cdef class RowSearch:
    def __init__(self, uint32_t topic, uint32_t session, int64_t number):
        self.topic, self.session, self.number = topic, session, number
        self.changes, self.changed_at, self.newest = [], -1, UNKNOWN
        self.forget()

    cdef int forget(self) except -1:
        self.first, self.last, self.sent_ns = NUMBER_MAX, -1, -1
        self.places = []
        self.again_ns, self.is_certain = AGAIN_NS, False
        return 0

    cdef int forget_before(self, int64_t offset, int64_t number) except -1:
        """Takes all rows before a row for those of other topic numbers."""
        self.forget()
        self.changes = [(0, ANOTHER)]
        return self.change(offset, number)

    cdef int change(self, int64_t offset, int64_t number) except -1:
        """Takes note that the rows from an offset on have a topic number."""
        self.changes.append((offset, number))
        self.changed_at, self.newest = offset, number
        return 0

    cdef int64_t number_at(self, int64_t offset) except? -1:
        """Returns which topic number a row has, as far as the rows before it say."""
        for at, number in reversed(self.changes):
            if at <= offset:
                return number
        return UNKNOWN

    cdef int64_t change_after(self, int64_t offset) except -1:
        """Returns the offset behind a row where the topic number changes, as far as it is known."""
        return min((at for at, _ in self.changes if at > offset), default=INT64_MAX)

    cdef int64_t named(self, const Row *row, int64_t offset) except? -1:
        """Returns which topic number the rows after a row of type BOS have; notes it when it is read first."""
        cdef int64_t number = -2 - row.sequence if row.sequence < UNKNOWN else UNKNOWN
        if offset > self.changed_at and number != self.newest:
            self.change(offset, number)
        return number

    @property
    def is_behind(self):
        return self.newest != UNKNOWN and self.newest != self.number

    def note(self, const unsigned char[::1] rows not None, int64_t offset):
        cdef const Row *row = <const Row *>&rows[0]
        cdef const Row *end = row + rows.shape[0] // sizeof(Row)
        cdef int64_t first, number = self.number_at(offset)
        cdef bint noted = False
        while row < end:
            if row.topic != self.topic or row.session != self.session:
                pass
            elif row.type == TYPE_BOS:
                number = self.named(row, offset)
                if not self.is_certain and number != UNKNOWN:
                    if number != self.number:
                        # What was found is most likely of that one, or of one before it.
                        self.forget_before(offset, number)
                        noted = False
                    self.again_ns = 0   # a message that was recorded twice has the same send time
            elif row.type == TYPE_DATA and row.sequence >= 0 and (number == self.number or number == UNKNOWN):
                if row.sequence <= self.last and row.send_ns > self.sent_ns + self.again_ns:
                    self.forget_before(offset, number)
                    noted = False
                if self.last < 0:
                    self.is_certain = number == self.number
                    self.again_ns = AGAIN_NS
                first = max(0, row.sequence - max(1, numbers_of(row)) + 1)
                if first > self.last and not noted:
                    self.places.append((first, offset))
                    noted = True
                self.first = min(self.first, first)
                self.last = max(self.last, row.sequence)
                self.sent_ns = max(self.sent_ns, row.send_ns)
            row += 1
            offset += 1

    def leave_out_others(self, unsigned char[::1] rows not None, int64_t offset):
        cdef Row *row = <Row *>&rows[0]
        cdef Row *end = row + rows.shape[0] // sizeof(Row)
        cdef int64_t number = UNKNOWN, change = offset
        while row < end:
            if row.topic == self.topic and row.session == self.session:
                if row.type == TYPE_BOS:
                    self.named(row, offset)
                    change = offset
                if offset >= change:
                    number, change = self.number_at(offset), self.change_after(offset)
                if number != self.number and number != UNKNOWN:
                    row.topic = 0   # stands for no topic
            row += 1
            offset += 1


cdef class RowEntries:
    def __init__(self, const unsigned char[::1] rows not None, const unsigned char[::1] data not None, uint64_t start,
                 uint32_t topic, uint32_t session, uint32_t number):
        self.rows, self.data = rows, data
        self.row = <const Row *>&rows[0]
        self.end = self.row + rows.shape[0] // sizeof(Row)
        self.start = self.expected = start
        self.stop = start + <uint64_t>data.shape[0]
        self.topic, self.session, self.number = topic, session, number

    cdef bint wanted(self, const Row *row) noexcept:
        return row.topic == self.topic and row.session == self.session and row.type == TYPE_DATA

    cdef bint possible(self) noexcept:
        """Returns whether the row at hand does not contradict the rows before it and the data; ends if it does."""
        cdef const Row *row = self.row
        cdef uint64_t length = <uint64_t>row.length + row.headers
        cdef int64_t count = numbers_of(row)
        if row.position == self.expected and length <= self.stop - self.expected and (
            not self.wanted(row) or (
                1 <= count <= row.sequence + 1 and row.sequence < INT64_MAX
                and (count == 1 or (length > 0 and <uint64_t>count == ceil_div(length, ceil_div(length, count))))
            )
        ):
            return True
        self.contradicts = True
        self.row = self.end
        return False

    cdef void step(self) noexcept:
        self.expected += <uint64_t>self.row.length + self.row.headers
        self.row += 1

    def has(self, int64_t first):
        cdef const Row *row = self.row
        while row < self.end:
            if self.wanted(row) and row.sequence >= first:
                return True
            row += 1
        return False

    def lost_below(self, int64_t below):
        cdef const Row *row = <const Row *>&self.rows[0]
        while row < self.end:
            if row.topic == self.topic and row.session == self.session:
                if row.type == TYPE_BOS:
                    below = 0   # the topic may have begun again
                elif row.type in (TYPE_LOSS_RECORDER, TYPE_UNRECOVERABLE_LOSS, TYPE_UNRECOVERABLE_LOSS_BURST):
                    below = max(below, min(row.sequence, INT64_MAX - 1) + 1)
            row += 1
        return below

    def ends_without_message(self):
        cdef const Row *row = self.end
        while row > <const Row *>&self.rows[0]:
            row -= 1
            if row.topic == self.topic and row.session == self.session:
                return row.type == TYPE_BOS or row.type == TYPE_EOS
        return None

    def begin(self, int64_t first):
        while self.row < self.end and self.possible():
            if self.wanted(self.row) and self.row.sequence - numbers_of(self.row) + 1 >= first:
                return self.row.sequence - numbers_of(self.row) + 1
            self.step()
        return None

    def take(self, int64_t last, int messages, uint64_t size):
        cdef const Row *first = self.row
        cdef const Row *row
        cdef const Row *end = self.row
        cdef uint64_t expected = self.expected, need = 0
        cdef int64_t reached = -1
        cdef int count = 0
        cdef bytes made
        cdef char *to
        # First the length of the entries, then the entries.
        while self.row < self.end and count < messages and self.possible():
            row = self.row
            if self.wanted(row):
                if (count and row.sequence - numbers_of(row) != reached) or row.sequence > last:
                    break
                if count and need + entries_size(row) > size:
                    break
                need += entries_size(row)
                reached = row.sequence
                count += 1
                end = row + 1
            self.step()
        made = PyBytes_FromStringAndSize(NULL, need)
        to = PyBytes_AS_STRING(made)
        row = first
        while row < end:
            if self.wanted(row):
                to = self.write(to, row, <const char *>&self.data[0] + (expected - self.start))
            expected += <uint64_t>row.length + row.headers
            row += 1
        return reached, count, made[:to - PyBytes_AS_STRING(made)]

    cdef char *write(self, char *to, const Row *row, const char *data) noexcept:
        """Writes the entries of a message; returns where they end."""
        cdef uint64_t length = <uint64_t>row.length + row.headers, count = numbers_of(row), piece, i, begin, end
        cdef uint32_t flags = row.flags & (FLAG_START_BATCH | FLAG_END_BATCH)
        cdef uint64_t sequence = <uint64_t>row.sequence - count + 1
        cdef FragmentHeader *fragment
        if row.headers:
            flags |= FLAG_PROPERTIES
        if count == 1:
            to = self.write_header(to, row, sequence, flags, length)
            memcpy(to, data, length)
            return pad(to, length)
        # The fragments need not have their old length, but there are as many of them, and only the last one is shorter.
        piece = ceil_div(length, count)
        for i in range(count):
            begin, end = i * piece, min((i + 1) * piece, length)
            to = self.write_header(to, row, sequence + i, flags | FLAG_FRAGMENT, sizeof(FragmentHeader) + end - begin)
            fragment = <FragmentHeader *>to
            fragment.first = sequence
            fragment.offset = <uint32_t>begin
            fragment.total = <uint32_t>length
            memcpy(to + sizeof(FragmentHeader), data + begin, end - begin)
            to = pad(to, sizeof(FragmentHeader) + end - begin)
        return to

    cdef char *write_header(self, char *to, const Row *row, uint64_t sequence, uint32_t flags, uint64_t length) noexcept:
        cdef RetainedHeader *header = <RetainedHeader *>to
        header.send_ticks = <uint64_t>row.send_ns
        header.length = <uint32_t>length
        header.topic = self.number | flags << TOPIC_BITS
        header.sequence = sequence
        return to + sizeof(RetainedHeader)


cdef inline char *pad(char *to, uint64_t length) noexcept:
    memset(to + length, 0, aligned(length) - length)
    return to + aligned(length)
