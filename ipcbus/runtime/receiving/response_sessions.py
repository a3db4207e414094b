"""The sessions over which a context answers: those that it receives, and those that it joins only to answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from ipcbus.errors import TransportError
from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.adverts import SessionAdvert
from ipcbus.resolution.local.registry import PeerRegistry
from ipcbus.resolution.source_string import Endpoint
from ipcbus.runtime.receiving.responses import gone
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.config import ReceiverOptions
    from ipcbus.delivery.pump import Pump
    from ipcbus.recovery.control_channel import ControlChannel
    from ipcbus.transport.receiving_session import ReceivingSession
    from ipcbus.transport.ring.response_frames import ResponseWriter
    from ipcbus.wire.return_address import ReturnAddress

KEPT_NS = 10_000_000_000
"""Time in ns after its last response for which a session stays joined that was joined only to answer."""


class JoinedSessions(Protocol):
    """The joined sessions of a context."""

    def find(self, context_id: int, session_id: int) -> ReceivingSession | None:
        """Returns a joined session; None without it."""

    def advert_of(self, context_id: int, session_id: int) -> SessionAdvert | None:
        """Returns the advert of a session that is offered here, also over the network; None without one."""

    def join_to_answer(
        self, advert: SessionAdvert, registry: PeerRegistry | None, options: ReceiverOptions, pid: int
    ) -> ReceivingSession:
        """Joins a session without topics; without a registry, over UDP.

        Raises:
            TransportError: it cannot be joined.
        """

    def keep_until(self, session: ReceivingSession, until_ns: int) -> None:
        """Keeps a session that was joined only to answer until this time of the monotonic clock."""


class Channels(Protocol):
    """The control channels to the sources of joined sessions."""

    @property
    def responses_lost(self) -> int:
        """Responses that may not have come, and that are not sent again."""

    def send(self, session: ReceivingSession, message: bytes) -> bool:
        """Sends a message to the source of a session; returns False when that is not possible now."""

    def of(self, session: ReceivingSession) -> ControlChannel | None:
        """Returns the channel to the source of a session; None when there can be no channel now."""

    def response_writer(self, session: ReceivingSession, pump: Pump) -> ResponseWriter | None:
        """Returns the short way for responses to the source of a session; None without an open pipe."""

    def is_unread(self, session: ReceivingSession) -> bool:
        """Returns whether the source of a session has not taken all messages yet."""

    def has_left(self, session: ReceivingSession) -> Callable[[], bool]:
        """Returns a function that says whether the messages to the source of a session have left this context."""


class ResponseSessions:
    """The ways to the asking contexts (responses.ResponseChannels). Runs on the driver."""

    def __init__(
        self,
        domain: str,
        joined: JoinedSessions,
        channels: Channels,
        options: ReceiverOptions,
        has_ended: Callable[[int], bool],
    ) -> None:
        """Begins without ways.

        Args:
            domain: the bus domain.
            joined: the joined sessions of the context.
            channels: the control channels to their sources.
            options: the options of receivers.
            has_ended: returns whether a context, by its id, is known to have ended on this host.
        """
        self._domain, self._joined, self._channels, self._options = domain, joined, channels, options
        self._has_ended = has_ended

    @property
    def lost(self) -> int:
        """Responses that may not have come, and that are not sent again."""
        return self._channels.responses_lost

    def send_response(self, address: ReturnAddress, message: bytes) -> bool:
        """Sends a control message to the context of a return address; returns False when there is no room now.

        Raises:
            SessionGone: the session, or its context, has ended.
            TransportError: the session cannot be joined.
        """
        session = self._joined.find(address.context_id, address.session_id)
        if session is None:
            session = self._join(address)
        self._joined.keep_until(session, time.monotonic_ns() + KEPT_NS)
        return self._channels.send(session, message)

    def writer(self, address: ReturnAddress, pump: Pump) -> ResponseWriter | None:
        """Returns the short way for responses to the context of a return address; None without one.

        Args:
            address: the asking context.
            pump: says which thread drives this context.
        """
        session = self._joined.find(address.context_id, address.session_id)
        if session is None or not session.topics():
            return None  # a session without topics is left some time after the last response that was noted here
        return self._channels.response_writer(session, pump)

    def waits(self, address: ReturnAddress) -> bool:
        """Returns whether the context of a return address has not taken all responses yet."""
        session = self._joined.find(address.context_id, address.session_id)
        return session is not None and self._channels.is_unread(session)

    def has_left(self, address: ReturnAddress) -> Callable[[], bool]:
        """Returns a function that says whether the responses to a return address so far have left this context."""
        session = self._joined.find(address.context_id, address.session_id)
        return self._channels.has_left(session) if session is not None else lambda: True

    def release(self, address: ReturnAddress) -> None:
        """Leaves a session that was joined only to answer."""
        session = self._joined.find(address.context_id, address.session_id)
        if session is not None:
            self._joined.keep_until(session, 0)

    def _join(self, address: ReturnAddress) -> ReceivingSession:
        try:
            registry = PeerRegistry(object_names.registry(self._domain, address.context_id))
        except (RingError, OSError) as error:
            if not address.host or self._has_ended(address.context_id):
                raise gone(address) from error
            return self._join_elsewhere(address)
        try:
            contents = registry.read(receivers=False) if registry.alive() else None
            sessions = contents[1].sessions if contents is not None else ()
            advert = next((each for each in sessions if each.session_id == address.session_id), None)
            if advert is None or contents is None:
                raise gone(address)
            return self._joined.join_to_answer(advert, registry, self._options, contents[1].pid)
        finally:
            registry.close()

    def _join_elsewhere(self, address: ReturnAddress) -> ReceivingSession:
        """Joins a session of a context that no registry of this host shows, over UDP."""
        advert = self._joined.advert_of(address.context_id, address.session_id)
        if advert is None:
            # Enough for a control channel: the session's own address, one line, and no group.
            endpoint = Endpoint(address.host, address.port)
            which = address.context_id, address.local, address.transport, address.session_id
            advert = SessionAdvert(*which, 0, 0, source_paced=True, topics_max=1, endpoint=endpoint)
        return self._joined.join_to_answer(advert, None, self._options, 0)


def refused(advert: SessionAdvert, reason: str) -> TransportError:
    """Returns the error for a session that cannot be joined to answer."""
    return TransportError(
        f"{advert.source_string} cannot be joined to answer its request: {reason or 'it is ending'}; answer in the "
        "process that received the request"
    )
