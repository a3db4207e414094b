# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True, auto_pickle=False
"""What a receiver does for a thread that pulls; the stub has the documentation."""
cimport cython
from libc.limits cimport LONG_MAX

from ipcbus.delivery.message_queue cimport MessageQueue
from ipcbus.delivery.pump cimport Pump, read_timeout
from ipcbus.delivery.sink cimport Sink
from ipcbus.errors import ClosedError
from ringbuf.free_threads cimport share_methods

cdef extern from "Python.h":
    Py_ssize_t PyNumber_AsSsize_t(object number, void *error) except? -1    # without an error class, it clips

cdef extern from "Python.h":
    bint PyFloat_CheckExact(object) noexcept
    double PyFloat_AS_DOUBLE(object) noexcept
    bint PyLong_CheckExact(object) noexcept

cdef extern from "math.h":
    const double NAN


cdef inline bint is_plain(object timeout) noexcept:
    """Returns whether a timeout needs no look of Python; a message that waits would hide a wrong one."""
    if timeout is None:
        return True
    if PyFloat_CheckExact(timeout):
        return PyFloat_AS_DOUBLE(timeout) == PyFloat_AS_DOUBLE(timeout)     # not NaN
    return PyLong_CheckExact(timeout)


cdef class Puller:
    """The compiled part of a receiver."""

    def __cinit__(self):
        self.acknowledges = True    # until it is made, everything is Python's

    def __init__(self, Pump pump, Sink sink, rows_lock, shorten, bint acknowledges=False):
        self.pump, self.sink, self.queue = pump, sink, sink.queue
        self.rows_lock, self.shorten = rows_lock, shorten
        self.may_drive = sink.pulls and sink.event_queue is None
        self.acknowledges = acknowledges

    @property
    def _error(self):
        with cython.critical_section(self):
            return self.error

    @_error.setter
    def _error(self, error):
        with cython.critical_section(self):
            before, self.error = self.error, error      # freed behind the section

    def receive(self, timeout=None):
        """Returns the next message or event.

        Args:
            timeout: seconds to wait; 0, or less, does not wait, None waits for ever.

        Returns:
            The message with its own copy of the bytes, or None when the time ran out.

        Raises:
            ClosedError: the receiver is closed, and its queue is empty.
            IpcBusError: the receiver has a callback, or the caller is inside a callback.
            WrongProcess: the context was made before a fork, in the parent.
            TypeError, ValueError: `timeout` is not a number, or NaN.
        """
        if not is_plain(timeout):
            self._check_timeout(timeout)
        message = self.take()
        if message is not None:
            return message
        try:
            return self.wait_for_one(timeout)
        except KeyboardInterrupt as error:
            self.shorten(error)
            raise error

    def receive_many(self, limit, timeout=None):
        """Waits for a message or event, and returns it with those that are there already.

        Args:
            limit: the most messages and events to return; 0 or more.
            timeout: seconds to wait for the first; 0, or less, does not wait, None waits for ever.

        Returns:
            The messages and events in their order; an empty list when the time ran out.

        Raises:
            TypeError, ValueError: `limit` is not a whole number, or negative; otherwise as in `receive`.
            ClosedError, IpcBusError, WrongProcess: as in `receive`.
        """
        if type(limit) is not int or limit < 0:
            self._check_limit(limit)
        if not is_plain(timeout):
            self._check_timeout(timeout)
        try:
            return self.wait_for_many(limit, timeout)
        except KeyboardInterrupt as error:
            self.shorten(error)
            raise error

    def receive_into(self, array, timeout=None):
        """Writes messages of equal length straight into the rows of an array.

        The call waits for the first message, then takes those that are there already. It stops before an event, before
        a message of another length, and before a message with headers, which do not fit in a row; the next `receive`
        returns that message or event.

        Args:
            array: writable and C-contiguous: 2-D of uint8, or 1-D with items of the messages' length in bytes.
            timeout: seconds to wait; 0, or less, does not wait, None waits for ever.

        Returns:
            The number of rows that were filled; 0 when the time ran out or an event is next.

        Raises:
            ValueError: the next message has another length, or has headers.
            TypeError: `array` is not such an array.
            ClosedError, IpcBusError, WrongProcess: as in `receive`.
        """
        try:
            return self.fill_array(array, timeout)
        except KeyboardInterrupt as error:
            self.shorten(error)
            raise error

    def __iter__(self):
        """Yields messages and events until the receiver is closed."""
        return Pulls(self)

    @cython.final
    cdef inline object take(self):
        """Takes a message that waits, if that is all there is to do; otherwise returns None."""
        if self.acknowledges or self.pump.blocked or self.queue.count == 0:
            return None
        if self.queue.count == 1 and self.queue.has_long():
            # This thread drives next; meanwhile the context's own thread would copy all that the ring holds.
            self.pump.note_guest()
        return self.queue.take()

    @cython.final
    cdef object wait_for_one(self, timeout):
        cdef double left
        if self.acknowledges:
            return self._take_acknowledging(timeout)
        if self.pump.blocked:
            return self._take_slowly(timeout)
        left = self.fill(timeout, self.queue.pass_messages)
        message = self.queue.take()
        if message is None and not left < 0:
            return self._take_slowly(timeout if left != left else left)
        if message is None and timeout is None:
            return self._take_slowly(None)      # another thread may have taken what this one waited for
        return message

    @cython.final
    cdef list wait_for_many(self, limit, timeout):
        cdef double left
        cdef Py_ssize_t waiting, most = PyNumber_AsSsize_t(limit, NULL)
        if self.acknowledges:
            return self._take_many_acknowledging(limit, timeout)
        if self.pump.blocked:
            return self._take_many_slowly(limit, timeout)
        waiting = <Py_ssize_t>self.queue.count
        if waiting < most:
            left = self.fill(0 if waiting else timeout, most - waiting, True)
            if not left < 0 and <Py_ssize_t>self.queue.count < most:
                return self._take_many_slowly(limit, timeout if left != left else left)
        return self.queue.take_many(most)

    @cython.final
    cdef object fill_array(self, array, timeout):
        cdef double seconds, left = 0
        cdef long handled = 0
        cdef Py_ssize_t filled = 0
        cdef Sink sink = self.sink
        if self.acknowledges:
            return self._take_into_acknowledging(array, timeout)
        if (
            self.error is not None or not self.may_drive or sink.closed or self.pump.blocked or self.pump.must_stop()
            or self.queue.count or not read_timeout(timeout, &seconds) or not self.rows_lock.acquire(False)
        ):
            return self._take_into_slowly(array, timeout, 0)
        try:
            sink.start_rows(array)
            try:
                if sink.row_count:
                    left = self.pump.drive(seconds, sink, &handled, LONG_MAX, True)
            except BaseException as error:
                if sink.row_next == 0:
                    raise
                self._error = error     # this call returns the rows, and the next one raises
            finally:
                filled = sink.row_next
                sink.end_rows()
        finally:
            self.rows_lock.release()
        if self.error is None and (left >= 0 or self.pump.attention or (filled == 0 and (sink.closed or self.queue.count))):
            try:
                return self._take_into_slowly(array, 0 if filled or left < 0 else left, filled)
            except BaseException as error:
                if filled == 0:
                    raise
                self._error = error
        return filled

    def _wait(self, timeout):
        return self.fill(timeout, self.queue.pass_messages)

    @cython.final
    cdef double fill(self, timeout, long most, bint copies_all=False) except? -2:
        """Drives until the queue has a message; returns the seconds left if Python has to go on, NaN to begin there."""
        cdef double seconds
        cdef long handled = 0
        if self.error is not None or not self.may_drive or self.sink.closed or not read_timeout(timeout, &seconds):
            return NAN
        seconds = self.pump.drive(seconds, self.sink, &handled, most, False, copies_all)
        return NAN if self.sink.closed else seconds


@cython.final
cdef class Pulls:
    """The messages of one `for`."""

    def __cinit__(self, Puller puller not None):
        self.puller = puller

    def __iter__(self):
        return self

    def __next__(self):
        message = self.puller.take()
        try:
            while message is None:
                message = self.puller.wait_for_one(None)
        except ClosedError:
            raise StopIteration from None
        except KeyboardInterrupt as error:
            self.puller.shorten(error)
            raise error
        return message


for each in (MessageQueue, Puller, Pump, Sink):
    share_methods(each)
