# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The usual case of datagrams; the stub has the documentation."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from ringbuf._layout cimport RECORD_ALIGN, RECORD_HEADER, Record
from ringbuf._long_copy cimport copy_in_caches
from ringbuf.clock cimport epoch_ns, monotonic_ns
from ringbuf.relay cimport put_bytes
from ringbuf.ring cimport RingReader, RingWriter, next_record, show_steps, step_over

from ipcbus.reliability.retransmit_window cimport RetransmitWindow
from ipcbus.transport.udp.mmsg cimport (
    BATCH, CONTROL_WORDS, JOINED_BYTES_MAX, JOINED_COUNT_MAX, Batched, SocketAddress, ask_to_split, iovec, mmsghdr,
)
from ipcbus.wire.data_front cimport DataFront, be32toh, be64toh, fill, htobe32, htobe64, is_data

from ipcbus.reliability import credit
from ipcbus.wire import udp_packets

cdef uint8_t DATA = udp_packets.DATA
cdef uint8_t VERSION = udp_packets.VERSION
cdef uint64_t NUMBER_MAX = udp_packets.NUMBER_MAX
cdef uint64_t CHARGE = udp_packets.CHARGE
cdef uint64_t UNLIMITED = credit.UNLIMITED
cdef Py_ssize_t ACK_LEAD = udp_packets.ACK_LEAD
cdef Py_ssize_t ACK_ROOM = udp_packets.ACK_ROOM
TARGETS_MAX = BATCH

cdef enum:
    READS = 8  # of a fetch; what the system has joined may be as long as 64 KiB
    FRONT = 20  # bytes of the header before those that the window holds (udp_packets.DATA_FRONT)
    ACK_BYTES = 128  # more than an ACK without topics has
    AMPLE_BYTES = 1 << 19  # a receiver takes longer for these than a moment in which ACKs wait


cdef inline bint fits(
    const char *packet, Py_ssize_t length, DataFront *front, uint32_t session_id, uint64_t number, uint64_t trail_max
) noexcept:
    """Reads the header; returns whether the packet is as in `is_next`."""
    if length <= <Py_ssize_t>sizeof(DataFront):
        return False
    memcpy(front, packet, sizeof(DataFront))
    return (
        is_data(front, VERSION, DATA, session_id, number)
        and number <= NUMBER_MAX
        and be32toh(front.back) <= number
        and number - be32toh(front.back) <= trail_max
    )


def is_next(bytes packet not None, uint32_t session_id, uint64_t number, uint64_t trail_max):
    cdef DataFront front
    return fits(PyBytes_AS_STRING(packet), PyBytes_GET_SIZE(packet), &front, session_id, number, trail_max)


def relay(Batched arrivals not None, RingWriter writer not None, uint32_t session_id, uint64_t number, uint64_t trail_max):
    cdef Moved moved = Moved(0, 0, 0)
    cdef Py_ssize_t length
    cdef SocketAddress sender
    if arrivals.enter():
        try:
            if arrivals.front(&length) != NULL:
                sender = arrivals.names[arrivals.first]
                move(arrivals, writer, &sender, session_id, number, trail_max, &moved)
        finally:
            arrivals.leave()
    return moved.count, moved.size, moved.longest


cdef int move(
    Batched arrivals, RingWriter writer, const SocketAddress *sender, uint32_t session_id, uint64_t number,
    uint64_t trail_max, Moved *moved,
) except -1:
    """Moves the datagrams of a sender from the buffer to a ring, as long as each is the next one."""
    cdef Py_ssize_t length
    cdef const char *packet = arrivals.front(&length)
    cdef DataFront front
    cdef bint complete = trail_max >= number    # nothing is missing, so the source need not hold what is moved
    while packet != NULL and arrivals.same_sender(sender):
        if not fits(packet, length, &front, session_id, number, number if complete else trail_max):
            break
        moved.longest = max(moved.longest, length)
        length -= <Py_ssize_t>sizeof(front)
        if put_bytes(writer, packet + sizeof(front), length, 1, <int64_t>be64toh(front.send_time)) < 0:
            break
        arrivals.step()
        moved.size += length
        number += 1
        moved.count += 1
        packet = arrivals.front(&length)
    return 0


CAME, NOTHING_CAME, HAS_MORE, LEFT = FETCH_CAME, FETCH_NOTHING, FETCH_HAS_MORE, FETCH_LEFT


