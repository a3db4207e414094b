from ipcbus.delivery.gmd_gate cimport GmdGate
from ipcbus.delivery.received_message cimport Origin
from ipcbus.wire.resent_entries cimport ResentEntries

cdef class ShareGate(GmdGate):
    cdef long pass_work(
        self, ResentEntries entries, Origin origin, bint reassigned, bint requests, bint without_limit
    ) except -1
