"""Responses between contexts of one process without shared memory: a stand-in for the control channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.runtime.receiving.responses import gone
from ipcbus.wire import control_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context
    from ipcbus.delivery.pump import Pump
    from ipcbus.wire.return_address import ReturnAddress


class Loopback:
    """Gives responses straight to the asking contexts (responses.ResponseChannels)."""

    def __init__(self, *contexts: Context) -> None:
        self.contexts = list(contexts)
        self.full = False
        self.lost = 0
        self.sent: list[bytes] = []
        for context in contexts:
            context._responses._channels = self

    def send_response(self, address: ReturnAddress, message: bytes) -> bool:
        """Delivers a response, unless there is no room."""
        if self.full:
            return False
        self.sent.append(message)
        found = control_messages.decode(message)
        assert isinstance(found, control_messages.Response)
        for context in self.contexts:
            if context._id == address.context_id and not context._closed:
                with context._event_loop.driver_lock():
                    context._sending_sessions.requests.respond(found.request, found.data)
                return True
        raise gone(address)

    def writer(self, address: ReturnAddress, pump: Pump) -> None:
        """There is no short way."""
        del address, pump

    def waits(self, address: ReturnAddress) -> bool:
        """Nothing waits."""
        del address
        return False

    def has_left(self, address: ReturnAddress) -> Callable[[], bool]:
        """It has: responses come back at once."""
        del address
        return lambda: True

    def release(self, address: ReturnAddress) -> None:
        """Does nothing."""
