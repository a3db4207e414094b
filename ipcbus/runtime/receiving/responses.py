"""The responses of a context: they go to the asking context over the control channel of the session that asked."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from ipcbus.errors import ClosedError, MessageTooLarge, SessionGone, TransportError, WouldBlock
from ipcbus.transport.ring.response_frames import PipeResponder, ResponseCount
from ipcbus.wire import control_messages, return_address
from ipcbus.wire.return_address import ReturnAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.delivery.pump import Pump
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.transport.ring.response_frames import ResponseWriter

_RETRY_S = 0.001
_SENT_S = 5.0
"""Longest time in seconds for which `send_to` waits until the asking context has taken the response."""


class ResponseChannels(Protocol):
    """The ways to the asking contexts."""

    @property
    def lost(self) -> int:
        """Responses that may not have come, and that are not sent again."""

    def send_response(self, address: ReturnAddress, message: bytes) -> bool:
        """Sends a control message to the context of a return address; returns False when there is no room now.

        Raises:
            SessionGone: the session, or its context, has ended.
            ipcbus.TransportError: there is no way to the context.
        """

    def writer(self, address: ReturnAddress, pump: Pump) -> ResponseWriter | None:
        """Returns the short way to the context of a return address; None without one."""

    def waits(self, address: ReturnAddress) -> bool:
        """Returns whether the context of a return address has not taken all responses yet."""

    def has_left(self, address: ReturnAddress) -> Callable[[], bool]:
        """Returns a function that says whether the responses to a return address so far have left this context."""

    def release(self, address: ReturnAddress) -> None:
        """Leaves the session of a return address, if it was joined only to answer."""


class Responses:
    """Sends the responses of one context; any thread may call it."""

    def __init__(
        self,
        domain: str,
        event_loop: EventLoop,
        channels: ResponseChannels,
        *,
        message_max: int,
        check: Callable[[], None],
        wait: Callable[[float], None],
    ) -> None:
        """Begins without responses.

        Args:
            domain: the bus domain.
            event_loop: the event loop of the context.
            channels: the ways to the asking contexts.
            check: raises an error when the context is closed, or belongs to the parent of a fork.
            message_max: longest control message in bytes (option control_channel_message_maximum).
            wait: lets the context work for a number of seconds at most; not inside a callback.
        """
        self._domain, self._event_loop, self._channels = domain, event_loop, channels
        self._response_max = message_max - control_messages.RESPONSE_HEADER
        self._check, self._wait = check, wait
        self.count = ResponseCount()
        self.blocked = self.would_block = 0

    def counters(self) -> dict[str, int]:
        """Returns the counters of the answering side, by their names in the statistics."""
        return {
            "resps_sent": self.count.sent,
            "resp_blocked": self.blocked,
            "resp_would_block": self.would_block,
            "resps_lost": self._channels.lost,
        }

    def responder(self, advert: SessionAdvert) -> SessionResponder:
        """Returns what takes the responses to the requests of a session."""
        endpoint = advert.endpoint
        return SessionResponder(
            self,
            ReturnAddress(
                self._domain,
                advert.context_id,
                advert.transport,
                advert.session_id,
                advert.local,
                0,
                endpoint.host if endpoint is not None else "",
                endpoint.port if endpoint is not None else 0,
            ),
        )

    def send(self, address: ReturnAddress, data: Any, what: str) -> None:  # noqa: ANN401 - any bytes-like
        """Sends a response.

        Args:
            address: the asking context and its request.
            data: the response, bytes-like.
            what: names the request in errors.

        Raises:
            WouldBlock: the caller is inside a callback, and there is no room.
            MessageTooLarge: the response is too long.
            SessionGone: the asking context, or its session, has ended.
            ClosedError, WrongProcess: as `check`.
            TypeError: `data` is not bytes-like.
        """
        try:
            given = memoryview(data)
        except TypeError:
            raise TypeError(
                f"{what}: a response must be bytes-like, not {type(data).__name__}; encode it first"
            ) from None
        if given.nbytes > self._response_max:
            raise MessageTooLarge(
                f"{what}: a response of {given.nbytes} bytes is longer than the limit of {self._response_max}; send "
                "it in parts, publish it on a topic, or raise option control_channel_message_maximum in both contexts"
            )
        self._send(address, control_messages.response(address.request, given), what)

    def _send(self, address: ReturnAddress, message: bytes, what: str) -> None:
        inside = self._event_loop.is_driver()
        waited = False
        while True:
            self._check()
            with self._event_loop.driver_lock():
                if self._channels.send_response(address, message):
                    self.count.sent += 1
                    return
                if inside:
                    self.would_block += 1
                    raise WouldBlock(
                        f"{what}: there is no room on the way to the asking context, and a callback never waits; raise "
                        "control_channel_queue_maximum here, or keep the message and call respond() later or "
                        "in another thread"
                    )
                self.blocked += not waited
            waited = True
            self._wait(_RETRY_S)

    def writer(self, address: ReturnAddress) -> ResponseWriter | None:
        """Returns the short way to an asking context that has got a response; None without one."""
        return self._channels.writer(address, self._event_loop.pump)

    def send_to(self, packed: bytes, data: Any) -> None:  # noqa: ANN401 - any bytes-like
        """Sends a response to a return address.

        Raises:
            ValueError: the bytes are not a return address, or one of another domain.
            TransportError: the asking context has not taken the response in time.
            IpcBusError, TypeError: as in `send`; also if the return address is not bytes.
        """
        if not isinstance(packed, bytes | bytearray | memoryview):
            raise TypeError(
                f"a return address must be bytes, not {type(packed).__name__}; give Message.return_address of a request"
            )
        address = return_address.unpack(bytes(packed))
        if address is None:
            raise ValueError(
                f"these {len(packed)} bytes are not a return address of this release; give Message.return_address of a "
                "request, unchanged"
            )
        if address.domain != self._domain:
            raise ValueError(
                f"the return address belongs to domain {address.domain!r}, and this context to {self._domain!r}; "
                "answer with a context of that domain"
            )
        self.send(address, data, f"the request of context {address.context_id:08x}")
        if self._event_loop.is_driver():
            return
        # The process may end after this call, and in sequential mode no thread may drive the context for a while.
        has_left = self._channels.has_left(address)
        self._wait_until_sent(address)
        if self._event_loop.sequential:
            with self._event_loop.driver_lock():
                self._channels.release(address)
        if not has_left():
            at = f" at {address.host}:{address.port}" if address.host else ""
            raise TransportError(
                f"the asking context {address.context_id:08x}{at} has not taken the response within {_SENT_S} s: "
                "it has ended, is not driven, or cannot be reached; answer in the process that received the request"
            )

    def _wait_until_sent(self, address: ReturnAddress) -> None:
        until = time.monotonic() + _SENT_S
        while time.monotonic() < until:
            with self._event_loop.driver_lock():
                if not self._channels.waits(address):
                    return
            self._wait(_RETRY_S)


class SessionResponder(PipeResponder):
    """Takes the responses to the requests of one session (delivery.slow_path.Responder).

    Messages refer to it, and it does not keep the context alive for them.
    """

    def __init__(self, responses: Responses, address: ReturnAddress) -> None:
        super().__init__(responses.count)
        self._responses, self._address = weakref.ref(responses), address

    def respond(self, topic: str, request: int, data: Any) -> None:  # noqa: ANN401 - any bytes-like
        """Sends a response that does not go at once; `Message.respond` has the errors."""
        responses = self._responses()
        if responses is None:
            raise ClosedError(
                f"topic {topic!r}: the context that received the request is closed; answer before its close"
            )
        responses.send(self._of(request), data, f"topic {topic!r}")
        self._writer = responses.writer(self._address)

    def return_address(self, request: int) -> bytes:
        """Returns the way back to the asking context as bytes."""
        return return_address.pack(self._of(request))

    def _of(self, request: int) -> ReturnAddress:
        own = self._address
        return ReturnAddress(
            own.domain, own.context_id, own.transport, own.session_id, own.local, request, own.host, own.port
        )


def gone(address: ReturnAddress) -> SessionGone:
    """Returns the error for a session that has ended."""
    return SessionGone(
        f"the context {address.context_id:08x} that asked, or its session, has ended; no response can reach it, drop it"
    )
