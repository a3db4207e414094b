# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, auto_pickle=False
"""Messages and events as an application gets them; the stub has the documentation."""
cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from ipcbus.delivery.message_types import MessageType
from ipcbus.delivery.spare_bytes cimport own_bytes
from ipcbus.errors import ClosedError, IpcBusError
from ipcbus.wire._wire_layout cimport (
    FLAG_GUARANTEED, FLAG_PROPERTIES, FLAG_REQUEST, GUARANTEED_HEADER_BYTES, REQUEST_HEADER_BYTES,
)
from ipcbus.wire.array_form import array_over
from ipcbus.wire.properties cimport block_copy
from ipcbus.wire.properties import unpack
from ipcbus.wire.topic_places cimport count_of, first_of
from ringbuf.clock cimport epoch_ns, ticks_of
from ringbuf.free_threads cimport share_methods
from ringbuf.lending cimport end_view

cdef enum:
    GMD_RESEND = 0x10000    # MessageFlag.GMD_RESEND

cdef uint64_t NO_NUMBER = <uint64_t>-1

cdef dict _types = {int(kind): kind for kind in MessageType}
cdef object _data = MessageType.DATA


cdef class QuickResponder:
    """Takes the responses to the requests of a session (`Responder`); a compiled subclass takes `bytes` at once.

    Its `respond_now` gets the number of the request and the response; it returns False, and has done nothing, when
    `respond` has to take the response.
    """

    cdef bint respond_now(self, uint64_t request, bytes data) except? True:
        return False


cdef class Origin:
    """A topic of a session, from which messages come."""

    def __init__(self, str topic, str source, int64_t number=-1):
        self.topic = topic
        self.source = source
        self.number = number

    def set_sender(self, str sender not None, uint64_t incarnation):
        """Takes note who sends the guaranteed messages."""
        # Never written twice with the same values: another thread may read them meanwhile.
        if self.gmd_incarnation != incarnation or self.gmd_sender != sender:
            self.gmd_sender, self.gmd_incarnation = sender, incarnation


