"""Responses straight into pipes, without the steps of a control channel.

A short response is one frame of a control channel (`recovery.control_channel`) with one message RESPONSE
(`wire.control_messages`). `frame_inlet` takes it at the other end.
"""

from collections.abc import Callable, Sized

from ipcbus.delivery.pump import Pump
from ipcbus.delivery.received_message import QuickResponder
from ringbuf.pipe import Pipe
from ringbuf.shared_words import SharedWords

class ResponseWriter:
    """Puts short responses into the pipe of one joined session, and calls its source."""

    def __init__(
        self,
        pipe: Pipe,
        words: SharedWords,
        calls_at: int,
        parked_at: int,
        bit: int,
        ring: Callable[[], object],
        urgent: Sized,
        pump: Pump,
        frame_max: int,
    ) -> None:
        """Makes a writer for an open pipe.

        Args:
            pipe: the end of the receiver.
            words: the words of the session's control block.
            calls_at: where the calls of receivers are.
            parked_at: where the source shows whether it sleeps.
            bit: the bit of the receiver's slot.
            ring: wakes the source.
            urgent: the urgent messages that wait in the control channel, which go first.
            pump: says which thread drives the context.
            frame_max: the longest frame that the channel sends, in bytes.
        """

    def send(self, request: int, data: bytes) -> bool:
        """Sends a response at once.

        Args:
            request: the number of the request.
            data: the response.

        Returns:
            False when nothing was sent: the response is longer than a frame, there is no room, the pipe is broken,
            messages wait in the channel, or another thread drives the context.
        """

class ResponseCount:
    """Counts the responses of one context."""

    sent: int
    """Responses that were sent."""

class PipeResponder(QuickResponder):
    """Sends short responses of `bytes` at once over a pipe that took one before."""

    _writer: ResponseWriter | None
    """The short way to the asking context; None before the first response."""

    def __init__(self, count: ResponseCount) -> None:
        """Makes a responder that counts there."""
