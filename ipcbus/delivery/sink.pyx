# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Takes the messages of one receiver; the stub has the documentation."""
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cimport cython

from ipcbus.delivery.event_merging cimport KIND_BOS, KIND_EOS, KIND_NO_SOURCE, extend, is_event, is_loss, same_origin
from ipcbus.delivery.message_queue cimport MessageQueue, queue_has_room, queued_at
from ipcbus.delivery.received_message cimport Message, Origin, message_bytes
from ipcbus.delivery.spare_bytes cimport own_bytes
from ipcbus.wire._wire_layout cimport RegistryEntry
from ringbuf cimport _atomics
from ringbuf.lending cimport Lender, Loan, end_view
from ringbuf.memory cimport Mapping

cdef extern from "Python.h":
    void Py_DECREF(PyObject *o) noexcept
    PyObject *PyObject_CallOneArg(PyObject *callable, PyObject *argument) noexcept

_TAKES = ("message", "data", "view")    # in the order of the enum


cdef int pending_error() except -1:
    """Hands an error that a C call has set to Cython."""
    return -1


cdef class QuickStore:
    cdef bint has_no_room(self) except? True:
        raise NotImplementedError

    cdef int keep(self, Sink sink, Message message) except -1:
        raise NotImplementedError

    cdef int keep_copy(
        self, Sink sink, Origin origin, const char *start, Py_ssize_t length, uint64_t sequence, int flags,
        uint64_t send_ticks, Arrival *arrival,
    ) except -1:
        raise NotImplementedError


