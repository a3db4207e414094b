"""The requests of a context: what its sources asked, which threads wait for the responses, and when they give up."""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Protocol

from ipcbus.errors import IpcBusError, NoResponder, RequestTimeout, WouldBlock, WrongThread
from ipcbus.recovery.pending_requests import FOREVER_NS, PendingRequests
from ipcbus.runtime.loop.timerfd import bounded
from ipcbus.runtime.sending.asking import Asking, Request
from ipcbus.topic import send_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.delivery.received_message import Message
    from ipcbus.runtime.loop.aio import AsyncWaiters
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.source import Source
    from ipcbus.wire.properties import Headers

log = logging.getLogger("ipcbus")

GRACE_S = 0.5
"""Time in seconds for a first receiver to appear, before a request without one ends with `NoResponder`."""
_LOOK_NS = 20_000_000
"""Time in ns between two looks at the receivers of a topic, while a thread waits for a response."""
_LOOK_RARELY_NS = 100_000_000
"""As `_LOOK_NS`, while no thread waits."""
_POLL_NS = 200_000
"""Longest time in ns for which a thread polls for a response before it sleeps; a responder that sleeps is faster."""
_SLEEPS_AT_ONCE = 16
"""Number of requests whose threads sleep at once, after one for which polling brought no response."""
_UNSENT_NS = 10_000_000
"""As `_LOOK_NS`, while a request waits for a receiver."""


_GONE = "all receivers of the topic have gone or died before they answered"


class AskingSource(Protocol):
    """A source, as far as it asks."""

    topic: str

    @property
    def source(self) -> str:
        """The source string of its session."""

    @property
    def _is_joined(self) -> bool:
        """Whether a receiving context has joined its topic; one that has died counts until its slot is freed."""

    def _send_request(self, data: Any, number: int, headers: Headers | None = None) -> None:  # noqa: ANN401
        """Publishes a message of type REQUEST with its batch."""