cdef class DatagramFetcher:
    def __cinit__(self, Batched arrivals not None, address, uint32_t session_id):
        arrivals.pack(&self.sender, address)
        self.arrivals, self.session_id = arrivals, session_id
        self.moved = Moved(0, 0, 0)

    def direct(self, RingWriter writer not None, uint64_t number, uint64_t trail_max, Py_ssize_t size_max, uint64_t room_min):
        with cython.critical_section(self):
            before = self.writer    # freed behind the section
            self.writer, self.number = writer, number
            # Where nothing is missing, the source need not hold what will have come by then.
            self.trail_max = trail_max if trail_max < number else <uint64_t>-1
            self.due, self.room_min = size_max, room_min
            self.ack, self.acks = None, 0

    def acknowledge_by(
        self, bytes ack not None, Batched socket not None, RingReader reader not None, room, longest, share, step
    ):
        if not ACK_ROOM + 4 <= len(ack) <= ACK_BYTES:
            raise ValueError(f"an ACK without topics has {ACK_ROOM + 4} to {ACK_BYTES} bytes, not {len(ack)}")
        with cython.critical_section(self):
            self.ack, self.socket, self.reader = ack, socket, reader
            self.promised, self.longest, self.share, self.step = room, longest, share, step

    def fetch(self):
        with cython.critical_section(self):
            return self.fetch_some()

    cdef int fetch_some(self) except -9:
        cdef Batched arrivals = self.arrivals
        cdef int before = self.moved.count
        if self.writer is None or not self.writer.has_room(self.room_min):
            return FETCH_HAS_MORE
        if self.charged() >= self.due and not self.acknowledge():
            return FETCH_HAS_MORE
        if not arrivals.enter():
            return FETCH_HAS_MORE
        try:
            if arrivals.refill(READS):
                if self.writer is None:
                    return FETCH_HAS_MORE  # while this thread read, another one has settled
                before = self.moved.count
                move(
                    arrivals, self.writer, &self.sender, self.session_id, self.number + <uint64_t>before,
                    self.trail_max, &self.moved,
                )
        finally:
            arrivals.leave()
        # At once, as the source may wait for it; where that fails, the state machine has to know.
        if arrivals.first != arrivals.count or (self.charged() >= self.due and not self.acknowledge()):
            return FETCH_HAS_MORE
        return FETCH_CAME if self.moved.count != before else FETCH_NOTHING

    cdef Py_ssize_t charged(self) noexcept:
        """Returns the bytes that were moved, as the receiver counts them for its ACKs."""
        return self.moved.size + self.moved.count * <Py_ssize_t>(CHARGE + sizeof(DataFront))

    cdef Py_ssize_t arrived(self) noexcept:
        """Returns the bytes that were moved, as the source counts them."""
        return self.moved.size + self.moved.count * <Py_ssize_t>CHARGE

    cdef bint acknowledge(self):
        """Sends an ACK that is due, unless the reader has yet to make the room for one; returns False where it cannot."""
        cdef char packet[ACK_BYTES]
        cdef mmsghdr head
        cdef iovec vector
        cdef uint64_t number
        cdef uint32_t room_of_ack
        cdef unsigned int done = 0
        cdef Py_ssize_t room
        if self.ack is None:
            return False
        room = <Py_ssize_t>self.writer.capacity - <Py_ssize_t>(self.writer.w.head - self.reader.r.position)
        # The end of the ring may take one more record, and one datagram is in hand.
        room = min(room - 2 * (max(self.longest, self.moved.longest) + RECORD_HEADER + RECORD_ALIGN), self.share)
        if self.arrived() + max(room, 0) - self.promised < self.step:
            # The state machine would not send one either. After a delivery, the next call of `fetch` tries again.
            return self.promised - self.arrived() >= self.step
        memcpy(packet, PyBytes_AS_STRING(self.ack), <size_t>PyBytes_GET_SIZE(self.ack))
        number = htobe64(self.number + <uint64_t>self.moved.count)
        memcpy(packet + ACK_LEAD, &number, sizeof(number))
        memcpy(packet + ACK_LEAD + sizeof(number), &number, sizeof(number))
        room_of_ack = htobe32(<uint32_t>room)
        memcpy(packet + ACK_ROOM, &room_of_ack, sizeof(room_of_ack))
        memset(&head, 0, sizeof(head))
        vector.iov_base, vector.iov_len = packet, <size_t>PyBytes_GET_SIZE(self.ack)
        head.msg_hdr.msg_iov, head.msg_hdr.msg_iovlen = &vector, 1
        head.msg_hdr.msg_name, head.msg_hdr.msg_namelen = &self.sender, self.socket.name_size
        room += self.arrived()
        self.socket.send_batch(&head, 1, &done)
        if done != 1 or self.writer is None:  # no room, or another thread has settled meanwhile
            return False
        self.promised, self.charged_then = room, self.charged()
        self.due = self.charged_then + self.step
        self.acks += 1
        return True

    def settle(self):
        cdef tuple acks = None, found
        with cython.critical_section(self):
            if self.acks:
                acks = self.acks, self.promised - self.arrived(), self.charged() - self.charged_then
            found = self.moved.count, self.moved.size, self.moved.longest, acks
            before, self.writer = self.writer, None     # freed behind the section
            self.ack = None
            self.moved, self.acks = Moved(0, 0, 0), 0
        return found

    @property
    def has_packet(self):
        return self.arrivals.first < self.arrivals.count