# Without the list each message would count as an allocation, and the garbage collector would run for every 700 of them.
@cython.freelist(1024)
cdef class Message:
    """A message or an event of one source.

    Inside a callback a message looks into the ring. A message that the application keeps gets its own copy of the
    bytes when the callback returns.

    Attributes:
        flags: bits of `MessageFlag`, in 32 bits: 0x1 marks the first and 0x2 the last message of an explicit batch, 0x8
            a message that late join brought, 0x2000 one that off-transport recovery brought, 0x10000 one that
            guaranteed delivery sent again, 0x40000 one of a share, and 0x20000 one that another member had before. With
            `ordered_delivery` 0 also 0x10, for each fragment of a message with headers: the bytes of these fragments,
            put together, begin with a header block, which `ipcbus.wire.properties` takes apart; 0x40 for each fragment
            of a request, which cannot be answered; and 0x80 for each fragment of a guaranteed message. The bytes of the
            fragments of a request, or of a guaranteed message, begin with the number of the request or with the GMD
            number, which has 8 bytes.
    """

    def __init__(self):
        # Only compiled code makes messages, and not by this: it sets an origin, without which the rest would crash.
        raise TypeError("a Message comes from a receiver; a test may give a callback any object with the same attributes")

    @property
    def type(self):
        """The kind of the message: `DATA`, or the kind of the event."""
        return _data if self.kind == 0 else _types[self.kind]

    @property
    def data(self):
        """The payload as a copy of its own; empty for an event."""
        with cython.critical_section(self):
            return self.own_data()

    cdef bytes own_data(self):
        """Returns its bytes as an object of its own; the caller is in a critical section of the message."""
        if self.own is None:
            if self.start == NULL:
                raise ClosedError(
                    f"topic {self.topic!r}: the lease of message {self.sequence_number} has ended; copy the bytes that you keep "
                    "before the end of its block, for example with msg.data"
                )
            self.own = own_bytes(self.start, self.length)
        return self.own

    @property
    def view(self):
        """The payload, read-only.

        Inside a callback on a receiver-paced session the view lies in the ring, without a copy, until the callback
        returns. Then the view is released, and using it raises ValueError. An array made from the view, such as
        `numpy.frombuffer(message.view)`, may be kept. When the callback returns, the array gets memory of its own with
        the same bytes at the same address, and never shows a later message. That costs more than a copy, so that some
        of the views that follow are copies. The counter `views_kept` counts the messages of which an array was kept,
        and the first one of a session is logged. Do not keep an object that remembers the address without holding the
        buffer, as tensors of some libraries do.

        Everywhere else the view is of the message's own bytes and stays valid: in every other form of receiving, on
        sessions that are source-paced or evict, and for a message with headers or in fragments.
        """
        with cython.critical_section(self):
            return self.make_view()

    cdef object make_view(self):
        if self.given_view is None:
            if self.lent and self.lender is not None:
                self.loan = self.lender.lend(self.start, self.length)
            self.given_view = PyMemoryView_FromObject(self.loan if self.loan is not None else self.own_data())
        return self.given_view

    def array(self, shape, dtype):
        """The payload as a read-only array of numpy, without a copy.

        Inside a callback on a receiver-paced session the array lies in the ring. It may be kept, as arrays of `view`:
        when the callback returns, it gets memory of its own with the same bytes. Everywhere else it is of the message's
        own bytes.

        Args:
            shape: the lengths of the array, a whole number or a sequence of them.
            dtype: the type of its items; not with references to objects.

        Raises:
            TypeError, ValueError: there is no such array, or it has another length than the message.
        """
        return array_over(self.view, shape, dtype, self.origin.topic)

    @property
    def headers(self):
        """Name and value of each header, in the order in which they were sent; empty without headers and for an event.

        Headers are not part of `data`, `view` and the length.
        """
        return unpack(self.block) if self.block is not None else ()

    @property
    def properties_block(self):
        """The headers in the form in which they were sent, for `ipcbus.wire.properties`; empty without headers."""
        return self.block if self.block is not None else b""

    @property
    def topic(self):
        """The name of the topic."""
        return self.origin.topic

    @property
    def source(self):
        """The source string of the session, for example `LBT-IPC:6481f8d4:20001`."""
        return self.origin.source

    @property
    def sequence_number(self):
        """The topic sequence number; of a loss, the last lost number; -1 for BOS and EOS.

        A guaranteed message that an earlier session of its source sent has -1, too: `gmd_sequence_number` numbers it.
        """
        return <int64_t>self.sequence

    @property
    def first_sequence_number(self):
        """The first number that the message or the loss spans."""
        return <int64_t>self.first_sequence

    @property
    def gmd_sequence_number(self):
        """The GMD number of a guaranteed message, from 1 on; 0 for other messages."""
        return 0 if self.flags & UMQ_ULB else self.gmd_number

    @property
    def first_gmd_sequence_number(self):
        """With GMD_FAILURE the first of the GMD numbers that it spans; else `gmd_sequence_number`."""
        return self.following if self.kind == KIND_GMD_FAILURE else self.gmd_sequence_number

    @property
    def gmd_sender(self):
        """The `gmd_name` of the source of a guaranteed message; None for other messages.

        It is None, and `gmd_incarnation` is 0, in a receiver without a `gmd_name`, too. Together with `gmd_incarnation`
        and `gmd_sequence_number` it names one message of a topic, also when the message is sent again.
        """
        return self.origin.gmd_sender if self.has_sender else None

    @property
    def gmd_incarnation(self):
        """The random number of 64 bits that the area of `gmd_sender` got when it was made; 0 where there is no sender.

        It may have the highest bit, which integers of many databases lack. `ipcbus gmd` shows 16 hexadecimal digits.
        """
        return self.origin.gmd_incarnation if self.has_sender else 0

    @property
    def send_time_ns(self):
        """The send time in ns since the Unix epoch, by the clock of the source's host; 0 for an event.

        A message in fragments has the send time of its first fragment. A message of one `send_many` on LBT-SMX has the
        time at which its datagram was begun.
        """
        if self.sent_epoch_ns:
            return self.sent_epoch_ns
        return epoch_ns(self.send_ticks) if self.send_ticks else 0

    @property
    def fragment_info(self):
        """Which bytes of which message these are; None for a message that was sent in one piece.

        A reassembled message has the first number of its fragments, offset 0 and its length. With `ordered_delivery` 0
        a fragment has its own offset and the length of the whole message. Headers count in both.
        """
        return self.fragment

    def respond(self, data):
        """Answers a request; the response goes straight back to the context that asked.

        A request may be answered several times, inside the callback or later, and from any thread. The asking side
        drops a response that comes too late. Inside a callback the call never waits.

        Args:
            data: bytes-like and contiguous; may be empty.

        Raises:
            ipcbus.WouldBlock: the caller is inside a callback, and the channel to the asking context is full.
            ipcbus.SessionGone: the session of the request, or the context that asked, has ended.
            ipcbus.MessageTooLarge: the response is longer than the channel to the asking context takes.
            ipcbus.ClosedError, ipcbus.WrongProcess: the context is closed, or belongs to the parent of a fork.
            ipcbus.IpcBusError: the message is not a request.
            TypeError, BufferError: `data` is not bytes-like and contiguous.
        """
        responder = self.require_request()
        if PyBytes_CheckExact(data) and isinstance(responder, QuickResponder):
            if (<QuickResponder>responder).respond_now(self.request, data):
                return
        responder.respond(self.origin.topic, self.request, data)

    @property
    def return_address(self):
        """The way back to the context that sent a request, for `Context.respond`; empty for other messages."""
        if self.kind != KIND_REQUEST or self.origin.responder is None:
            return b""
        return self.origin.responder.return_address(self.request)

    cdef object require_request(self):
        """Returns what takes the responses to this request."""
        if self.kind != KIND_REQUEST or self.origin.responder is None:
            raise IpcBusError(
                f"topic {self.topic!r}: a message of type {self.type.name} cannot be answered; answer messages of type "
                "REQUEST only, which come from src.request"
            )
        return self.origin.responder

    def ack(self):
        """Acknowledges a guaranteed message, or one of a share; does nothing for others, and none the second time.

        Call it where option ipc_gmd_auto_ack is false, or before the message would be acknowledged by itself. Any
        thread may call it, also after the callback. A message that its receiver has not acknowledged when it is closed,
        or killed, comes again when a receiver of the same `gmd_name` is made; one of a share goes to another member.
        """
        gate = self.take_gate()
        if gate is not None:
            if self.ack_at_the_end is not None:
                self.ack_at_the_end.cancel()
            gate.acknowledge(self.gmd_number)

    def nack(self, double delay=0):
        """Refuses a message: it is delivered again; does nothing for a message that is acknowledged.

        A guaranteed message comes with flag GMD_RESEND, and messages behind it may come before it. After
        `gmd_max_deliveries` deliveries the receiver gives it up instead, so that the source gets a failure. A message
        of a share goes to any member, with flag UMQ_REASSIGNED.

        Args:
            delay: seconds until it is delivered again; 0 is a backoff that grows with each delivery.

        Raises:
            ValueError: `delay` is negative or not a number of seconds.
        """
        if not 0 <= delay < 1e9:
            raise ValueError(f"topic {self.topic!r}: nack({delay!r}): give seconds, 0 or more")
        self._refuse(<int64_t>(delay * 1e9) if delay else None)

    def _refuse(self, delay_ns):
        gate = self.take_gate()
        if gate is not None:
            if self.ack_at_the_end is not None:
                self.ack_at_the_end.cancel()
            gate.refuse(self, delay_ns)

    cdef object take_gate(self):
        """Returns the gate to the thread that acknowledges or refuses the message first; None to all others."""
        with cython.critical_section(self):
            gate, self.gate = self.gate, None
        return gate

    cdef object gate_now(self):
        with cython.critical_section(self):
            return self.gate

    cdef bint withdraw(self, gate) except -1:
        """Takes the message from this gate; returns whether it still was there."""
        cdef bint found
        with cython.critical_section(self):
            found = self.gate is gate
            if found:
                self.gate = None
        return found

    def __reduce__(self):
        raise TypeError(
            "a Message cannot be pickled or copied: to another process or thread hand what you need of it, such as "
            "(msg.topic, msg.sequence_number, msg.data); a message that you keep owns its bytes and needs no copy"
        )

    def __bool__(self):
        return True

    def __len__(self):
        return self.length

    def __repr__(self):
        kind = self.type.name
        if self.kind == 0 or self.kind == KIND_REQUEST:
            more = f" and {len(self.block)} of headers" if self.block is not None else ""
            kind = "" if self.kind == 0 else "REQUEST "
            number = self.sequence_number
            shown = f"GMD {self.gmd_number} of an earlier session," if self.gmd_number and number < 0 else number
            return f"<Message {kind}{self.topic!r} {shown} of {self.length} bytes{more} from {self.source}>"
        if self.kind == KIND_GMD_FAILURE:
            return f"<Message {kind} {self.topic!r} GMD {self.following}..{self.gmd_number} from {self.source}>"
        if self.kind == KIND_RESPONSE:
            return f"<Message RESPONSE {self.topic!r} of {self.length} bytes from {self.source}>"
        return f"<Message {kind} {self.topic!r} {self.first_sequence_number}..{self.sequence_number} from {self.source}>"

    cdef Message copy(self):
        """Returns a message of the same bytes."""
        cdef Message message = Message.__new__(Message)
        self.copy_to(message)
        return message

    cdef int copy_to(self, Message message) except -1:
        """Makes a new message one of the same bytes."""
        message.origin, message.kind, message.flags = self.origin, self.kind, self.flags
        message.own, message.block, message.fragment, message.length = self.data, self.block, self.fragment, self.length
        message.sequence, message.first_sequence, message.following = self.sequence, self.first_sequence, self.following
        message.send_ticks, message.published_ticks = self.send_ticks, self.published_ticks
        message.sent_epoch_ns = self.sent_epoch_ns
        message.request, message.gmd_number = self.request, self.gmd_number
        message.has_sender = self.has_sender
        return 0

    cdef int detach(self) except -1:
        """Copies the bytes out of the ring, as the message is still in use after its callback."""
        with cython.critical_section(self):
            if self.own is None:
                self.own = own_bytes(self.start, self.length)
            self.release_view()
            self.start = NULL
            self.lent = False
            self.lender = None
        return 0

    cdef int reset(self) except -1:
        """Makes this object ready for the next message; no other reference to it exists."""
        if self.given_view is not None:
            self.release_view()
        if self.own is not None:
            self.own = None
        return 0

    cdef int release_view(self) except -1:
        # The caller is in a critical section of the message, or alone with it.
        if self.given_view is not None:
            if self.lent and self.lender is not None:
                end_view(<PyObject *>self.given_view)
            self.given_view = None
            if self.loan is not None:
                loan, self.loan = self.loan, None
                loan.settle()
        return 0


