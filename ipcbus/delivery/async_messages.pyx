# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Takes messages for tasks of asyncio; the stub has the documentation."""
cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint64_t

from ipcbus.delivery.linger cimport Linger
from ipcbus.delivery.pump cimport Pump
from ipcbus.delivery.sink cimport Sink
from ringbuf.clock cimport clock_kind, ns_per_tick, read_ticks

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    ctypedef PySendResult (*SendFunction "sendfunc")(PyObject *, PyObject *, PyObject **) except PYGEN_ERROR
    ctypedef PyObject *(*NextFunction "iternextfunc")(PyObject *) except NULL
    PySendResult PyIter_Send(object iterator, PyObject *value, PyObject **result) noexcept
    void PyErr_SetObject(object kind, PyObject *value) noexcept
    void Py_DECREF(PyObject *o) noexcept
    ctypedef struct AsyncMethods "PyAsyncMethods":
        SendFunction am_send
    # The type of compiled classes, of which a slot is set that has no name in Python.
    ctypedef struct TypeObject "PyTypeObject":
        AsyncMethods *tp_as_async
        NextFunction tp_iternext

cdef double SHARE_NS = 1e6
cdef double LINGER_NS = 5e4
cdef uint64_t WAKE_UPS = 2      # of a task that sleeps: the context's own thread, and that of the asyncio loop


cdef class AsyncMessages:
    def __init__(self, Pump pump, Sink sink, wait, run_turn, made_room, bint direct=True):
        self.pump, self.sink = pump, sink
        self.wait, self.run_turn, self.made_room = wait, run_turn, made_room
        self.queue = sink.queue
        self.direct = direct and sink.pulls and sink.event_queue is None
        self.share = <uint64_t>(SHARE_NS / ns_per_tick())
        self.linger = <uint64_t>(LINGER_NS / ns_per_tick())
        self.share_ends = read_ticks(clock_kind()) + self.share
        self.spins = Linger(WAKE_UPS * pump.linger.longest, WAKE_UPS * pump.linger.free)

    def __aiter__(self):
        return self

    def __anext__(self):
        cdef Step step = Step.__new__(Step)
        step.messages = self
        return step

    @cython.final
    cdef object take(self):
        """Returns the next message; None if no message is there."""
        cdef long handled = 0
        message = self.queue.take()
        if message is None and not self.sink.closed:
            if self.pump.drive(0, self.sink, &handled, self.queue.pass_messages) >= 0 and self.pump.owner == 0:
                self.run_turn()
            message = self.queue.take()
        if message is not None and self.pump.blocked:
            self.made_room()
        return message


@cython.final
@cython.freelist(8)
cdef class Step:
    """One message that a task waits for."""

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        cdef PyObject *result
        cdef PySendResult status = send_step(<PyObject *>self, <PyObject *>value, &result)
        found = <object>result
        Py_DECREF(result)
        if status == PYGEN_RETURN:
            raise StopIteration(found)
        return found

    @property
    def throw(self):
        # Not a method, which would be one more line of a traceback.
        return self.throw_at_once if self.waiting is None else self.waiting.throw

    def throw_at_once(self, kind, value=None, trace=None):
        self.done = True
        raise kind if value is None else value

    def close(self):
        waiting, self.waiting = self.waiting, None
        self.done = True
        if waiting is not None:
            waiting.close()


cdef PySendResult send_step(PyObject *itself, PyObject *value, PyObject **result) except PYGEN_ERROR:
    """Takes a message, or waits for one: what `await` calls."""
    cdef Step step = <Step>itself
    cdef AsyncMessages messages = step.messages
    cdef PySendResult status
    cdef uint64_t now
    if step.done:
        raise RuntimeError("this step was awaited before; take the next one")
    if step.waiting is None:
        now = read_ticks(clock_kind())
        if step.gave_way:
            messages.share_ends = now + messages.share
        if now < messages.share_ends:
            message = messages.take() if messages.direct else None
            if message is not None:
                messages.taken_at = now
                if step.spin_ends:
                    messages.spins.spun(now, now - step.since, True)
                step.done = True
                Py_INCREF(message)
                result[0] = <PyObject *>message
                return PYGEN_RETURN
        if not step.gave_way and messages.direct:
            step.since, step.spin_ends = now, messages.spins.allowed(now)
            if step.spin_ends:
                step.spin_ends += now
        if now >= messages.share_ends or (messages.direct and not messages.sink.closed and (
            now - messages.taken_at < messages.linger or now < step.spin_ends
        )):
            step.gave_way = True
            Py_INCREF(None)
            result[0] = <PyObject *>None
            return PYGEN_NEXT
        if step.spin_ends:
            messages.spins.spun(now, now - step.since, False)
        step.since = now
        step.waiting = messages.wait()
    status = PyIter_Send(step.waiting, value, result)   # an error stays set, as this function is to return it
    if status != PYGEN_NEXT:
        step.done = True
    if status == PYGEN_RETURN:
        messages.taken_at = read_ticks(clock_kind())
        messages.spins.slept(messages.taken_at - step.since)
        messages.share_ends = messages.taken_at + messages.share
    return status


cdef PyObject *next_step(PyObject *itself) except NULL:
    """Takes a step where the interpreter knows no `am_send`: the message comes in a StopIteration."""
    cdef PyObject *result
    if send_step(itself, <PyObject *>None, &result) == PYGEN_NEXT:
        return result
    PyErr_SetObject(StopIteration, result)
    Py_DECREF(result)
    return NULL


# Cython has no name for `am_send`, and its `__next__` would add a traceback to each StopIteration.
(<TypeObject *>Step).tp_as_async.am_send = send_step
(<TypeObject *>Step).tp_iternext = next_step
