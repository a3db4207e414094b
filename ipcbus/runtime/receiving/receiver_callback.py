"""What a receiver calls: a callback of messages, of data or of views; or nothing, and the application pulls."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ipcbus.errors import ConfigError
from ipcbus.runtime.error_mapping import check_callbacks

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.config import ReceiverOptions
    from ipcbus.delivery.received_message import Message
    from ipcbus.delivery.sink import Sink

log = logging.getLogger("ipcbus")


@dataclass(frozen=True, slots=True)
class ReceiverCallback:
    """The callback of a receiver, as the application chose it.

    Attributes:
        function: the callback; None where the application pulls.
        takes: what it gets of each message.
        events: whether the application gets events.
    """

    function: Callable[[Any], object] | None
    takes: Literal["message", "data", "view"]
    events: bool

    def check(self, options: ReceiverOptions) -> None:
        """Checks the callback against the options of its receiver.

        Raises:
            ConfigError: the application would have to acknowledge, and gets no messages to do so.
        """
        if self.takes != "message" and (options.gmd_name or options.share) and not options.ipc_gmd_auto_ack:
            raise ConfigError(
                f"on_{self.takes} gets no message that it could acknowledge, and ipc_gmd_auto_ack is false; give "
                "on_message, or leave ipc_gmd_auto_ack true: then a message is acknowledged when on_"
                f"{self.takes} returns"
            )

    def watch_losses(self, sink: Sink) -> None:
        """Logs the losses that the application does not get as events."""
        if not self.events:
            sink.on_unseen_loss = LossLog(sink)


def receiver_callback(
    on_message: Callable[..., object] | None,
    on_data: Callable[..., object] | None,
    on_view: Callable[..., object] | None,
    events: bool,
) -> ReceiverCallback:
    """Returns the callback that was given, of at most one.

    Raises:
        ConfigError: there are several, one cannot be called, or `events` is not a bool.
    """
    given = {"on_message": on_message, "on_data": on_data, "on_view": on_view}
    check_callbacks(**given)
    found = [name for name, function in given.items() if function is not None]
    if len(found) > 1:
        raise ConfigError(
            f"{' and '.join(found)} are given, and a receiver calls one function for each message; give one of "
            "on_message, on_data and on_view, and make another receiver for the other one"
        )
    if not isinstance(events, bool):
        raise ConfigError(f"events = {events!r}: give True, or False for messages only")
    if on_data is not None:
        return ReceiverCallback(on_data, "data", events=False)
    if on_view is not None:
        return ReceiverCallback(on_view, "view", events=False)
    return ReceiverCallback(on_message, "message", events)


class LossLog:
    """Logs losses of one receiver: the first one, and again whenever their number has doubled."""

    def __init__(self, sink: Sink) -> None:
        """Makes a log; `sink` counts what it has lost."""
        self._sink = sink
        self._next = 1

    def __call__(self, loss: Message) -> None:
        """Takes note of a loss, which the sink has counted."""
        lost = self._sink.lost
        if lost < self._next:
            return
        self._next = 2 * lost
        log.warning(
            "topic %r: messages %d to %d from %s are lost, %d in all for this receiver, which gets no events; "
            "rcv.lost counts them, and the next warning comes when their number has doubled",
            loss.topic,
            loss.first_sequence_number,
            loss.sequence_number,
            loss.source,
            lost,
        )