cdef struct Batch:
    mmsghdr heads[BATCH]
    iovec vectors[2 * BATCH]
    DataFront fronts[BATCH]
    unsigned int packets[BATCH + 1]  # by head for the first target: its first packet; behind them, the end
    uint64_t controls[BATCH][CONTROL_WORDS]
    unsigned int targets


cdef class RecordSender:
    def __cinit__(self, RingReader reader not None, RetransmitWindow window not None, uint32_t session_id):
        self.reader, self.window, self.session_id = reader, window, session_id

    def allow(self, uint64_t mask, lock, published, keep, on_room, AnswerWait answers=None):
        self.mask, self.lock, self.published, self.keep, self.on_room = mask, lock, published, keep, on_room
        self.answers = answers

    def aim(self, Batched socket not None, tuple addresses not None, uint64_t limit):
        cdef unsigned int i
        if addresses is not self.addresses or socket is not self.socket:
            if not 1 <= len(addresses) <= BATCH:
                raise ValueError(f"datagrams go to 1 to {BATCH} addresses at a time, not to {len(addresses)}")
            self.addresses, self.socket = None, socket
            for i in range(<unsigned int>len(addresses)):
                socket.pack(&self.names[i], addresses[i])
            self.addresses = addresses
        self.limit = limit
        self.ask_at = self.window.position + max((limit - self.window.position) * 3 // 4, <uint64_t>AMPLE_BYTES)

    def send(self):
        cdef list left = []
        cdef bint event = False
        cdef bint drained = self.send_waiting(left, &event)
        return event, drained, left

    def __call__(self, uint64_t mask):
        cdef bint done = False
        # A thread that has to wait for the lock, or that has it, leaves this to Python.
        if self.ready and mask == self.mask and not self.sending and self.lock.acquire(False):
            try:
                done = self.ready and self.window.position < self.ask_at and self.send_directly()
            finally:
                self.lock.release()
        if not done:
            self.published(mask)
        if self.answers is not None and mask == self.mask:
            self.answers.rung()

    cdef bint send_directly(self) except -1:
        """Sends what waits; returns False when the state machine has to go on."""
        cdef list left = []
        cdef bint event = False, drained
        drained = self.send_waiting(left, &event)
        self.ready = self.ready and drained
        if left:
            self.keep(left)
        if event:
            self.on_room()
        return drained

    def settle(self):
        cdef tuple found = (self.count, self.size, self.sent_ns)
        self.ready = False
        self.count, self.size = 0, 0
        return found

    @property
    def acks_due(self):
        return self.ready and self.window.position >= self.ask_at

    @property
    def position(self):
        return self.window.position

    @property
    def has_ample_room(self):
        return self.window.position + AMPLE_BYTES < self.limit < UNLIMITED

    @property
    def unsettled(self):
        return self.ready or self.count != 0

    cdef bint send_waiting(self, list left, bint *event) except -1:
        """Moves records to the window and to the socket; returns whether nothing more waits."""
        cdef Batch batch
        cdef unsigned int i, at, gathered, heads, handled, most
        cdef int found = 1
        cdef list bodies = []
        cdef tuple addresses = self.addresses
        cdef Batched socket = self.socket
        cdef RingReader reader = self.reader
        batch.targets = <unsigned int>len(addresses)
        most = BATCH // batch.targets
        self.sending = True
        try:
            while found == 1 and not left:
                gathered = 0
                bodies.clear()
                while gathered < most:
                    found = gather(&batch, gathered, reader, self.window, bodies, self.session_id, self.limit)
                    if found != 1:
                        break
                    self.size += <uint64_t>PyBytes_GET_SIZE(<bytes>bodies[gathered]) - (sizeof(DataFront) - FRONT)
                    gathered += 1
                if gathered == 0:
                    break
                heads = join(&batch, gathered, socket.joins) * batch.targets
                memset(batch.heads, 0, heads * sizeof(mmsghdr))
                for i in range(heads):
                    batch.heads[i].msg_hdr.msg_name = &self.names[i % batch.targets]
                    batch.heads[i].msg_hdr.msg_namelen = socket.name_size
                    set_packets(&batch, i)
                self.count += <int>gathered
                handled = 0
                socket.send_batch(batch.heads, heads, &handled)
                for i in range(handled, heads):
                    for at in range(batch.packets[i // batch.targets], batch.packets[i // batch.targets + 1]):
                        front = PyBytes_FromStringAndSize(<char *>&batch.fronts[at], FRONT)
                        left.append((front + <bytes>bodies[at], addresses[i % batch.targets]))
                # A source that waits for room need not wait for all of them.
                event[0] = show_steps(reader) or event[0]
        finally:
            self.sending = False
        # Damaged records may have been skipped.
        if reader.r.position != reader.r.shown or reader.owes_event:
            event[0] = show_steps(reader) or event[0]
        self.sent_ns = <int64_t>monotonic_ns
        return found == 0 and not left


cdef inline size_t length_of(const Batch *batch, unsigned int at) noexcept:
    """Returns the length of a packet."""
    return batch.vectors[2 * at].iov_len + batch.vectors[2 * at + 1].iov_len


cdef unsigned int join(Batch *batch, unsigned int gathered, bint joins) noexcept:
    """Joins packets of one length, of which the last may be shorter, to one head each; returns how many heads there are."""
    cdef unsigned int heads = 0, at = 0, first
    cdef size_t length, total
    while at < gathered:
        batch.packets[heads] = first = at
        length = total = length_of(batch, at)
        at += 1
        while (
            joins
            and at < gathered
            and at - first < JOINED_COUNT_MAX
            and length_of(batch, at - 1) == length
            and length_of(batch, at) <= length
            and total + length_of(batch, at) <= JOINED_BYTES_MAX
        ):
            total += length_of(batch, at)
            at += 1
        heads += 1
    batch.packets[heads] = gathered
    return heads


cdef void set_packets(Batch *batch, unsigned int at) noexcept:
    """Sets the packets of a head."""
    cdef unsigned int first = batch.packets[at // batch.targets], count = batch.packets[at // batch.targets + 1] - first
    cdef mmsghdr *head = &batch.heads[at]
    head.msg_hdr.msg_iov = &batch.vectors[2 * first]
    head.msg_hdr.msg_iovlen = 2 * count
    if count > 1:
        ask_to_split(head, <char *>batch.controls[at], <unsigned int>length_of(batch, first))
    else:
        head.msg_hdr.msg_control, head.msg_hdr.msg_controllen = NULL, 0


cdef int gather(
    Batch *batch, unsigned int at, RingReader reader, RetransmitWindow window, list bodies, uint32_t session_id,
    uint64_t limit,
) except -1:
    """Moves a record to the window and makes it a packet; returns 1, 0 without a record, or 2 when it must wait."""
    cdef uint32_t length
    cdef uint64_t back
    cdef bytes body
    cdef DataFront *front = &batch.fronts[at]
    cdef const Record *record = next_record(reader, &length)
    if record == NULL:
        return 2 if reader.r.stopped else 0
    length -= RECORD_HEADER
    if window.position + length + CHARGE > limit:
        return 2
    fill(front, VERSION, DATA, session_id, window.lead, 0, record.messages, <uint64_t>epoch_ns(record.send_ticks))
    body = window.room_for(<Py_ssize_t>(sizeof(DataFront) - FRONT + length))
    memcpy(PyBytes_AS_STRING(body), <char *>front + FRONT, sizeof(DataFront) - FRONT)
    copy_in_caches(PyBytes_AS_STRING(body) + sizeof(DataFront) - FRONT, <const char *>record + RECORD_HEADER, length)
    step_over(reader, record, record.messages)
    window.put(body)
    bodies.append(body)
    back = window.lead - 1 - window.trail
    front.back = htobe32(<uint32_t>min(back, <uint64_t>0xFFFFFFFF))
    batch.vectors[2 * at].iov_base = front
    batch.vectors[2 * at].iov_len = FRONT
    batch.vectors[2 * at + 1].iov_base = PyBytes_AS_STRING(body)
    batch.vectors[2 * at + 1].iov_len = <size_t>PyBytes_GET_SIZE(body)
    return 1