class Requests(Asking):
    """The requests of one context; any thread begins and ends them, and the driver delivers their responses."""

    def __init__(
        self,
        event_loop: EventLoop,
        *,
        maximum: int,
        expected: Callable[[str], bool],
        reclaim: Callable[[], object],
    ) -> None:
        """Begins without requests.

        Args:
            event_loop: the event loop of the context.
            maximum: most requests in flight.
            expected: returns whether receivers of a topic that have not joined yet are there, or may be on other hosts.
            reclaim: frees the slots of dead receivers.
        """
        self._pending: PendingRequests[Request] = PendingRequests(secrets.randbits(64), maximum)
        super().__init__(
            self._pending, event_loop.pump, self._count, grace_ns=int(GRACE_S * 1e9), look_ns=_LOOK_RARELY_NS
        )
        self._event_loop = event_loop
        self._maximum = maximum
        self._expected, self._reclaim = expected, reclaim
        self._delivered: Callable[[int], None] = lambda _: None
        self._waiters: AsyncWaiters | None = None
        self._unsent: dict[int, Request] = {}
        self._look_at_ns = 0
        self._begun_before = 0
        self._sleeps_at_once = 0
        self._logged_errors: set[str] = set()

    def _count(self, messages: int) -> None:
        self._delivered(messages)

    def attach(self, delivered: Callable[[int], None], waiters: AsyncWaiters) -> None:
        """Sets what gets the number of responses that were delivered, and the tasks that wait in asyncio."""
        self._delivered, self._waiters = delivered, waiters

    def counters(self) -> dict[str, int]:
        """Returns the counters of the asking side, by their names in the statistics."""
        pending = self._pending
        return {
            "reqs_sent": pending.begun - len(self._unsent),
            "reqs_pending": len(pending),
            "resps_rcved": pending.responses,
            "resps_late": pending.late,
            "resps_unknown": pending.unknown,
        }

    # ------------------------------------------------------------------ asking

    def begin(
        self,
        source: AskingSource,
        data: Any,  # noqa: ANN401 - any bytes-like
        headers: Headers | None,
        *,
        timeout: float | None,
        on_response: Callable[[Message], object] | None = None,
        on_end: Callable[[Request], object] | None = None,
        timed: bool = True,
    ) -> Request:
        """Sends a request, or keeps it until a receiver has joined.

        Args:
            source: the source that asks.
            data: bytes-like.
            headers: as in `Source.send`.
            timeout: seconds until the request ends; None for no limit.
            on_response: gets each response; None ends the request with its first response.
            on_end: gets the request at its end.
            timed: whether the timers of the context end the request; otherwise the calling thread does.

        Raises:
            WouldBlock: too many requests are in flight; or as in `Source.send`.
            IpcBusError, TypeError, BufferError, ValueError: as in `Source.send`.
        """
        request = Request(self, source, on_response, on_end)
        now_ns = request._begun_ns
        if timeout is not None:
            request._timeout, request._grace_ns = timeout, min(request._grace_ns, int(timeout * 1e9))
        until_ns = FOREVER_NS if timeout is None or not timed else now_ns + int(timeout * 1e9)
        number = self._pending.begin(request, is_single=on_response is None, until_ns=until_ns)
        if number is None:
            raise WouldBlock(
                f"topic {source.topic!r}: {self._maximum} requests of this context wait for responses already; "
                "wait for some of them, close() requests that are not needed, or raise requests_outstanding_maximum"
            )
        request._number = number
        try:
            if source._is_joined:
                source._send_request(data, number, headers)
                request._sent = True
            else:
                request._unsent = _copied(source.topic, data), headers
                self._unsent[number] = request
        except BaseException:
            self._pending.end(number)
            raise
        if not request._sent:
            self._hurry(0)
        elif timed and (due_ns := min(until_ns, now_ns + _LOOK_RARELY_NS)) < self._turn_at_ns:
            self._hurry(due_ns)
        return request

    def _hurry(self, due_ns: int) -> None:
        """Makes the event loop call `turn`, because it would call it after the time that is due now."""
        self._look_at_ns = min(self._look_at_ns, due_ns)
        self._event_loop.hurry()
        if not self._event_loop.sequential and not self._event_loop.is_driver():
            self._event_loop.kick()

    def _ask(self, source: Source, data: Any, headers: Headers | None, timeout: float | None) -> Message:  # noqa: ANN401
        """Sends a request whatever its arguments are, and waits for its response."""
        source._check()
        refuse_inside_callback(self._event_loop, source.topic)
        seconds = bounded(timeout)
        return self._wait(self.begin(source, data, headers, timeout=seconds, timed=False), seconds)

    def _wait(self, request: Request, timeout: float | None) -> Message:
        """Drives the context, or waits for the thread that drives it, until the first response.

        Args:
            request: a request that is not timed.
            timeout: seconds from its begin; None waits for ever.

        Raises:
            RequestTimeout, NoResponder, ClosedError: the request ended without a response.
        """
        event_loop, queue = self._event_loop, request.queue
        until_ns = FOREVER_NS if timeout is None else request._begun_ns + int(timeout * 1e9)
        try:
            self._poll(request, min(until_ns - request._begun_ns, _POLL_NS))
            while not queue and not request.closed:
                began_ns = time.monotonic_ns()
                slice_ns = min(until_ns - began_ns, _LOOK_NS)
                if slice_ns <= 0:
                    self._end(request, _timed_out(request))
                    break
                if isinstance(event_loop.pump.turn(slice_ns / 1e9), int) or queue or request.closed:
                    pass  # something came, or the time is over
                elif event_loop.sequential:
                    with event_loop.drive_alone():
                        event_loop.drive(slice_ns, once=True)
                        event_loop.rearm()
                else:
                    with event_loop.guest(lambda: queue or request.closed, slice_ns / 1e9) as driven:
                        if driven is not None:
                            event_loop.drive(slice_ns, once=True)
                if not queue and time.monotonic_ns() - began_ns >= slice_ns:
                    self._look(request, time.monotonic_ns())
        except BaseException:
            self._end(request, None)
            raise
        return taken(request)

    def _poll(self, request: Request, poll_ns: int) -> None:
        """Polls the rings for a response instead of sleeping, as long as that brings responses."""
        event_loop = self._event_loop
        sleeps = event_loop.sequential or event_loop.network_is_busy  # with a look at the sockets before
        if event_loop.spins or sleeps or request.closed or not request._sent or poll_ns <= 0:
            return
        if self._sleeps_at_once:
            self._sleeps_at_once -= 1
            return
        began_ns = time.monotonic_ns()
        with event_loop.guest(lambda: request.closed, poll_ns / 1e9) as driven:
            if driven is not None:
                driven.poll_for(poll_ns)
        # Other work may have ended it early.
        if time.monotonic_ns() - began_ns >= poll_ns:
            self._sleeps_at_once = _SLEEPS_AT_ONCE

    # ------------------------------------------------------------------ on the driver

    def turn(self, now_ns: int) -> int:
        """Sends what waits for receivers, and ends what is over; returns when to call again, in ns."""
        for request in list(self._unsent.values()):
            self._look(request, now_ns)
        for request in self._pending.end_due(now_ns):
            self._finish(request, _timed_out(request))
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + (_UNSENT_NS if self._unsent else _LOOK_RARELY_NS)
            self._end_unheard()
        # A request that begins in another thread either counts here, or finds FOREVER_NS or the final time.
        self._turn_at_ns = FOREVER_NS
        begun, self._begun_before = self._begun_before, self._pending.begun
        is_idle = begun == self._begun_before and not self._pending
        self._turn_at_ns = FOREVER_NS if is_idle else min(self._look_at_ns, self._pending.check_at_ns)
        return self._turn_at_ns

    def _end_unheard(self) -> None:
        """Ends the requests that no receiver can answer any more."""
        if not self._pending:
            return
        self._reclaim()
        sent = [request for request in self._pending.askers() if request._sent]
        unheard = {source for source in {request._source for request in sent} if not source._is_joined}
        for request in sent:
            if request._source in unheard:
                self._end(request, _nobody(request, _GONE))

    def end_all(self, source: AskingSource, error: IpcBusError) -> None:
        """Ends all requests of a source that is being closed."""
        for request in self._pending.askers():
            if request._source is source:
                self._end(request, error)
        self._origins.pop(source, None)

    def _look(self, request: Request, now_ns: int) -> None:
        """Sends a request whose receiver has joined; ends it when no receiver is there or may come."""
        source = request._source
        if not request._sent:
            if source._is_joined:
                self._send(request)
            elif now_ns - request._begun_ns >= request._grace_ns and not self._expected(source.topic):
                self._end(request, _nobody(request, "no receiver of the topic is there"))
            return
        self._reclaim()
        if not source._is_joined:
            self._end(request, _nobody(request, _GONE))

    def _send(self, request: Request) -> None:
        if self._unsent.pop(request._number, None) is None or request._unsent is None:
            return  # another thread sends it
        data, headers = request._unsent
        try:
            request._source._send_request(data, request._number, headers)
        except WouldBlock:
            self._unsent[request._number] = request  # inside a callback; it is sent in a later turn
        except IpcBusError as error:
            self._end(request, error)
        else:
            request._sent, request._unsent = True, None

    # ------------------------------------------------------------------ ends

    def _end(self, request: Request, error: IpcBusError | None) -> None:
        if self._pending.end(request._number):
            self._finish(request, error)
        request.closed = True

    def _finish(self, request: Request, error: IpcBusError | None) -> None:
        self._unsent.pop(request._number, None)
        request.error, request.closed = error, True
        if request._on_response is None:  # a thread or a task may wait
            if self._waiters is not None:
                self._waiters.wake(request)
            self._event_loop.notify()
        on_end = request._on_end
        # A callback often refers to its request; freed here, both are freed at once and not by the garbage collector.
        request._on_response = request._on_end = None
        if on_end is not None:
            try:
                on_end(request)
            except BaseException as raised:
                self._failed(raised, request)

    def _failed(self, error: BaseException, request: Request) -> None:
        """Logs what a callback of a request has raised."""
        kind = type(error).__name__
        if not self._event_loop.pass_on(error) and kind not in self._logged_errors:
            self._logged_errors.add(kind)
            log.error(
                "on_response of a request on %r raised; more errors of this kind are not logged",
                request.topic,
                exc_info=error,
            )


