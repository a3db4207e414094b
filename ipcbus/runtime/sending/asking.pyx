# cython: language_level=3, embedsignature=True
"""The usual course of a request; the stub has the documentation."""
cimport cython
from cpython.method cimport PyMethod_Check
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

from types import FunctionType

from ipcbus.delivery.pump cimport Pump, read_timeout
from ipcbus.delivery.received_message cimport Message, Origin, response
from ipcbus.recovery.pending_requests cimport PendingRequests
from ipcbus.runtime.error_mapping import ASYNC
from ipcbus.runtime.sending.response_taker cimport ResponseTaker
from ipcbus.topic.topic_source cimport TopicSource
from ringbuf cimport _atomics
from ringbuf.clock cimport monotonic_ns

cdef double LONGEST_S = 1e9             # `read_timeout` gives infinity for a longer time
cdef double SLICE_S = 0.02              # after which Python looks whether a receiver is left
cdef int ASYNC_FLAGS = ASYNC


cdef bint is_plain(function):
    """Returns whether a callback needs no closer check."""
    if PyMethod_Check(function):
        function = function.__func__
    return type(function) is FunctionType and not function.__code__.co_flags & ASYNC_FLAGS


cdef class Request:
    """A request and its responses, made by `Source.requests`.

    It ends when its time is over, when no receiver is left that could answer, at `close`, or with its source. Use it in
    a `with` block, or call `close`, when no more responses are wanted.

    Attributes:
        topic: the topic of the request.
        responses: the number of responses so far.
        closed: whether the request has ended.
        error: why it ended: a `RequestTimeout` if its time was over (also after responses), a `NoResponder`, or another
            `IpcBusError`; None before its end, and after `close`.
    """
    def __init__(self, Asking requests not None, TopicSource source not None, on_response, on_end):
        """Use `Source.requests` instead."""
        begin(self, requests, source, on_response, on_end)

    def close(self):
        """Ends the request: responses that come later are counted and dropped. Closing twice does nothing.

        In another thread than the one that drives the context this does not wait for `on_response`: a call of it that
        has begun, or is about to begin, may still run.
        """
        if self._sent and self._on_end is None and self._on_response is not None:
            # No thread waits for its end.
            if self.requests.pending.end(self._number):
                with cython.critical_section(self):
                    before, self._on_response = self._on_response, None     # freed behind the section
            self.closed = True
        else:
            self.requests._end(self, None)

    def __enter__(self):
        """Returns the request; the end of the block closes it."""
        return self

    def __exit__(self, *_):
        """Closes the request."""
        self.close()

    def __repr__(self):
        """Returns a text with the topic, the responses and the state."""
        return f"<Request {self.topic!r}: {self.responses} responses{' (closed)' if self.closed else ''}>"


cdef int begin(Request request, Asking requests, TopicSource source, on_response, on_end) except -1:
    request.requests, request._source, request.topic = requests, source, source.topic
    request._on_response, request._on_end, request.queue = on_response, on_end, ()
    request._begun_ns, request._grace_ns = <int64_t>monotonic_ns, requests.grace_ns
    return 0


cdef class Asking(ResponseTaker):
    def __init__(self, PendingRequests pending not None, Pump pump not None, count, *, int64_t grace_ns, int64_t look_ns):
        ResponseTaker.__init__(self, None, count)
        self.pending, self.pump = pending, pump
        self.grace_ns, self.look_ns = grace_ns, look_ns
        self._origins = {}
        self._turn_at_ns = INT64_MAX

    def ask(self, TopicSource source not None, data, headers, timeout):
        cdef long handled = 0
        cdef Pump pump = self.pump
        cdef Request request = None
        if not pump.drives():
            request = self.start(source, data, headers, timeout, None, None)
        if request is None:
            return self._ask(source, data, headers, timeout)
        try:
            pump.drive(SLICE_S if request._timeout is None else min(SLICE_S, <double>request._timeout), None, &handled)
        except BaseException:
            self._end(request, None)
            raise
        if request.queue:
            return request.queue[0]
        return self._wait(request, request._timeout)

    def ask_many(self, TopicSource source not None, data, headers, timeout, on_response, on_end):
        if is_plain(on_response) and (on_end is None or is_plain(on_end)):
            return self.start(source, data, headers, timeout, on_response, on_end)
        return None

    cdef Request start(self, TopicSource source, data, headers, timeout, on_response, on_end):
        """Sends a request; returns None, and has done nothing, when Python has to look at it."""
        cdef Request request
        cdef double seconds
        cdef int64_t until_ns = INT64_MAX, due_ns
        cdef bint timed = on_response is not None
        if source.gate or source.batch.gate or not read_timeout(timeout, &seconds) or not seconds > 0:
            return None
        if source._joined_word is None or _atomics.load_acquire64(source._joined_word.word) == source._joined_word.seen[0]:
            return None
        request = Request.__new__(Request)
        begin(request, self, source, on_response, on_end)
        if seconds <= LONGEST_S:
            request._timeout = seconds
            request._grace_ns = min(request._grace_ns, <int64_t>(seconds * 1e9))
            if timed:
                until_ns = request._begun_ns + <int64_t>(seconds * 1e9)
        number = self.pending.begin(request, not timed, until_ns)
        if number is None:
            return None
        request._number = number
        try:
            source._send_request(data, request._number, headers)
        except BaseException:
            self.pending.end(request._number)
            raise
        request._sent = True
        if timed:
            due_ns = min(until_ns, request._begun_ns + self.look_ns)
            if due_ns < self._turn_at_ns:
                self._hurry(due_ns)
        return request

    cdef long give(self, uint64_t number, data) except -1:
        """Delivers a response to its request; drops it when the request has ended."""
        cdef Request request = self.pending.take_response(number)
        cdef Message message
        if request is None:
            return 0
        request.responses += 1
        source = request._source
        origin = self._origins.get(source)
        if origin is None:
            origin = self._origins[source] = Origin(source.topic, source.source)
        message = response(<Origin>origin, data, number)
        with cython.critical_section(request):
            on_response = request._on_response
        if on_response is None:
            if not request.closed:
                request.queue = (message,)
                request.closed = True
            return 1
        try:
            on_response(message)
        except BaseException as error:
            self._failed(error, request)
        return 1
