"""A named receiver that is connected to a source now, with what goes to it: answers, resent messages, deletions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.errors import GmdAreaDamaged
from ipcbus.gmd.gmd_settings import FOREVER_NS
from ipcbus.wire import gmd_messages
from ipcbus.wire.gmd_messages import END_OF_ANSWER, MAY_COME_LATER, Ack, Leave, Nack, Register
from ipcbus.wire.number_ranges import NumberRanges

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import TypeAlias

    from ipcbus.gmd.expected_names import ExpectedName
    from ipcbus.gmd.gmd_settings import SenderSettings
    from ipcbus.gmd.sender_area import PlaceRun, SavedMessage, SenderArea
    from ipcbus.wire.gmd_messages import GmdRequest, ResendRequest

    Detail: TypeAlias = Callable[[int, int], int]
    SendControl: TypeAlias = Callable[[Hashable, bytes, bool], bool]
    """Sends a control message to a peer; with True as third argument it gives way to other messages. Returns False when
    the channel has no room, or when there is no channel."""

_DELETES_MAX = 1024


@dataclass(slots=True)
class _Asked:
    first: int
    last: int
    bytes_left: int


class RegisteredReceiver:
    """A connected receiver."""

    def __init__(self, peer: Hashable, topic: int, instance: int, name: ExpectedName, probe_at_ns: int) -> None:
        """Begins with nothing to send.

        Args:
            peer: names the control channel.
            topic: the session's number of the topic.
            instance: the random number of the receiver.
            name: its name.
            probe_at_ns: when the source says how far the numbers are, unless it acknowledges messages.
        """
        self.peer, self.topic, self.instance, self.name = peer, topic, instance, name
        self.probe_at_ns, self.probe_interval_ns = probe_at_ns, 0
        self.deletes = NumberRanges()
        """Messages of which it has not been informed that they are deleted."""
        self.answers: deque[bytes] = deque()
        """Short messages that go to it next."""
        self._asked: _Asked | None = None
        self._waiting: tuple[bytes, int] | None = None

    @property
    def has_work(self) -> bool:
        """Whether something has to go to it."""
        return bool(self.answers or self._waiting or self.deletes or self._asked)

    def is_silent(self, settings: SenderSettings, now_ns: int, *, owes: bool) -> bool:
        """Returns whether it has been silent for too long, once for each interval; the intervals grow.

        Args:
            settings: the options of the source.
            now_ns: the time.
            owes: whether it has messages to acknowledge.
        """
        if not owes:
            self.probe_at_ns = FOREVER_NS
        elif self.probe_at_ns == FOREVER_NS:
            self.probe_at_ns, self.probe_interval_ns = now_ns + settings.probe_ns, 0
        elif now_ns >= self.probe_at_ns:
            self.probe_interval_ns = max(settings.probe_ns, min(2 * self.probe_interval_ns, settings.probe_max_ns))
            self.probe_at_ns = now_ns + self.probe_interval_ns
            return True
        return False

    def ask(self, request: ResendRequest, last_number: int) -> None:
        """Takes a request; it replaces the one before."""
        last = last_number if request.last is None else min(request.last, last_number)
        self._asked = _Asked(request.first, last, max(1, request.bytes_max))

    def step(self, area: SenderArea, settings: SenderSettings, build: ResentBuilder, send: SendControl) -> int | None:
        """Sends the next message; returns the bytes of messages in it, or None when the channel has no room.

        All of them take the same lane, because each one says what is so after those before it.
        """
        if self._waiting is None:
            self._waiting = self._next_answer(area) or self._next(settings, build)
            if self._waiting is None:
                return 0
        message, size = self._waiting
        if not send(self.peer, message, True):
            return None
        self._waiting = None
        return size

    def _next_answer(self, area: SenderArea) -> tuple[bytes, int] | None:
        if self.answers:
            return self.answers.popleft(), 0
        if self.deletes:
            ranges = [part for part, _ in zip(self.deletes, range(_DELETES_MAX), strict=False)]
            self.deletes.drop_below(ranges[-1][1] + 1)
            return gmd_messages.delete(self.topic, self.instance, area.incarnation, ranges), 0
        return None

    def _next(self, settings: SenderSettings, build: ResentBuilder) -> tuple[bytes, int] | None:
        """Takes the next numbers from what is asked for, and returns their messages as a GMD_RESENT."""
        asked = self._asked
        if asked is None:
            return None

        def detail(following: int, size: int) -> int:
            return END_OF_ANSWER if following > asked.last or size >= asked.bytes_left else 0

        limit = min(asked.bytes_left, settings.piece_bytes)
        message, following, size = build(self, asked.first, asked.last, limit, detail)
        asked.bytes_left -= size
        if following > asked.last or asked.bytes_left <= 0:
            self._asked = None
        else:
            asked.first = following
        return message, size


def may_be_said(message: GmdRequest, area: SenderArea) -> bool:
    """Returns whether a registered receiver may say this: of this incarnation, and of numbers that were given."""
    if isinstance(message, Leave | Register):
        return True
    heard = message.ranges[-1][1] if isinstance(message, Ack) else message.number if isinstance(message, Nack) else 0
    return message.incarnation == area.incarnation and heard <= area.last_number


def whole_copy(area: SenderArea, number: int) -> SavedMessage | None:
    """Returns the copy of a message; None if it is released or damaged."""
    try:
        return area.load(number)
    except GmdAreaDamaged:
        return None


class ResentBuilder:
    """Makes GMD_RESENT messages from the copies of an area."""

    def __init__(
        self,
        area: SenderArea,
        place_run: PlaceRun,
        damaged: Callable[[int], object],
    ) -> None:
        """Makes a builder.

        Args:
            area: has the copies.
            place_run: returns where a message stood in its topic.
            damaged: gets the number of each damaged copy.
        """
        self._area, self._place_run, self._damaged = area, place_run, damaged
        self.messages = 0
        """Messages that were sent again."""
        self.bytes = 0
        """Their bytes."""

    def __call__(
        self, receiver: RegisteredReceiver, first: int, last: int, bytes_max: int, detail: Detail
    ) -> tuple[bytes, int, int]:
        """Makes the GMD_RESENT for the first numbers of a range.

        Args:
            receiver: it goes to this receiver, with the messages that it has yet to acknowledge.
            first: the first number.
            last: the last number; the range may be empty.
            bytes_max: about as many bytes of messages.
            detail: returns the bits of its detail from the number behind it and the bytes of its messages.

        Returns:
            The message, the number behind it, and the bytes of its messages.
        """
        name, entries, size, bits = receiver.name, list[bytes](), 0, 0
        following = max(first, last + 1)
        later = name.failed_within(first, last) if name.failed else []
        if later and later[0][0] == first:
            following, bits = later[0][1] + 1, MAY_COME_LATER
        else:
            following = later[0][0] if later else following
            for begin, end in name.owed.within(first, following - 1):
                found, count, length, reached = self._load(begin, end, max(1, bytes_max - size))
                entries += found
                size += length
                self.messages += count
                if reached <= end or size >= bytes_max:
                    following = reached
                    break
        self.bytes += size
        bits |= detail(following, size)
        incarnation = self._area.incarnation
        message = gmd_messages.resent(receiver.topic, receiver.instance, incarnation, first, following, bits, entries)
        return message, following, size

    def _load(self, first: int, last: int, bytes_max: int) -> tuple[list[bytes], int, int, int]:
        """Returns entries of the first messages of a range; see `SenderArea.entries`."""
        try:
            return self._area.entries(first, last, bytes_max, self._place_run)
        except GmdAreaDamaged:
            self._damaged(first)
            return [], 0, 0, first + 1
