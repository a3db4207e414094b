from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ipcbus.delivery.assembly cimport Assembly, MemoryBudget
from ipcbus.delivery.leasing cimport RecordHolder
from ipcbus.delivery.received_message cimport Message, Origin
from ipcbus.delivery.sink cimport Arrival, Sink, sink_has_room
from ipcbus.wire._wire_layout cimport MessageHeader
from ringbuf.lending cimport Lender
from ringbuf.ring cimport Reader, RingReader, reader_is_cut, reader_ready

cdef class Tally:
    cdef public uint64_t duplicates, malformed, msgs_reassembled, reassembly_refused, fragments_rcved, views_kept, lbm_reqs_rcved
    cdef public uint64_t completed      # messages whose last fragment arrived since `show_tally` was called
    cdef public uint64_t order_map_entries, reassembly_bytes        # now

cdef class Controller:
    cdef readonly Origin origin
    cdef readonly uint32_t topic_number
    cdef public uint64_t expected       # the number after the highest that has arrived or was announced
    cdef public uint64_t published_ticks    # when the datagram of a `take_slowly` call was published
    cdef public bint fast_path          # nothing is missing or incomplete: `expected` may go straight to the sinks
    cdef public bint skips_live         # only the numbers of live messages are noted: a recovery brings them later
    cdef public uint64_t retransmitted_next     # a retransmitted message with this number may go straight to the sinks
    cdef public uint64_t retransmitted_end      # and so on to below this number
    cdef public uint64_t _next          # in order: everything below it was delivered or reported
    cdef public dict _order_map         # the messages that wait: flags, bytes and times by number
    cdef public long _delivered         # messages that were delivered outside of the demux
    cdef public long may_wait           # how many of the next live messages may go into the order map without Python
    cdef public MemoryBudget _budget    # of incomplete messages
    cdef public bint reassembles        # fragments in order are put together here, not delivered as they are
    cdef Assembly assembly              # the message whose next fragment is `expected`; None without one
    cdef readonly list sinks
    cdef Sink single_sink               # the one sink, when there is exactly one
    cdef bint pulls                     # one of the sinks may be full
    cdef bint has_trusted_number        # a number was accepted before, so that the next one has to fit
    cdef uint64_t skipped_before        # messages that had been skipped when a number was last accepted
    cdef uint64_t confirming_number     # the number that would confirm the last one that was not accepted

    cdef bint has_full_sink(self) except? True


cdef inline bint controller_has_room(Controller controller) noexcept:
    """Returns whether the only sink has room; if not, `has_full_sink` decides."""
    return controller.single_sink is not None and sink_has_room(controller.single_sink)


cdef class Demux(RecordHolder):
    cdef list controllers               # by line; None for topics that are not received
    cdef PyObject **table               # the same controllers as borrowed references, for the message path
    cdef uint32_t topics_max
    cdef const char *cursor             # the next message of the current datagram; NULL without one
    cdef const char *end
    cdef bytes fed_datagram             # the current datagram, where datagrams are fed
    cdef bint in_resume                 # `resume` walks through the current datagram
    cdef uint64_t send_ticks            # when the current datagram was begun
    cdef const char *datagram_start     # the first message of the current datagram
    cdef uint64_t published_ticks       # when the current datagram was published
    cdef Arrival arrival                # of the messages that are copied now
    cdef double ticks_per_stamp
    cdef uint64_t random_state
    cdef public int64_t now_ns          # the time for messages that are not in order; passed in
    cdef object upstream                # what is known about the transport (delivery.slow_path.Upstream), or None
    cdef bint counts_messages           # each datagram has a count of its messages
    cdef uint64_t skipped               # the most messages that no controller got; never decreases
    cdef readonly bint begun            # a datagram was seen
    cdef public bint attention          # Python has to look: the end, a broken ring
    cdef public bint blocked            # a receiver that pulls has no room
    cdef bint called_back               # the last `poll` has called back
    cdef uint64_t copied                # bytes of long messages that the last `poll` has copied for receivers that pull
    cdef bint copies_all                # the last `poll` did not stop when it had copied PASS_BYTES
    cdef public bint watched            # the poller looks at its ring
    cdef public bint stop               # return after this message; also set from inside a callback
    cdef object slow_path
    cdef Message spare_message
    cdef bytes record_copy              # the current record, while the process forks
    cdef Lender lender                  # lends parts of the ring; None where messages do not lie in it
    cdef readonly Tally tally
    cdef readonly uint64_t messages, no_topic, lost
    cdef long taken                     # messages that the last `poll` took, also for topics that are not received

    cdef int read_from(self, RingReader ring) except -1
    cdef long poll(self, long limit, bint copies_all=*) except -1
    cdef void begin_datagram(self, const char *start, const char *end, uint64_t send_ticks) noexcept
    cdef bint next_record(self) except -1
    cdef int show_position(self) except -1
    cdef int skip(self, uint64_t length) except -1
    cdef void sample(self, int64_t count) noexcept
    cdef bint is_credible(self, Controller controller, uint64_t sequence, int flags) except -1
    cdef int give_slowly(
        self, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1
    cdef int give(
        self, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1
    cdef int store(
        self, Sink sink, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1
    cdef int call_back(
        self, Sink sink, Controller controller, const MessageHeader *header, uint32_t length, uint32_t word, uint64_t sequence
    ) except -1
    cdef uint64_t sent_ticks(self, const MessageHeader *header, uint32_t length, uint32_t word) noexcept
    cdef void finish_record(self) noexcept
    cdef void show_counters(self) noexcept
    cpdef show_tally(self)


cdef inline bint has_nothing(Demux demux) noexcept:
    """Returns whether `poll` would find nothing to deliver, to show or to report."""
    cdef Reader *r = demux.r
    return (
        demux.cursor == NULL and r != NULL and not demux.blocked and not demux.attention and not demux.wakes_writer
        and r.position == r.shown and not r.stopped and not reader_ready(r) and not reader_is_cut(r)
    )
