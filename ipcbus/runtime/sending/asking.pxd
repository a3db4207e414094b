from libc.stdint cimport int64_t, uint64_t

from ipcbus.delivery.pump cimport Pump
from ipcbus.recovery.pending_requests cimport PendingRequests
from ipcbus.runtime.sending.response_taker cimport ResponseTaker
from ipcbus.topic.topic_source cimport TopicSource

cdef class Request:
    cdef readonly str topic
    cdef readonly long responses
    cdef public bint closed
    cdef public object error
    cdef readonly tuple queue           # the first response, if the request ends with it
    cdef public object _source, _on_response, _on_end, _timeout, _unsent
    cdef public uint64_t _number
    cdef public int64_t _begun_ns, _grace_ns
    cdef public bint _sent
    cdef Asking requests

cdef class Asking(ResponseTaker):
    cdef PendingRequests pending
    cdef Pump pump
    cdef int64_t grace_ns, look_ns
    cdef public dict _origins           # of responses, by source
    cdef public int64_t _turn_at_ns     # when Python looks at the requests next

    cdef Request start(self, TopicSource source, data, headers, timeout, on_response, on_end)
