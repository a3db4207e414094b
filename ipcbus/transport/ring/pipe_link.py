"""The control channel of a ring session on one host: a pipe for each slot that needs one.

The channel word of a slot (`ringbuf.layout`) says how far both sides are. All steps but the last call may be a
process's last; what is left is removed by the other side, or with the other objects of a dead context::

    receiver                                  source
    --------                                  ------
    request: NONE -> WANTED, calls
                                              look: makes the pipe, WANTED -> READY, notifies the slot
    attend: maps the pipe, READY -> OPEN, calls
                                              look: removes the name of the pipe

The source may make the pipe first (`session_pipes.SessionPipes.open`: NONE -> READY). If it cannot make a pipe, it
changes the word to REFUSED. Each step is a compare-and-swap of the whole word, which contains the generation of the
slot. So a receiver that got the slot meanwhile never sees the pipe of the receiver before it.

A call of the source is a bit of `channel_calls`, and a ring of its doorbell if it sleeps. A call of the receiver is a
ring of its doorbell if it sleeps, as for records. So two sides that spin make no system calls.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ipcbus.resolution.local import object_names
from ipcbus.transport.ring.frame_inlet import SourceInlet
from ipcbus.transport.ring.response_frames import ResponseWriter
from ringbuf.doorbell import FRAMES, DoorbellRinger
from ringbuf.layout import (
    CHANNEL_GENERATION_SHIFT,
    CHANNEL_NUMBER_SHIFT,
    CHANNEL_OPEN,
    CHANNEL_READY,
    CHANNEL_REFUSED,
    CHANNEL_WANTED,
    CONTROL_HEADER,
    PAGE,
    PIPE_FRAME_HEADER,
    SLOT,
    field_offset,
)
from ringbuf.pipe import join_pipe
from ringbuf.ring_errors import RingError
from ringbuf.shared_words import SharedWords

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sized

    from ipcbus.delivery.pump import Pump
    from ipcbus.recovery.control_channel import ControlChannel
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.wire.control_front import FrameTaker
    from ringbuf.channel import JoinedChannel
    from ringbuf.pipe import Pipe

FRAME_MAX_LEAST = PAGE // 4 - PIPE_FRAME_HEADER
"""The `frame_max` of the smallest pipe, in bytes: such a frame fits every pipe."""

NUMBERS = 1 << 16
"""A pipe has a number below this one."""

STATE_MASK = (1 << CHANNEL_NUMBER_SHIFT) - 1
CALLS, PARKED = field_offset(CONTROL_HEADER, "channel_calls"), field_offset(CONTROL_HEADER, "owner_parked")
CHANNEL = field_offset(SLOT, "channel")


def channel_word(generation: int, state: int, number: int = 0) -> int:
    """Returns the channel word of a slot."""
    return generation << CHANNEL_GENERATION_SHIFT | number << CHANNEL_NUMBER_SHIFT | state


def no_checkpoint(step: str) -> None:
    """Does nothing after each step; tests kill the process here."""


class PipeLink:
    """A link over a pipe (recovery.frame_link.FrameLink); it calls the other side when that may have to act."""

    def __init__(self, call: Callable[[], object]) -> None:
        """Makes a link without a pipe.

        Args:
            call: called after each frame that was put, and when the other side waits for room.
        """
        self._call = call
        self._pipe: Pipe | None = None
        self._reason = ""

    @property
    def is_open(self) -> bool:
        """Whether it has its pipe; frames can be put from then on."""
        return self._pipe is not None

    @property
    def pipe(self) -> Pipe | None:
        """Its pipe; None before it is open."""
        return self._pipe

    @property
    def frame_max(self) -> int:
        """The length of the longest frame, in bytes; it may grow when the link opens."""
        return self._pipe.frame_max if self._pipe is not None else FRAME_MAX_LEAST

    @property
    def broken(self) -> str:
        """The reason why the link cannot be used any more; empty while it can be used, also before it is open."""
        return self._reason or (self._pipe.broken if self._pipe is not None else "")

    def put(self, frame: bytes) -> bool:
        """Sends a frame; returns False when there is no room now, or no pipe.

        Raises:
            ValueError: the frame is empty, or longer than `frame_max`.
        """
        if self._pipe is None or self._reason or not self._pipe.put(frame):
            return False
        self._call()
        return True

    def put_alone(self, frame: bytes, waiting: Sized) -> bool:
        """Sends a frame if nothing waits, as in `FrameLink`."""
        if self._pipe is None or self._reason or not self._pipe.put_alone(frame, waiting):
            return False
        self._call()
        return True

    def push(self) -> None:
        """Does nothing: `put` has sent the frame."""

    def take(self) -> bytes | None:
        """Returns the next frame; None when there is no frame now."""
        if self._pipe is None or self._reason:
            return None
        frame = self._pipe.take()
        if self._pipe.room_wanted:
            self._call()
        return frame

    @property
    def is_unread(self) -> bool:
        """Whether the other side still uses the link, and has not taken all frames yet."""
        return self._pipe is not None and not self._reason and self._pipe.is_unread

    def ready(self) -> bool:
        """Returns whether there is something to do: a frame or the end to take, or room that the last `put` missed."""
        return self._pipe is not None and not self._reason and self._pipe.ready()

    def inlet(self, takers: list[FrameTaker | None], peer: Hashable) -> SourceInlet | None:
        """Returns what takes the frames of the other side in compiled code; None before the link is open.

        Args:
            takers: of messages of each kind.
            peer: what they get with each message.
        """
        return None if self._pipe is None or self.broken else SourceInlet(self._pipe, takers, peer, self._call)

    def close(self) -> None:
        """Ends the link for both sides, and calls the other one."""
        if self._pipe is not None and not self._reason:
            self._pipe.close()
            self._call()
        self._end("the link is closed")

    def abandon(self) -> None:
        """Ends the use of the link without a word to the other side; for a child process after a fork."""
        if self._pipe is not None:
            self._pipe.abandon()
        self._end("the link belongs to the parent process")

    def _end(self, reason: str) -> None:
        self._reason = self.broken or reason


class ReceiverPipeLink(PipeLink):
    """The link of a receiving context to the source of a session that it has joined by its ring.

    Its user calls `request` once, then `attend` whenever the context's doorbell brought a CALL, until `is_open`; a
    spinning context may call it in each turn. After that, it takes frames and flushes when the link is `ready`. When it
    has shown that it sleeps (SYNC park), it asks `ready` again, as it looks at its rings, and sleeps only if no link is
    ready. A spinning context lets a `Poller` watch `inlet`, and flushes in each turn while frames wait for room. The
    context closes the link before it leaves the session.
    """

    def __init__(
        self,
        domain: str,
        advert: SessionAdvert,
        channel: JoinedChannel,
        owner_uid: int,
        checkpoint: Callable[[str], None] = no_checkpoint,
    ) -> None:
        """Makes a link without a pipe.

        Args:
            domain: the bus domain.
            advert: the session.
            channel: the joined ring and its slot.
            owner_uid: the user of the source.
            checkpoint: for tests; called with the name of each step after the step.
        """
        super().__init__(self._call_source)
        self._domain, self._advert, self._owner_uid = domain, advert, owner_uid
        self._words = SharedWords(channel.control)
        self._slot, self._generation = channel.index, channel.slots.generation(channel.index)
        self._bit = 1 << channel.index
        self._at = channel.slots.offset(channel.index) + CHANNEL
        self._checkpoint = checkpoint
        self._ringer: DoorbellRinger | None = None

    def request(self) -> None:
        """Asks the source for a pipe, unless one is being made; after a refusal or an end, a new link asks again."""
        word = self._words.load64(self._at)
        # A pipe that is open was that of a link before this one.
        if word & STATE_MASK not in (CHANNEL_WANTED, CHANNEL_READY):
            wanted = channel_word(self._generation, CHANNEL_WANTED)
            if self._words.cas64(self._at, word, wanted):
                self._checkpoint("request: wanted")
                self._call_source()
                self._checkpoint("request: called")
        self.attend()

    def attend(self) -> bool:
        """Maps the pipe if the source has made it; returns whether the link is open."""
        if self._pipe is not None or self._reason:
            return self._pipe is not None
        word = self._words.load64(self._at)
        state, number = word & STATE_MASK, word >> CHANNEL_NUMBER_SHIFT & (NUMBERS - 1)
        if word != channel_word(self._generation, state, number) or state == CHANNEL_REFUSED:
            if word:
                self._end("the source has refused the control channel")
            return False
        if state == CHANNEL_READY:
            self._join(word, number)
        return self._pipe is not None

    def response_writer(self, channel: ControlChannel, pump: Pump) -> ResponseWriter | None:
        """Returns the short way for responses; None while the link is not open.

        Args:
            channel: the control channel over this link.
            pump: says which thread drives the context.
        """
        if self._pipe is None:
            return None
        return ResponseWriter(
            *(self._pipe, self._words, CALLS, PARKED, self._bit, self._ring, channel.urgent, pump, channel.frame_max)
        )

    def close(self) -> None:
        """Ends the link for both sides, and calls the source."""
        super().close()
        self._silence()

    def abandon(self) -> None:
        """Ends the use of the link without a word to the source; for a child process after a fork."""
        super().abandon()
        self._silence()

    def _join(self, word: int, number: int) -> None:
        try:
            pipe = join_pipe(
                object_names.pipe(self._domain, self._advert.context_id, number),
                session_id=self._advert.session_id,
                slot=self._slot,
                generation=self._generation,
                owner_uid=self._owner_uid,
            )
        except (RingError, OSError) as error:
            self._end(f"the pipe of the source cannot be used: {error}")
            return
        self._checkpoint("attend: mapped")
        if self._words.cas64(self._at, word, channel_word(self._generation, CHANNEL_OPEN, number)):
            self._pipe = pipe
            self._checkpoint("attend: open")
            self._call_source()

    def _call_source(self) -> None:
        bit = self._bit
        was = self._words.or64(CALLS, bit)  # SYNC call
        # If the bit was set, this receiver has called already and the source has not looked since.
        if not was & bit and self._words.load32(PARKED):  # SYNC call
            self._ring()

    def _ring(self) -> None:
        with suppress(OSError, RingError):
            if self._ringer is None:
                self._ringer = DoorbellRinger(object_names.bell(self._domain, self._advert.context_id))
            self._ringer.ring(FRAMES)

    def _silence(self) -> None:
        ringer, self._ringer = self._ringer, None
        if ringer is not None:
            ringer.close()
