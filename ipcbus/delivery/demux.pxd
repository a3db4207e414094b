from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.delivery.received_message cimport Message, Origin
from ipcbus.delivery.sink cimport Sink
from ipcbus.wire._wire_layout cimport MessageHeader
from ringbuf.lending cimport Lender
from ringbuf.ring cimport Reader, RingReader

cdef class Tally:
    cdef public uint64_t duplicates, malformed, msgs_reassembled, reassembly_refused, fragments_rcved, views_kept
    cdef public uint64_t completed      # messages whose last fragment came since `show_tally` was called
    cdef public uint64_t order_map_entries, reassembly_bytes        # now

cdef class Controller:
    cdef readonly Origin origin
    cdef readonly uint32_t topic_number
    cdef public uint64_t expected       # the number after the highest that has come or was told of
    cdef public uint64_t published_ticks    # when the datagram was published that `odd` is about
    cdef public bint plain              # nothing is missing or half there: `expected` may go straight to the sinks
    cdef readonly list sinks
    cdef Sink only                      # the one sink, when there is exactly one
    cdef bint pulls                     # one of the sinks may be full
    cdef bint sure                      # a number was believed before, so that the next has to fit
    cdef uint64_t skipped               # messages that had been skipped when a number was believed last
    cdef uint64_t doubted               # what would bear out the number that was not believed last

    cdef bint must_wait(self) except? True

cdef class Demux:
    cdef readonly RingReader ring       # None where datagrams are fed
    cdef Reader *r
    cdef list controllers               # by line; None where nobody receives
    cdef PyObject **table               # the same, borrowed: what the message path looks into
    cdef uint32_t topics_max
    cdef const char *cursor             # the next message of the datagram in hand; NULL when none is in hand
    cdef const char *end
    cdef bytes hand                     # the datagram in hand, where datagrams are fed
    cdef bint walking                   # through the datagram in hand, where datagrams are fed
    cdef uint64_t send_ticks            # when the datagram in hand was begun
    cdef const char *first              # what the datagram in hand begins with
    cdef uint64_t published_ticks       # when it was published
    cdef double ticks_per_stamp
    cdef uint64_t dice
    cdef public int64_t now_ns          # for what is not in order; passed in
    cdef object way                     # what is known of the way here (delivery.slow_path.Way), or None
    cdef bint counted                   # each datagram says how many messages are in it
    cdef uint64_t skipped               # at most so many messages were not given to a controller; never falls
    cdef readonly bint begun            # a datagram was seen
    cdef public bint attention          # something for Python: the end, a broken ring
    cdef public bint blocked            # a receiver that keeps messages has no room
    cdef public bint wakes_writer       # the source waits for an event
    cdef public bint left               # the slot was given back: nothing is read or shown any more
    cdef public bint watched            # the poller looks at its ring
    cdef public bint stop               # set from inside a callback: return after this message
    cdef object rare
    cdef Message spare
    cdef bytes saved                    # the record in hand, while the process forks
    cdef Lender lender                  # of places in the ring; None where no message lies in it
    cdef readonly Tally tally
    cdef readonly uint64_t messages, no_topic, lost

    cdef int read_from(self, RingReader ring) except -1
    cdef long poll(self, long limit) except -1
    cdef void take_in_hand(self, const char *start, const char *end, uint64_t send_ticks) noexcept
    cdef bint next_record(self) except -1
    cdef int skip(self, uint64_t length) except -1
    cdef void sample(self, int64_t count) noexcept
    cdef bint is_credible(self, Controller controller, uint64_t sequence, int flags) except -1
    cdef int odd(
        self, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1
    cdef int give(
        self, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1
    cdef int store(
        self, Sink sink, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1
    cdef int call(
        self, Sink sink, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1
    cdef long fill(self, Controller controller, long limit) noexcept
    cdef uint64_t sent_ticks(self, const MessageHeader *header, uint32_t length, uint32_t word) noexcept
    cdef void finish_record(self) noexcept
    cdef void show_counters(self) noexcept
