from libc.stdint cimport uint64_t

from ipcbus.delivery.pump cimport Pump

cpdef long deliver_fetched(Pump pump, object fetch, uint64_t longest_ns, bint once) except -1