cdef Message own_message(Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                         uint64_t send_ticks):
    """Returns a message with its own copy of the bytes."""
    cdef Message message = Message.__new__(Message)
    fill_own(message, origin, start, length, sequence, flags, send_ticks)
    return message


cdef int fill_own(Message message, Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                  uint64_t send_ticks) except -1:
    """Fills a new message, or one of `make_spare`, with its own copy of the bytes."""
    message.own = own_bytes(start, length)
    message.origin = origin
    message.length = length
    message.sequence = sequence
    message.first_sequence = sequence
    message.flags = flags
    message.send_ticks = send_ticks
    return 0


cdef Message message_with_front(Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
                                uint64_t send_ticks):
    """Returns a message with a request header, a guaranteed header or a header block; None when they are not whole."""
    cdef bytes block = None
    cdef uint64_t request = 0, gmd_number = 0
    cdef Py_ssize_t front = 0
    cdef Message message
    if flags & FLAG_REQUEST:
        if length < REQUEST_HEADER_BYTES:
            return None
        memcpy(&request, start, REQUEST_HEADER_BYTES)
        front = REQUEST_HEADER_BYTES
    if flags & FLAG_GUARANTEED:
        if length < front + GUARANTEED_HEADER_BYTES:
            return None
        memcpy(&gmd_number, start + front, GUARANTEED_HEADER_BYTES)
        if gmd_number == 0:
            return None
        front += GUARANTEED_HEADER_BYTES
    if flags & FLAG_PROPERTIES:
        block = block_copy(start + front, length - front)
        if block is None:
            return None
        front += PyBytes_GET_SIZE(block)
    message = own_message(
        origin, start + front, length - front, sequence, flags & ~(FLAG_PROPERTIES | FLAG_REQUEST | FLAG_GUARANTEED),
        send_ticks,
    )
    message.block = block
    message.gmd_number = gmd_number
    if flags & FLAG_REQUEST:
        message.kind = KIND_REQUEST
        message.request = request
    return message


