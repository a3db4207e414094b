"""A session whose ring this context reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ipcbus.resolution.local import object_names
from ipcbus.transport.ring.topic_lines import TopicLines
from ipcbus.wire import wire_layout
from ringbuf.channel import JoinedChannel
from ringbuf.layout import CONTROL_HEADER, RECEIVER_PACED_EVICTS, RING_HEADER
from ringbuf.ring_errors import SegmentMismatch
from ringbuf.shared_words import SharedWords

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.resolution.local.adverts import SessionAdvert
    from ringbuf.memory import Mapping
    from ringbuf.ring import RingReader
    from ringbuf.slots import Identity

_CLOSED = 192  # offset of RingHeader.closed
_NUMBERS_MAX = 1 << 62


class RingReceiver:
    """The ring and control block of another context, or the own one (transport.datagram_source.DatagramSource)."""

    recovery_ns = 0
    layer, reason = "ring", ""
    catches_up = False
    counted = True

    def __init__(self, domain: str, advert: SessionAdvert, who: Identity, *, owner_uid: int, sample_every: int) -> None:
        """Joins a session at its end.

        Raises:
            ringbuf.ring_errors.RingError: as `JoinedChannel`.
        """
        self._advert = advert
        ring = object_names.ring(domain, advert.context_id, advert.local)
        control = object_names.control(domain, advert.context_id, advert.local)
        self._channel = JoinedChannel(ring, control, who, owner_uid=owner_uid, sample_every=sample_every)
        header = np.frombuffer(self._channel.ring.view(), RING_HEADER, 1)[0]
        lines = advert.topics_max
        words = int(np.frombuffer(self._channel.control.view(), CONTROL_HEADER, 1)[0]["user_bytes"])
        fits = header["user_bytes"] >= lines * wire_layout.TOPIC_LINE.itemsize and words >= 8 * lines
        if not fits or header["session_id"] != advert.session_id or lines < 1 or lines & (lines - 1):
            self._channel.leave()
            raise SegmentMismatch(
                f"{ring} is not the ring that its registry describes; its owner is damaged, restart it"
            )
        self.owner_pid = int(header["pid"])
        self.begun = self._channel.joined_at > 0
        self.evicts = int(header["pacing"]) == RECEIVER_PACED_EVICTS
        """Whether its source evicts who keeps it waiting."""
        self._published: dict[int, int] = {}
        self.lines = TopicLines(self._channel.ring, lines)
        self._header = SharedWords(self._channel.ring)
        self._joined = SharedWords(self._channel.control)

    @property
    def reader(self) -> RingReader:
        """Of the session's ring."""
        return self._channel.reader

    @property
    def control(self) -> Mapping:
        """The session's control block."""
        return self._channel.control

    @property
    def index(self) -> int:
        """This context's slot."""
        return self._channel.index

    def join_topic(self, number: int, begins: Callable[[int], object] | None = None) -> bool:
        """Shows the source that this context receives a topic; False when another topic has its line now."""
        del begins
        self._joined.or64(self._word(number), 1 << self.index)
        self._published[number] = self.published(number)
        return self.lines.carries(number)

    def leave_topic(self, number: int) -> None:
        """Shows that it does not any more."""
        self._published.pop(number, None)
        self._joined.and64(self._word(number), ~(1 << self.index) & 0xFFFFFFFFFFFFFFFF)

    def floor(self, number: int) -> int | None:
        """Returns the number of the topic's next message."""
        return max(self.lines.numbers(number))

    def published(self, number: int) -> int:
        """Messages of a topic with numbers below this one are published; 0 when its line is another topic's now."""
        published = self.lines.published(number)
        # What was read of a ring that is cut short may be zeros.
        return self._published.get(number, 0) if self.reader.cut_short else published

    def at_end(self, number: int) -> int:
        """What the source says in the ring is always up to date."""
        return self.published(number)

    def numbers_end(self, number: int) -> int:
        """As the source's own counters say."""
        end = max(self.lines.numbers(number))
        return end if self.lines.carries(number) else _NUMBERS_MAX

    def missed(self) -> int:
        """Nothing, unless this reader was overtaken."""
        return self.reader.overruns << 40

    def came_ns(self) -> int:
        """Does not matter: what is missing in a ring never comes."""
        return 0

    def mark(self) -> Callable[[], bool]:
        """Says later whether everything that is published now has been read."""
        tail = self.reader.tail
        return lambda: self.reader.position >= tail

    def may_lose(self) -> bool:
        """Returns whether a slow reader is overtaken."""
        return self._advert.source_paced

    def withdrawn(self, *, died: bool = False) -> None:
        """It has been closed: its own end mark says when it is read to its end, or the lock of its owner."""

    @property
    def for_good(self) -> bool:
        """An end mark is one."""
        return True

    def signs(self) -> tuple[int, int]:
        """Returns the activity counter, and what is published."""
        # Noted now and then, for a ring that is cut short.
        self._published.update({number: self.published(number) for number in self._published})
        return self.reader.activity, self.reader.tail

    def owner_lives(self) -> bool:
        """Returns whether the source's context still holds its lock."""
        return self._channel.owner_lives()

    @property
    def closed(self) -> bool:
        """Whether the source has ended the session."""
        return self._header.load32(_CLOSED) != 0

    def counters(self) -> dict[str, int]:
        """Nothing beside what stands in the slot."""
        return {}

    def leave(self) -> bool:
        """Gives the slot back; True when the source waits for an event."""
        return self._channel.leave()

    def abandon(self) -> None:
        """Closes descriptors only; for a child after a fork."""
        self._channel.abandon()

    def _word(self, number: int) -> int:
        return CONTROL_HEADER.itemsize + 8 * (number % self._advert.topics_max)