def taken(request: Request) -> Message:
    """Returns the first response of a request that has ended.

    Raises:
        RequestTimeout, NoResponder, ClosedError: it ended without a response.
    """
    if request.queue:
        return request.queue[0]
    if request.error is not None:
        raise request.error
    raise RequestTimeout(f"the request on topic {request.topic!r} was closed before a response came; ask again")


def refuse_inside_callback(event_loop: EventLoop, topic: str) -> None:
    """Raises WrongThread inside a callback of the context, where no thread may wait for a response."""
    if event_loop.is_driver():
        raise WrongThread(
            f"topic {topic!r}: request() waits, and inside a callback of the same context no response can come; call "
            "requests(data, on_response) here, or request() in another thread"
        )


def _copied(topic: str, data: Any) -> bytes:  # noqa: ANN401 - any bytes-like
    try:
        return memoryview(data).tobytes()
    except TypeError:
        raise send_errors.not_bytes(topic, data) from None


def _timed_out(request: Request) -> IpcBusError:
    if not request._sent:
        return _nobody(request, "no receiver of the topic has joined")
    if not request._timeout:
        return RequestTimeout(
            f"topic {request.topic!r}: the request was sent, but timeout = 0 or less waits for no response; give "
            "seconds, or None to wait for ever"
        )
    return RequestTimeout(
        f"topic {request.topic!r}: {request.responses or 'no'} responses came in {request._timeout:.3g} s; give the "
        "request more time, or look whether the receivers of the topic call respond()"
    )


def _nobody(request: Request, why: str) -> NoResponder:
    waited = (time.monotonic_ns() - request._begun_ns) / 1e9
    return NoResponder(
        f"topic {request.topic!r}: {why} ({waited:.3g} s after the request); start a receiver that answers in the same "
        "domain, and ask again"
    )
