# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Messages of the session over the network that was read last; the stub has the documentation."""
from libc.stdint cimport uint64_t

from ipcbus.delivery.pump cimport Pump
from ipcbus.transport.udp.datagram_relay cimport FETCH_CAME
from ringbuf.clock cimport clock_kind, ns_per_tick, read_ticks


cpdef long deliver_fetched(Pump pump, object fetch, uint64_t longest_ns, bint once) except -1:
    cdef uint64_t now = read_ticks(clock_kind())
    cdef uint64_t until = now + <uint64_t>(<double>longest_ns / ns_per_tick())
    cdef long handled = 0
    while not pump.must_stop() and fetch() == FETCH_CAME:
        handled += pump.loop(now, now, 0, True, 0)
        now = read_ticks(clock_kind())
        if now >= until or (once and handled):
            break
    return handled