cpdef Message whole_message(
    Origin origin, bytes own, uint64_t first, uint64_t last, int flags, uint64_t send_ticks, fragment, bytes block=None,
    uint64_t published_ticks=0, request=None, uint64_t gmd_number=0,
):
    cdef Message message = Message.__new__(Message)
    message.origin = origin
    message.own = own
    message.block = block
    message.length = len(own)
    message.first_sequence = first
    message.sequence = last
    message.flags = flags if block is None else flags & ~FLAG_PROPERTIES
    message.send_ticks = send_ticks
    message.published_ticks = published_ticks
    message.fragment = fragment
    if request is not None:
        message.kind = KIND_REQUEST
        message.request = request
        message.flags &= ~FLAG_REQUEST
    if gmd_number:
        message.gmd_number = gmd_number
        message.flags &= ~FLAG_GUARANTEED
    return message


def resent_message(
    Origin origin, uint64_t gmd_number, int64_t send_time_ns, topic_numbers, bytes block, bytes data, int flags=GMD_RESEND,
):
    cdef Message message = Message.__new__(Message)
    message.origin = origin
    message.own, message.length = data, len(data)
    message.block = block or None
    message.first_sequence, message.sequence = (NO_NUMBER, NO_NUMBER) if topic_numbers is None else topic_numbers
    message.flags = flags
    message.sent_epoch_ns = send_time_ns
    message.send_ticks = ticks_of(send_time_ns)
    message.gmd_number = gmd_number
    message.has_sender = True
    return message


