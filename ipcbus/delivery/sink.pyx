# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Takes the messages of one receiver; the stub has the documentation."""
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cimport cython

from collections import deque

from ipcbus.delivery.event_merging cimport KIND_BOS, KIND_EOS, KIND_NO_SOURCE, extend, is_event, is_loss, same_origin
from ipcbus.delivery.received_message cimport Message, message_bytes
from ipcbus.wire._wire_layout cimport RegistryEntry
from ringbuf cimport _atomics
from ringbuf.memory cimport Mapping


cdef int pending_error() except -1:
    """Hands an error that a C call has set to Cython."""
    return -1


cdef class Sink:
    def __init__(self, callback, uint64_t queue_max, event_queue=None):
        self.callback = callback
        self.event_queue = event_queue
        self.pulls = callback is None or event_queue is not None
        self.queue = deque()
        self.append = self.queue.append
        self.queue_max = queue_max

    def count_into(self, Mapping mapping, size_t offset):
        self.registry_mapping = mapping
        self.registry_entry = <RegistryEntry *>(mapping.base + offset)

    def stop_counting(self):
        self.registry_entry = NULL
        self.registry_mapping = None

    @cython.final
    cdef bint queue_is_full(self) except? True:
        if self.event_queue is not None:
            return self.event_queue.is_full()
        return <uint64_t>len(self.queue) >= self.queue_max

    def is_full_now(self):
        return bool(sink_is_full(self))

    @cython.final
    cdef int enqueue(self, Message message) except -1:
        """Appends a message or event to the queue."""
        # A message that does not fit into a row goes to the queue, and so does everything after it.
        self.rows_open = False
        if self.event_queue is not None:
            self.event_queue.put(self, message)
        elif not (is_event(message) and <uint64_t>len(self.queue) >= self.queue_max and self.merges_event(message)):
            self.append(message)
        return 0

    @cython.final
    cdef bint merges_event(self, Message event) except? True:
        """Returns whether the events that wait behind the last message say what this event says, so that it can go.

        A receiver that does not pull gets losses, ends and beginnings too. For each topic of a session at most one loss, one
        end and one beginning wait.
        """
        cdef Message waiting
        cdef Py_ssize_t place = 0, begun = 0    # from the end, which is -1
        cdef bint ended = False
        cdef object queue = self.queue
        if event.kind == KIND_BOS:
            return False
        with cython.critical_section(queue):
            for each in reversed(queue):
                waiting = <Message>each
                place -= 1
                if not same_origin(waiting, event):
                    continue
                if waiting.kind == KIND_BOS and not begun and not ended:
                    begun = place
                elif waiting.kind == KIND_EOS and not ended:
                    ended = True
                    if begun and event.kind == KIND_EOS:
                        # The session ended, began and ended again: one end remains.
                        waiting.following = event.following
                        del queue[len(queue) + begun]
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
        if self.pulls:
            self.enqueue(message)
        else:
            self.call_back(message, failures)

    def call_back(self, Message message, failures):
        try:
            self.callback(message)
        except BaseException as error:
            self.fail(error, failures)

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
            message.detach()
            self.fail(error, failures)
        return 0

    def start_rows(self, buffer):
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
        self.row_next = 0
        self.rows_open = False
        return self.row_count

    def rows_filled(self):
        return self.row_next

    def end_rows(self):
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

    def open_rows(self):
        self.rows_open = not self.queue
