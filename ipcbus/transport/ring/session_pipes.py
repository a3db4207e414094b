"""The control channels of one ring session at its source: the receivers that have one, or ask for one."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from ipcbus.resolution.local import object_names
from ipcbus.transport.ring.frame_inlet import SessionInlet
from ipcbus.transport.ring.pipe_link import (
    CALLS,
    CHANNEL,
    NUMBERS,
    PARKED,
    STATE_MASK,
    PipeLink,
    channel_word,
    no_checkpoint,
)
from ringbuf import segment
from ringbuf.layout import (
    CHANNEL_GENERATION_SHIFT,
    CHANNEL_NONE,
    CHANNEL_OPEN,
    CHANNEL_READY,
    CHANNEL_REFUSED,
    CHANNEL_WANTED,
    CONTROL_HEADER,
    field_offset,
)
from ringbuf.pipe import create_pipe
from ringbuf.ring_errors import RingError
from ringbuf.shared_words import SharedWords

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.transport.sending_session import SendingSession
    from ringbuf.pipe import Pipe

log = logging.getLogger("ipcbus")

_NAMES_TRIED_MAX = 256
_PARKED_READERS = field_offset(CONTROL_HEADER, "parked")


class SourcePipeLink(PipeLink):
    """The link of a source to the receiver of one slot; `SessionPipes` makes and frees it."""

    def __init__(
        self, session: SendingSession, words: SharedWords, slot: int, generation: int, pipe: Pipe, name: str
    ) -> None:
        """Makes an open link; the name of its pipe still exists."""
        super().__init__(self.call_receiver)
        self._session, self._words = session, words
        self.slot, self.generation = slot, generation
        self._bit = 1 << slot
        self._pipe = pipe
        self.settled_word = 0
        """The channel word of the slot while the receiver has the pipe, and the name is removed."""
        self.name = name
        """The name of the pipe; empty when it is removed."""

    def remove_name(self) -> None:
        """Removes the name of the pipe, if it exists."""
        name, self.name = self.name, ""
        if name:
            with suppress(OSError):
                segment.remove(name)

    def call_receiver(self) -> None:
        """Wakes the receiver if it sleeps."""
        self._words.fence()  # SYNC park
        if self._words.load64(_PARKED_READERS) & self._bit:
            self._session.wake(self._bit)

    def end(self, reason: str) -> None:
        """Ends the link, as its receiver is gone or the session ends."""
        self.remove_name()
        self._end(reason)
        if self._pipe is not None:
            self._pipe.close()


class SessionPipes:
    """The control channels of one session at its source: one for each slot that has asked, or was opened.

    The context of the source calls

    * `look` when the doorbell was rung, and in each turn of a spinning loop, where it costs one load while no receiver
      calls (or lets a `Poller` watch `inlet`);
    * `arm(sleeps=True)` before a sleep, which must not begin if that returns False, and `arm(sleeps=False)` after the
      sleep, if the context also looks while it is awake;
    * `check` at each liveness check, after `SlotTable.reclaim`.

    All calls come from the thread that drives the context.
    """

    def __init__(
        self,
        session: SendingSession,
        *,
        queue_bytes: int,
        group: str = "",
        checkpoint: Callable[[str], None] = no_checkpoint,
    ) -> None:
        """Begins without a channel.

        Args:
            session: the session.
            queue_bytes: size of each of the two queues of a pipe, in bytes.
            group: system group that may use the session's objects too; empty for none.
            checkpoint: for tests; called with the name of each step after the step.
        """
        self._session = session
        self._queue_bytes, self._group = queue_bytes, group
        control = session.channel.control
        self._words = SharedWords(control)
        self._slots = session.channel.slots
        self._slots_mask = (1 << self._slots.slots_max) - 1
        self._channel_words = [self._slots.offset(slot) + CHANNEL for slot in range(self._slots.slots_max)]
        self.inlet = SessionInlet(self._words, CALLS, self._channel_words)
        """Takes short messages in compiled code; the word for a `Poller` that is not 0 while receivers call."""
        self._checkpoint = checkpoint
        self._links: dict[int, SourcePipeLink] = {}
        self.on_leave: Callable[[SourcePipeLink], object] = lambda link: None
        """Called before the link of a receiver that has left is ended: its last frames can still be taken."""
        self._warned = False

    @property
    def links(self) -> list[SourcePipeLink]:
        """The links of the receivers that have a control channel."""
        return list(self._links.values())

    def link(self, slot: int) -> SourcePipeLink | None:
        """Returns the link of the receiver that holds a slot now, if it has one."""
        link = self._links.get(slot)
        return link if link is not None and self._slots.holder(slot) == link.generation else None

    def opening(self) -> list[int]:
        """Returns the ids of the contexts that have asked for a channel, and do not have it yet."""
        found = []
        for slot in range(self._slots.slots_max):
            generation, word = self._slots.holder(slot), self._words.load64(self._at(slot))
            asked = word & STATE_MASK in (CHANNEL_WANTED, CHANNEL_READY)
            if asked and word >> CHANNEL_GENERATION_SHIFT == generation:
                found.append(self._slots.identity(slot).context_id)
        return found

    def arm(self, *, sleeps: bool) -> bool:
        """Shows receivers whether this context sleeps, so that they ring its doorbell.

        Args:
            sleeps: True before a sleep; False promises that the context looks without being woken.

        Returns:
            Whether no receiver calls, so that the context may sleep.
        """
        # SYNC call
        self._words.store32(PARKED, sleeps)
        self._words.fence()
        return self._words.load64(CALLS) == 0

    def look(self) -> list[SourcePipeLink]:
        """Answers the receivers that called; returns the links with frames, room again, or an end."""
        if not self._words.load64(CALLS):
            return []
        # A damaged word may have bits without a slot.
        calls = self._words.and64(CALLS, 0) & self._slots_mask
        found = []
        while calls:
            slot = (calls & -calls).bit_length() - 1
            calls &= calls - 1
            link = self._links.get(slot)
            if link is None or self._words.load64(self._at(slot)) != link.settled_word:
                link = self._answer(slot)
            if link is not None:
                found.append(link)
        return found

    def open(self, slot: int) -> SourcePipeLink | None:
        """Makes the channel of a slot before its receiver asks; returns its link, None when it cannot be made."""
        generation = self._slots.holder(slot)
        link = self.link(slot)
        if link is not None or generation is None:
            return link
        word = self._words.load64(self._at(slot))
        if word & STATE_MASK in (CHANNEL_NONE, CHANNEL_WANTED):
            self._make(slot, generation, word)
        return self.link(slot)

    def check(self) -> list[SourcePipeLink]:
        """Frees the channels of receivers that have gone, and answers calls that were lost.

        Returns:
            The links that were freed; they are broken.
        """
        gone = [link for link in self.links if link.broken or self._slots.holder(link.slot) != link.generation]
        for link in gone:
            self._free_left(link)
        for slot in range(self._slots.slots_max):
            if self._slots.holder(slot) is not None:
                self._answer(slot)
        return gone

    def close(self) -> None:
        """Ends all channels; the receivers find them broken."""
        for link in self.links:
            self._free(link, "the session is closed")

    def abandon(self) -> None:
        """Ends the use of all channels without a word to the receivers; for the child process after a fork."""
        for link in self.links:
            link.abandon()
            self.inlet.serve(link.slot, None, 0, None)
        self._links.clear()

    def _answer(self, slot: int) -> SourcePipeLink | None:
        """Does what the channel word of a slot asks for; returns the link of its receiver."""
        generation = self._slots.holder(slot)
        word = self._words.load64(self._at(slot))
        if generation is None or word >> CHANNEL_GENERATION_SHIFT != generation:
            return None
        state = word & STATE_MASK
        if state == CHANNEL_WANTED:
            self._make(slot, generation, word)
        link = self.link(slot)
        if state == CHANNEL_OPEN and link is not None and link.name:
            link.remove_name()
            link.settled_word = word
            self.inlet.serve(slot, link.pipe, word, link.call_receiver, id(link))
            self._checkpoint("look: name removed")
        return link

    def _make(self, slot: int, generation: int, word: int) -> None:
        """Makes the pipe of a slot, and answers its receiver."""
        before = self._links.get(slot)
        if before is not None:
            self._free_left(before)
        try:
            number, name, pipe = self._create(slot, generation)
        except (RingError, OSError) as error:
            self._warn(error)
            self._words.cas64(self._at(slot), word, channel_word(generation, CHANNEL_REFUSED))
            self._session.notify(slot)
            return
        link = SourcePipeLink(self._session, self._words, slot, generation, pipe, name)
        self._checkpoint("make: created")
        if not self._words.cas64(self._at(slot), word, channel_word(generation, CHANNEL_READY, number)):
            # The receiver has left, or asked at this moment: it calls again.
            link.end("the receiver has left the session")
            return
        self._links[slot] = link
        self._checkpoint("make: ready")
        self._session.notify(slot)
        self._checkpoint("make: notified")

    def _create(self, slot: int, generation: int) -> tuple[int, str, Pipe]:
        advert = self._session.advert
        first = (self._session.local * self._slots.slots_max + slot) % NUMBERS
        for number in (each % NUMBERS for each in range(first, first + _NAMES_TRIED_MAX)):
            name = object_names.pipe(self._session.domain, advert.context_id, number)
            # A name exists for a moment only: until both sides have mapped the pipe.
            with suppress(FileExistsError):
                pipe = create_pipe(
                    name,
                    queue_bytes=self._queue_bytes,
                    session_id=advert.session_id,
                    slot=slot,
                    generation=generation,
                    group=self._group,
                )
                return number, name, pipe
        raise FileExistsError(f"{_NAMES_TRIED_MAX} names of pipes from {first} on are taken; restart the receivers")

    def _free_left(self, link: SourcePipeLink) -> None:
        self.on_leave(link)
        self._free(link, "the receiver has left the session")

    def _free(self, link: SourcePipeLink, reason: str) -> None:
        link.end(reason)
        if self._links.get(link.slot) is link:
            del self._links[link.slot]
            self.inlet.serve(link.slot, None, 0, None)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "%s: a receiver gets no control channel, so that it recovers no messages: %s; more are not logged",
                self._session.source_string,
                error,
            )

    def _at(self, slot: int) -> int:
        return self._channel_words[slot]