cdef Message resent_copy(Origin origin, const EntryFront *front, uint64_t opening):
    """Returns an entry of a GMD_RESENT as a message of its own; block and value stand behind the front."""
    cdef Message message = Message.__new__(Message)
    cdef const char *body = <const char *>front + sizeof(EntryFront)
    cdef uint64_t count = count_of(front.place)
    message.origin = origin
    if front.block:
        message.block = PyBytes_FromStringAndSize(body, front.block)
    message.own, message.length = own_bytes(body + front.block, front.value), front.value
    message.first_sequence = message.sequence = NO_NUMBER
    if count and front.opening == opening:
        message.first_sequence = first_of(front.place)
        message.sequence = message.first_sequence + count - 1
    message.flags = GMD_RESEND
    message.sent_epoch_ns = front.send_time_ns
    message.send_ticks = ticks_of(front.send_time_ns)
    message.gmd_number = front.number
    return message


cpdef Message response(Origin origin, data, uint64_t request):
    cdef Message message = Message.__new__(Message)
    message.origin = origin
    message.kind = KIND_RESPONSE
    message.own = bytes(data)
    message.length = len(message.own)
    message.sequence = message.first_sequence = <uint64_t>-1
    message.request = request
    return message


def event(Origin origin, int kind, int64_t first, int64_t last, uint64_t following=0):
    cdef Message message = Message.__new__(Message)
    message.origin = origin
    message.kind = kind
    message.own = b""
    message.sequence = <uint64_t>last
    message.first_sequence = <uint64_t>first
    message.following = following
    return message


def given_up(Origin origin, uint64_t first, uint64_t last):
    cdef Message message = event(origin, KIND_GMD_FAILURE, -1, -1, first)
    message.gmd_number, message.has_sender = last, True
    return message


share_methods(Message)
