"""The datagrams of a session from its ring in shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ipcbus.resolution.local import object_names
from ipcbus.transport.ring.pipe_link import ReceiverPipeLink, no_checkpoint
from ipcbus.transport.ring.topic_lines import TopicLines, last_word, quiet_word
from ipcbus.wire import wire_layout
from ringbuf import segment
from ringbuf.channel import JoinedChannel, touch
from ringbuf.layout import CONTROL_HEADER, RECEIVER_PACED_EVICTS, RING_HEADER, SLOT, field_offset
from ringbuf.ring_errors import SegmentMismatch
from ringbuf.shared_words import SharedWords

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ipcbus.resolution.local.adverts import SessionAdvert
    from ringbuf.ring import RingReader
    from ringbuf.slots import Identity

_CLOSED = field_offset(RING_HEADER, "closed")
_NUMBERS_MAX = 1 << 62


class RingReceiver:
    """A reader of the ring of another context, or of this one (transport.datagram_source.DatagramSource)."""

    recovery_ns = 0
    layer, reason = "ring", ""
    catches_up = is_withdrawn = False
    counts_messages = True

    def __init__(
        self, domain: str, advert: SessionAdvert, identity: Identity, *, owner_uid: int, sample_every: int
    ) -> None:
        """Joins a session at the tail of its ring.

        Raises:
            ringbuf.ring_errors.RingError: as `JoinedChannel`.
        """
        self._advert = advert
        self._domain, self._owner_uid = domain, owner_uid
        ring = object_names.ring(domain, advert.context_id, advert.local)
        control = object_names.control(domain, advert.context_id, advert.local)
        self._channel = JoinedChannel(ring, control, identity, owner_uid=owner_uid, sample_every=sample_every)
        header = np.frombuffer(self._channel.ring.view(), RING_HEADER, 1)[0]
        lines = advert.topics_max
        control_header = np.frombuffer(self._channel.control.view(), CONTROL_HEADER, 1)[0]
        slots_end = int(control_header["slots_offset"]) + int(control_header["slots_max"]) * SLOT.itemsize
        fits = header["user_bytes"] >= lines * wire_layout.TOPIC_LINE.itemsize
        fits &= control_header["user_bytes"] >= 8 * lines and slots_end + 8 * lines <= self._channel.control.size
        if not fits or header["session_id"] != advert.session_id or lines < 1 or lines & (lines - 1):
            self._channel.leave()
            raise SegmentMismatch(
                f"{ring} is not the ring that the registry of its context describes; restart its source"
            )
        self.owner_pid = int(header["pid"])
        self.begun = self._channel.joined_at > 0
        self.evicts = int(header["pacing"]) == RECEIVER_PACED_EVICTS
        """Whether its source evicts receivers that keep it waiting."""
        self._published: dict[int, int] = {}
        self.lines = TopicLines(self._channel.ring, lines)
        self._header = SharedWords(self._channel.ring)
        self._control_words = SharedWords(self._channel.control)
        self._has_quiet_word = int(control_header["user_bytes"]) >= 8 * (lines + 1)

    def touch(self, maximum: int) -> None:
        """Touches the pages of a ring of at most `maximum` bytes."""
        touch(self._channel, maximum)

    def settling(self) -> Callable[[int], bool | None]:
        """Nothing that is missing in a ring comes later: the delivery controllers do not wait for it."""
        return lambda now_ns: None

    @property
    def reader(self) -> RingReader:
        """The reader of the session's ring."""
        return self._channel.reader

    @property
    def index(self) -> int:
        """The number of this context's slot."""
        return self._channel.index

    def control_link(self, checkpoint: Callable[[str], None] = no_checkpoint) -> ReceiverPipeLink:
        """Returns a new link to the source, without a pipe (`ReceiverPipeLink.request`); one at a time.

        Args:
            checkpoint: for tests; called with the name of each step after the step.
        """
        return ReceiverPipeLink(self._domain, self._advert, self._channel, self._owner_uid, checkpoint)

    def precedes(self, number: int, sequence: int) -> bool:
        """Returns False: nothing is left out of a ring."""
        del number, sequence
        return False

    def join_topic(self, number: int, begins: Callable[[int], object] | None = None) -> bool:
        """Shows the source that this context receives a topic; returns False when another topic has its line now."""
        del begins
        self._control_words.or64(self._topic_mask_offset(number), 1 << self.index)
        self._published[number] = self.published(number)
        return self.lines.carries(number)

    def leave_topic(self, number: int) -> None:
        """Shows the source that this context does not receive the topic any more."""
        self._published.pop(number, None)
        self._control_words.and64(self._topic_mask_offset(number), ~(1 << self.index) & 0xFFFFFFFFFFFFFFFF)

    def show_quiet(self, quiet: bool) -> None:
        """Shows the source whether this context sleeps through records: frames of its control channel wake it."""
        if self._has_quiet_word:
            at, bit = quiet_word(self._advert.topics_max), 1 << self.index
            if quiet:
                self._control_words.or64(at, bit)
            else:
                self._control_words.and64(at, ~bit & 0xFFFFFFFFFFFFFFFF)

    def floor(self, number: int) -> int | None:
        """Returns the number of the topic's next message."""
        return max(self.lines.numbers(number))

    def receives(self, number: int) -> bool:
        """As in `DatagramSource`; a reader of the ring gets what is written behind its position."""
        del number
        return True

    @property
    def refusal(self) -> str:
        """As in `DatagramSource`: a ring has slots, and no registration."""
        return ""

    def published(self, number: int) -> int:
        """Returns a number below which all messages of a topic are published; 0 when another topic has its line now."""
        published = self.lines.published(number)
        # A ring that is cut short may show zeros.
        return max(published, self._published.get(number, 0)) if self.reader.cut_short else published

    def at_end(self, number: int) -> int:
        """Returns the number of `published`, or the source's last word on the topic if its memory was cut short."""
        last = self._last_word(number) if self.reader.cut_short else 0
        return max(self.published(number), last - 1)

    def may_say_more(self) -> bool:
        """Returns whether the source lives and has not found yet that its memory was cut short."""
        has_said = self.closed or any(self._last_word(number) for number in self._published)
        return not has_said and self.owner_lives()

    def sequence_limit(self, number: int) -> int:
        """Returns a number above those of all messages of a topic that have been sent, by the source's counters."""
        end = max(self.lines.numbers(number))
        return end if self.lines.carries(number) else _NUMBERS_MAX

    def missed_messages(self) -> int:
        """Returns 0 unless this reader was overtaken."""
        return self.reader.overruns << 40

    def newest_arrival_ns(self) -> int:
        """Returns 0: a message that is missing in a ring never comes."""
        return 0

    def request_infos(self, silent: Collection[int], now_ns: int) -> None:
        """Asks nothing: the source shows in the ring how far each topic is."""

    def mark(self) -> Callable[[], bool]:
        """Returns a function that says whether all that is published now has been read."""
        tail = self.reader.tail
        return lambda: self.reader.position >= tail

    def take_lines(self, lines: object) -> None:
        """Does nothing: the ring is mapped."""

    @property
    def is_in_order(self) -> bool:
        """Returns True: a ring keeps the order in which its source has sent."""
        return True

    @property
    def stopped_at(self) -> int | None:
        """None: a ring is always read from the next datagram on."""
        return None

    def may_lose(self) -> bool:
        """Returns whether the source overtakes slow readers."""
        return self._advert.source_paced

    def note_withdrawn(self, *, died: bool = False) -> None:
        """Does nothing: the end mark of the ring, or the owner's lock, shows the end."""

    @property
    def for_good(self) -> bool:
        """Whether a session that is over cannot be joined again: always, as its ring has an end mark."""
        return True

    def life_signs(self) -> tuple[int, int]:
        """Returns the activity counter and the tail."""
        for memory in (self._channel.ring, self._channel.control):
            segment.cut_short(memory)  # noted in the mapping
        # Noted from time to time, in case the ring is cut short.
        self._published.update({number: self.published(number) for number in self._published})
        return self.reader.activity, self.reader.tail

    def owner_lock(self) -> tuple[int, int]:
        """Returns the descriptor and the byte of the lock that the source's context holds while it lives."""
        return self._channel.owner_lock()

    def owner_lives(self) -> bool:
        """Returns whether the source's context still holds its lock."""
        return self._channel.owner_lives()

    @property
    def closed(self) -> bool:
        """Whether the source has ended the session."""
        return self._header.load32(_CLOSED) != 0

    def counters(self) -> dict[str, int]:
        """Returns no counters: the slot has all of them."""
        return {}

    def leave(self) -> bool:
        """Gives the slot back; returns whether the source waits for an event."""
        return self._channel.leave()

    def abandon(self) -> None:
        """Closes descriptors only; for the child process after a fork."""
        self._channel.abandon()

    def _last_word(self, number: int) -> int:
        """Returns the source's last word on a topic (`wire_layout`), 0 before there is one."""
        return self._control_words.load64(last_word(self._channel.control.size, self._advert.topics_max, number))

    def _topic_mask_offset(self, number: int) -> int:
        return CONTROL_HEADER.itemsize + 8 * (number % self._advert.topics_max)
