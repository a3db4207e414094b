"""Frames straight out of pipes, in the driver's turn: those of receivers, and those of a source.

A session has one inlet, which is the word of the session that the driver watches (`Pump.watch`). When a receiver
calls, the driver takes the frames that are in the receiver's pipe in compiled code: a message that fits one frame goes
to the taker of its kind (`wire.control_front`), with the peer of the slot. The first frame without a taker is left for
Python, and so is everything that is not a frame: a receiver that asks for a channel, one that has made room, one that
has gone. Then the call stays, and `SessionPipes.look` finds it. So the order of the frames of a receiver is kept. An
idle session costs one load a turn.
"""

from collections.abc import Callable, Hashable

from ipcbus.wire.control_front import FrameTaker
from ringbuf.pipe import Pipe
from ringbuf.shared_words import SharedWords, WatchedWord

class SessionInlet(WatchedWord):
    """Takes the frames that the receivers of one session have put into their pipes. Runs on the driver."""

    def __init__(self, words: SharedWords, calls_at: int, channel_words_at: list[int]) -> None:
        """Begins without pipes and takers.

        Args:
            words: the words of the session's control block.
            calls_at: where the calls of receivers are, a bit for each slot.
            channel_words_at: where the channel word of each slot is; 64 slots at most.

        Raises:
            ValueError: there are more slots.
        """

    def hand(self, kind: int, taker: FrameTaker | None) -> None:
        """Hands the messages of a kind to a taker from now on; with None, to the control channel again."""

    def serve(
        self,
        slot: int,
        pipe: Pipe | None,
        settled_word: int,
        call_receiver: Callable[[], object] | None,
        peer: Hashable = None,
    ) -> None:
        """Takes frames out of the pipe of a slot from now on; with None, out of this slot's pipe no more.

        Args:
            slot: the slot.
            pipe: the end of the source.
            settled_word: the channel word of the slot while its receiver has this pipe.
            call_receiver: called when the receiver waits for room.
            peer: what takers get with each message of this receiver.

        Raises:
            IndexError: there is no such slot.
        """

    def changed(self) -> bool:
        """Returns whether receivers have called, also while their frames are being taken."""

    def take_now(self) -> tuple[int, bool]:
        """Takes the frames of the receivers that called, as far as they were put before this call.

        Returns:
            The number of messages that the application got; and whether receivers have called for something else, or
            have other frames, so that their calls stay.
        """

class SourceInlet(WatchedWord):
    """The word of a pipe at a receiver; takes the frames that the source has put into it. Runs on the driver."""

    def __init__(
        self,
        pipe: Pipe,
        takers: list[FrameTaker | None],
        peer: Hashable,
        call_source: Callable[[], object],
    ) -> None:
        """Takes the frames of a pipe from now on.

        Args:
            pipe: the end of the receiver.
            takers: the taker of each of 256 kinds; the others are left for Python.
            peer: what takers get with each message.
            call_source: called when the source waits for room.
        """
