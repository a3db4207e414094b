"""The usual course of a request: sent at once to a source with receivers, and its responses straight from the pipe.

`Requests` inherits from `Asking`, and does in Python what is not usual: a request without a receiver, odd arguments, a
wait that sleeps, and the end of a request without a response.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ipcbus.delivery.pump import Pump
from ipcbus.delivery.received_message import Message, Origin
from ipcbus.errors import IpcBusError
from ipcbus.recovery.pending_requests import PendingRequests
from ipcbus.runtime.sending.response_taker import ResponseTaker
from ipcbus.topic.topic_source import TopicSource
from ipcbus.wire.properties import Headers

class Request:
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

    topic: str
    responses: int
    closed: bool
    error: IpcBusError | None
    queue: tuple[Message, ...]
    """The first response, if the request ends with it."""
    _source: Any
    _on_response: Callable[[Message], object] | None
    _on_end: Callable[[Request], object] | None
    _number: int
    _begun_ns: int
    _timeout: float | None
    _grace_ns: int
    _unsent: tuple[bytes, Headers | None] | None
    _sent: bool

    def __init__(
        self,
        requests: Asking,
        source: Any,  # noqa: ANN401 - a TopicSource
        on_response: Callable[[Message], object] | None,
        on_end: Callable[[Request], object] | None,
    ) -> None:
        """Use `Source.requests` instead."""

    def close(self) -> None:
        """Ends the request: responses that come later are counted and dropped. Closing twice does nothing.

        In another thread than the one that drives the context this does not wait for `on_response`: a call of it that
        has begun, or is about to begin, may still run.
        """

    def __enter__(self) -> Self:
        """Returns the request; the end of the block closes it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the request."""

class Asking(ResponseTaker):
    """The requests of one context, as far as they take their usual course. A subclass has the methods of the rest.

    These are `_ask` and `_wait` (a request that waits for its response), `_hurry`, `_end` and `_failed`.
    """

    _origins: dict[Any, Origin]
    """The origin of responses, by source."""
    _turn_at_ns: int
    """When Python looks at the requests next."""

    def __init__(
        self,
        pending: PendingRequests[Request],
        pump: Pump,
        count: Callable[[int], object],
        *,
        grace_ns: int,
        look_ns: int,
    ) -> None:
        """Begins without requests.

        Args:
            pending: the requests in flight.
            pump: drives the context.
            count: as for a `ResponseTaker`.
            grace_ns: time in ns for a first receiver to appear.
            look_ns: time in ns after which Python looks at a request that is in flight.
        """

    def ask(self, source: TopicSource, data: Any, headers: Headers | None, timeout: float | None) -> Message:  # noqa: ANN401
        """Sends a request, and waits for its response; `Source.request` has the errors."""

    def ask_many(
        self,
        source: TopicSource,
        data: Any,  # noqa: ANN401 - any bytes-like
        headers: Headers | None,
        timeout: float | None,
        on_response: Callable[[Message], object],
        on_end: Callable[[Request], object] | None,
    ) -> Request | None:
        """Sends a request whose responses go to a callback.

        Returns:
            The request; None when it is not usual: then nothing was done.
        """
