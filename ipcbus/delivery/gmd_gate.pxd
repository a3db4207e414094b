from libc.stdint cimport uint64_t

from ipcbus.delivery.demux cimport Controller
from ipcbus.delivery.pump cimport PassEnd, Pump
from ipcbus.delivery.received_message cimport Message
from ipcbus.delivery.sink cimport Sink

cdef class ShortWay:
    """Takes acknowledgements that come in order."""
    cdef bint acknowledge(self, uint64_t first, uint64_t last, uint64_t next_number) except? True

cdef class GmdGate(PassEnd):
    cdef readonly Sink sink             # stands in the controller in the place of the receiver's sink
    cdef readonly Sink target           # the receiver's sink
    cdef object keeper                  # does what is not simply the next message (delivery.slow_path.GateKeeper)
    cdef object failures
    cdef Controller controller
    cdef public uint64_t next_number    # the guaranteed message that passes while the gate is open
    cdef public bint is_open            # messages pass; else the keeper gets all of them
    cdef bint auto_ack                  # acknowledged when the callback has returned
    cdef bint acks_at_the_end           # acknowledged when the last reference is gone
    cdef uint64_t first_acked, last_acked    # a run of acknowledged numbers that the keeper has not taken; 0 without one
    cdef object other_acks              # other such numbers
    cdef object refusals                # pairs of message and delay in ns, of messages to be delivered again
    cdef object in_rows                 # numbers of messages in rows
    cdef uint64_t unrecorded_max
    cdef uint64_t taken                 # acknowledgements that the keeper has taken and its area may not have recorded
    cdef bint awaits_flush              # the keeper knows that there are acknowledgements, or the pump
    cdef Pump pump                      # calls at the end of a pass; None where no pump delivers
    cdef public ShortWay short_way      # gets acknowledgements before the keeper does; None without one
    cdef readonly uint64_t delivered    # guaranteed messages that the receiver got, again or not

    cdef uint64_t unrecorded(self) except? 0
    cdef int pass_message(self, Message message) except -1
    cdef int note_ack(self, uint64_t number) except -1
    cdef int note_refusal(self, Message message, delay_ns) except -1
    cdef int flush_soon(self) except -1
    cdef bint flush_in_order(self) except? True


cdef class AckAtTheEnd:
    cdef GmdGate gate       # None once the message is acknowledged or refused
    cdef uint64_t number