cdef class Sink:
    def __init__(
        self, callback, uint64_t queue_max, event_queue=None, *, uint64_t queue_bytes_max=<uint64_t>-1,
        str takes="message", bint events=True,
    ):
        self.callback = callback
        self.takes = _TAKES.index(takes)
        self.wants_events = events and self.takes == MESSAGES
        self.event_queue = event_queue
        self.quick_store = event_queue if isinstance(event_queue, QuickStore) else None
        self.pulls = callback is None or event_queue is not None
        self.queue = MessageQueue(queue_max, queue_bytes_max)

    def count_into(self, Mapping mapping, size_t offset):
        self.registry_mapping = mapping
        self.registry_entry = <RegistryEntry *>(mapping.base + offset)

    def stop_counting(self):
        self.registry_entry = NULL
        self.registry_mapping = None

    @cython.final
    cdef bint queue_is_full(self) except? True:
        if self.quick_store is not None:
            return self.quick_store.has_no_room()
        if self.event_queue is not None:
            return self.event_queue.is_full()
        return not queue_has_room(self.queue)

    def is_full_now(self):
        return bool(sink_is_full(self))

    @cython.final
    cdef int enqueue(self, Message message) except -1:
        """Appends a message or event to the queue."""
        # A message that does not fit into a row goes to the queue, and so does everything after it.
        self.rows_open = False
        if self.quick_store is not None:
            self.quick_store.keep(self, message)
        elif self.event_queue is not None:
            self.event_queue.put(self, message)
        elif not (is_event(message) and self.queue.count >= self.queue.limit and self.merges_event(message)):
            self.queue.put(message)
        return 0

    @cython.final
    cdef bint merges_event(self, Message event) except? True:
        """Returns whether the events that wait behind the last message say what this event says, so that it can go.

        A receiver that does not pull gets losses, ends and beginnings too. For each topic of a session at most one loss, one
        end and one beginning wait.
        """
        cdef Message waiting
        cdef Py_ssize_t place, begun = -1
        cdef bint ended = False
        cdef MessageQueue queue = self.queue
        if event.kind == KIND_BOS:
            return False
        with cython.critical_section(queue):
            for place in range(<Py_ssize_t>queue.count - 1, -1, -1):
                waiting = <Message>queued_at(queue, place)
                if not same_origin(waiting, event):
                    continue
                if waiting.kind == KIND_BOS and begun < 0 and not ended:
                    begun = place
                elif waiting.kind == KIND_EOS and not ended:
                    ended = True
                    if begun >= 0 and event.kind == KIND_EOS:
                        # The session ended, began and ended again: one end remains.
                        waiting.following = event.following
                        queue.remove_at(begun)
                        return True
                elif is_loss(waiting) and is_loss(event) and event.first_sequence == waiting.sequence + 1:
                    extend(waiting, event)
                    return True
                else:
                    return waiting.kind == KIND_NO_SOURCE == event.kind
        return False

    @cython.final
    cdef int count_fragments(self, Message message) except -1:
        """Counts a reassembled message, or a fragment that is delivered raw."""
        cdef uint64_t length = message_bytes(message)
        self.fragments += message.sequence - message.first_sequence + 1
        self.delivered += message.fragment.offset + length >= message.fragment.total_length
        self.bytes_delivered += length
        if self.registry_entry != NULL:
            _atomics.store_relaxed64(&self.registry_entry.fragments_rcved, self.fragments)
            _atomics.store_relaxed64(&self.registry_entry.lbm_msgs_rcved, self.delivered)
            _atomics.store_relaxed64(&self.registry_entry.bytes_rcved, self.bytes_delivered)
        return 0

    def take(self, Message message, failures):
        if self.closed:
            return
        if message.fragment is None:
            sink_count(self, 1, message_bytes(message))
        else:
            self.count_fragments(message)
        if not self.pulls:
            self.call_back(message, failures)
        elif message.kind != 0 or message.block is not None or not sink_row(self, <const char *>message.own, message.length):
            self.enqueue(message)

    def event(self, Message message, failures):
        if self.closed:
            return
        self.events += 1
        if message.kind in (4, 5):
            self.lost += message.sequence - message.first_sequence + 1
        if self.registry_entry != NULL:
            _atomics.store_relaxed64(&self.registry_entry.events, self.events)
            _atomics.store_relaxed64(&self.registry_entry.lost, self.lost)
        if not self.wants_events:
            if self.on_unseen_loss is not None and is_loss(message):
                self.on_unseen_loss(message)
        elif self.pulls:
            self.enqueue(message)
        else:
            self.call_back(message, failures)

    def call_back(self, Message message, failures):
        try:
            self.callback(self.argument(message))
        except BaseException as error:
            self.fail(error, failures)

    cdef object argument(self, Message message):
        """Returns what the callback takes of a message that owns its bytes."""
        if self.takes == MESSAGES:
            return message
        return message.data if self.takes == DATA else message.view

    @cython.final
    cdef int give_data(self, const char *start, Py_ssize_t length, Lender lender, failures) except -1:
        """Calls a callback of data only with bytes that stay at their address until the call returns."""
        cdef Loan loan
        sink_count(self, 1, length)
        if self.takes == DATA:
            return self.call_with(own_bytes(start, length), failures)
        loan = lender.lend(start, length) if lender is not None else None
        if loan is None:
            return self.call_with(PyMemoryView_FromObject(own_bytes(start, length)), failures)
        view = PyMemoryView_FromObject(loan)
        try:
            self.call_with(view, failures)
        finally:
            end_view(<PyObject *>view)
            view = None
            loan.settle()
        return 0

    @cython.final
    cdef inline int call_with(self, argument, failures) except -1:
        """Calls the callback; counts and reports an exception."""
        # As in the demux: Cython's own exception frame would cost as much as half the call.
        cdef PyObject *result = PyObject_CallOneArg(<PyObject *>self.callback, <PyObject *>argument)
        if result == NULL:
            return self.count_raised(None, failures)
        Py_DECREF(result)
        return 0

    cpdef int fail(self, error, failures) except -1:
        self.callback_errors += 1
        if self.registry_entry != NULL:
            _atomics.store_relaxed64(&self.registry_entry.callback_errors, self.callback_errors)
        failures.failed(self, error)
        return 0

    cdef int count_raised(self, Message message, failures) except -1:
        """Counts and reports what a callback just raised."""
        try:
            pending_error()
        except BaseException as error:
            if message is not None:
                message.detach()
            self.fail(error, failures)
        return 0

    cpdef Py_ssize_t start_rows(self, buffer, Py_ssize_t filled=0) except -1:
        # Held until end_rows, so that the array cannot be resized while it is filled.
        cdef Py_buffer *view = &self.row_view
        array = buffer.obj if isinstance(buffer, memoryview) else buffer
        if getattr(getattr(array, "dtype", None), "hasobject", False):
            raise TypeError(
                f"receive_into writes bytes, and an array of {array.dtype} holds references to objects; give one of "
                "numbers, bytes or records of them"
            )
        PyObject_GetBuffer(buffer, view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        if view.ndim == 2 and view.itemsize == 1:
            self.row_count, self.row_bytes = view.shape[0], view.shape[1]
        elif view.ndim == 1 and view.itemsize > 1:
            self.row_count, self.row_bytes = view.shape[0], view.itemsize
        else:
            dimensions, itemsize = view.ndim, view.itemsize
            PyBuffer_Release(view)
            raise TypeError(
                f"receive_into takes a 2-D uint8 array or a 1-D array of items; this buffer has {dimensions} dimensions "
                f"of {itemsize}-byte items"
            )
        self.rows = <char *>view.buf
        self.row_next = filled
        self.rows_open = False
        return self.row_count

    def rows_filled(self):
        return self.row_next

    cpdef end_rows(self):
        self.rows_open = False
        if self.rows != NULL:
            self.rows = NULL
            PyBuffer_Release(&self.row_view)

    def put_row(self, Message message):
        if message.kind != 0 or message.block is not None or message.length != self.row_bytes:
            return False
        if self.row_next >= self.row_count:
            return False
        memcpy(self.rows + self.row_next * self.row_bytes, <const char *>message.own, self.row_bytes)
        self.row_next += 1
        return True

    cpdef open_rows(self):
        self.rows_open = self.queue.count == 0
