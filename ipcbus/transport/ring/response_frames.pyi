"""Responses straight into pipes and out of them, without the steps of a control channel.

A short response is one frame of a control channel (`recovery.control_channel`) with one message RESPONSE
(`wire.control_messages`). Everything else in a pipe is left to the control channel, in its order.
"""

from collections.abc import Callable, Sized

from ipcbus.delivery.pump import Pump
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
        sequential: bool,
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
            sequential: whether a thread may take the driver lock for a response.
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

class ResponseReader:
    """Takes the responses that the receivers of one session have put into their pipes. Runs on the driver."""

    def __init__(self, words: SharedWords, calls_at: int, channel_words_at: list[int]) -> None:
        """Begins without pipes.

        Args:
            words: the words of the session's control block.
            calls_at: where the calls of receivers are, a bit for each slot.
            channel_words_at: where the channel word of each slot is; 64 slots at most.

        Raises:
            ValueError: there are more slots.
        """

    def serve(
        self, slot: int, pipe: Pipe | None, settled_word: int, call_receiver: Callable[[], object] | None
    ) -> None:
        """Takes responses out of the pipe of a slot from now on; with None, out of this slot's pipe no more.

        Args:
            slot: the slot.
            pipe: the end of the source.
            settled_word: the channel word of the slot while its receiver has this pipe.
            call_receiver: called when the receiver waits for room.

        Raises:
            IndexError: there is no such slot.
        """

    def take(self, respond: Callable[[int, bytes], object]) -> bool:
        """Takes the responses of the receivers that called, up to 64 of each one.

        Args:
            respond: gets the number of the request and the bytes of each response.

        Returns:
            Whether receivers have called for something else, or have more responses; their calls stay.
        """
