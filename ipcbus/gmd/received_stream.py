"""How far a named receiver is with the messages of one sender and incarnation, beyond the end of a session.

Each number is in one of these states::

    done        acknowledged by the application, or released by the source: the area records these numbers;
                or settled, which means that the source has nothing for this receiver now: the source is asked again
                when the receiver registers again
    taken       below `next_number`, and in none of the other sets: the application has it and has not acknowledged it
    hole        below `next_number`: the receiver went on without it, and takes it when the source sends it again
    to come     from `next_number` on
"""

from __future__ import annotations

from contextlib import suppress
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from ipcbus.errors import GmdError
from ipcbus.gmd.acknowledged_floor import AcknowledgedFloor
from ipcbus.wire.control_messages import NUMBER_MAX
from ipcbus.wire.number_ranges import NumberRanges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ipcbus.gmd.gmd_settings import ReceiverSettings
    from ipcbus.gmd.receiver_area import ReceiverArea

_OPENINGS_MAX = 16
_RANGES_MAX = 4096


class Gate(Protocol):
    """Lets messages pass in order, without the machine."""

    is_open: bool
    """Whether messages may pass."""
    next_number: int
    """The number that may pass next; counted up by the gate while it is open. Lower ones may be acknowledged."""


class StreamUser(Protocol):
    """What delivers the messages of a stream now."""

    def detach(self) -> None:
        """Stops delivering, because another session of the sender goes on with the stream."""

    def look_at_gate(self) -> None:
        """Takes over how far the gate is."""

    def update_gate(self) -> None:
        """Opens or closes the gate as the state of the stream says."""


class Withholding(Protocol):
    """What was lost in a session that is over, as long as it may come again."""

    @property
    def opening(self) -> int:
        """The opening of the sender's area by the source of that session."""

    def cover(self, opening: int, first: int, last: int) -> None:
        """Takes note that a message which was sent again had these topic numbers in an opening."""

    def report_losses(self) -> bool:
        """Reports what did not come again; returns whether more losses of the session may be found."""


class ReceivedStream:
    """The state of one sender and incarnation at a receiver."""

    def __init__(self, sender: str, incarnation: int, area: ReceiverArea, settings: ReceiverSettings) -> None:
        """Begins with what the receiver's area has."""
        self.sender, self.incarnation = sender, incarnation
        self._area, self._settings = area, settings
        known = area.known(sender, incarnation)
        self.acknowledged = NumberRanges([(0, known.floor), *known.ranges])
        """The numbers that the area records, always with 0."""
        self.settled = NumberRanges()
        """Other numbers that the source says it has not for this receiver."""
        self.done = NumberRanges(self.acknowledged)
        """Both of them."""
        self.missed = NumberRanges()
        """Done numbers that the application did not get: the source released them, or had nothing for this receiver."""
        self.holes = NumberRanges()
        self.next_number = known.floor + 1
        """The next number in order."""
        self.to_acknowledge = NumberRanges()
        """Done messages of which the source gets an acknowledgement next."""
        self.to_refuse: list[int] = []
        """Messages that are given up, of which the source is informed next."""
        self.ordered = AcknowledgedFloor(area.record, sender, incarnation)
        """Takes acknowledgements that come in order; `take_over` ends its work."""
        self.opening: int | None = None
        """The opening of the sender's area by the newest source that there was; None before the first one."""
        self.withholding: list[Withholding] = []
        """Earlier users whose losses may come again."""
        self.came_again: dict[int, NumberRanges] = {}
        """Topic numbers of messages that were sent again, by the newest openings that have sent them first."""
        self.user: StreamUser | None = None
        """What delivers the messages now."""
        self.user_order = 0
        """The `order` of the newest user that there was."""
        self.failing = ""
        """Why the area cannot record; empty while it can."""
        self._unrecorded = 0
        self._is_dirty = False
        self._refusals: dict[int, int] = {}
        self._retries: list[tuple[int, int]] = []

    # ------------------------------------------------------------------ what the application does

    def acknowledge(self, first: int, last: int) -> None:
        """Takes note that the application has acknowledged messages; it records them if too many are unrecorded.

        Args:
            first: first number.
            last: last number; numbers that were not delivered, or that are done already, are skipped.
        """
        if self.user is not None:
            self.user.look_at_gate()
        last = min(last, self.next_number - 1)
        if self.ordered.take(first, last):
            if self.ordered.floor - self.ordered.recorded >= self._settings.unrecorded_max:
                self.record()
            return
        self.take_over()
        for begin, end in self.acknowledged.without(first, last):
            self._unrecorded += end - begin + 1
            self.to_acknowledge.add(begin, end)
            self._add_acknowledged(begin, end)
        if self._unrecorded >= self._settings.unrecorded_max:
            self.record()

    def refuse(self, number: int, delay_ns: int, now_ns: int) -> bool:
        """Takes note that the application could not process a message; it is delivered again after a backoff.

        Args:
            number: the GMD number; one that the application does not have is skipped.
            delay_ns: the shortest time to the next delivery.
            now_ns: the time.

        Returns:
            False if the receiver gives the message up, as it was delivered often enough.
        """
        if self.user is not None:
            self.user.look_at_gate()
        self.take_over()
        if number >= self.next_number or number in self.done or number in self.holes:
            return True
        settings = self._settings
        deliveries = self._refusals[number] = self._refusals.get(number, 0) + 1
        self.holes.add(number, number)
        if settings.deliveries_max and deliveries >= settings.deliveries_max:
            del self._refusals[number]
            self.to_refuse.append(number)
            return False
        backoff_ns = min(settings.backoff_ns << min(deliveries - 1, 32), settings.backoff_max_ns)
        heappush(self._retries, (now_ns + max(delay_ns, backoff_ns), number))
        return True

    # ------------------------------------------------------------------ acknowledgements in order

    def go_on_in_order(self) -> None:
        """Leaves acknowledgements to `ordered`, if nothing but the next ones is open."""
        is_busy = self._is_dirty or self.failing or self._refusals or self._retries or self.to_refuse
        has_gaps = self.settled or self.holes or self.to_acknowledge or len(self.acknowledged) > 1
        if not (self.ordered.is_ready or is_busy or has_gaps):
            self.ordered.begin(self.acknowledged.front[1])

    def take_over(self) -> None:
        """Ends the work of `ordered`, and takes its state over."""
        ordered = self.ordered
        if not ordered.is_ready:
            return
        ordered.pause()
        known = self.acknowledged.front[1]
        if ordered.floor > known:
            self.acknowledged.add(known + 1, ordered.floor)
            self.done.add(known + 1, ordered.floor)
        self._unrecorded = ordered.floor - ordered.recorded
        self._is_dirty = self._unrecorded > 0
        if ordered.sent < ordered.floor:
            self.to_acknowledge.add(ordered.sent + 1, ordered.floor)
            ordered.sent = ordered.floor

    # ------------------------------------------------------------------ numbers

    def _add_acknowledged(self, first: int, last: int) -> None:
        self.acknowledged.add(first, last)
        self.done.add(first, last)
        if self.settled:
            self.settled.remove(first, last)
        self._remove_holes(first, last)
        self._is_dirty = True

    def _remove_holes(self, first: int, last: int) -> None:
        if self.holes:
            self.holes.remove(first, last)
        if self._refusals:
            for number in [each for each in self._refusals if first <= each <= last]:
                del self._refusals[number]

    def drop_below(self, number: int) -> None:
        """Treats all numbers below this one as acknowledged: the source has released them."""
        if self.acknowledged.without(0, number - 1):
            self._miss(self.holes.within(0, number - 1))
            self._miss(self.done.without(self.next_number, number - 1))
            self._add_acknowledged(0, number - 1)
            self.skip_done()

    def _miss(self, parts: Iterable[tuple[int, int]]) -> None:
        for first, last in list(parts):
            self.missed.add(first, last)
        if len(self.missed) > _RANGES_MAX:
            self.missed.drop_below(self.missed.front[1] + 1)

    def settle(self, first: int, last: int) -> None:
        """Takes note that the source has nothing for this receiver; what the application has stays with it.

        Args:
            first: the first number.
            last: the last number; nothing happens if it is lower.
        """
        if first > last:
            return
        parts = [*self.holes.within(first, min(last, self.next_number - 1))]
        if last >= self.next_number:
            parts += self.done.without(max(first, self.next_number), last)
        self._miss(parts)
        for begin, end in parts:
            self.settled.add(begin, end)
            self.done.add(begin, end)
            self._remove_holes(begin, end)
        self.skip_done()

    def unsettle(self, first: int, last: int) -> None:
        """Takes note that the source may have messages that were settled."""
        for begin, end in self.settled.within(first, last):
            self.settled.remove(begin, end)
            self.done.remove(begin, end)
            self.missed.remove(begin, end)
            if begin < self.next_number:
                self.holes.add(begin, min(end, self.next_number - 1))

    def skip_done(self) -> None:
        """Steps over numbers that are done."""
        self.next_number = self.done.behind(self.next_number)

    def pass_over(self, following: int) -> None:
        """Goes on at a number; those before it that are not done are holes."""
        for first, last in self.done.without(self.next_number, following - 1):
            self.holes.add(first, last)
        self.next_number = max(self.next_number, following)
        self.skip_done()

    def go_back(self, number: int) -> None:
        """Makes a number the next one again: it was not delivered."""
        self.next_number = min(self.next_number, number)
        self.holes.remove(self.next_number, NUMBER_MAX)
        self.skip_done()

    def begin_again_at(self, number: int) -> None:
        """Forgets what is known of a number and those after it: the source has not given them yet.

        That is so when an older copy of the source's area was put back, which gives their numbers again.
        """
        self.unsettle(0, NUMBER_MAX)
        if self.acknowledged.highest >= number:
            self.acknowledged.remove(number, NUMBER_MAX)
            self.done.remove(number, NUMBER_MAX)
            self.missed.remove(number, NUMBER_MAX)
            self._is_dirty = True
        self.go_back(number)

    def cover(self, opening: int, first: int, last: int) -> None:
        """Takes note that a message which was sent again had these topic numbers in an opening."""
        came = self.came_again.setdefault(opening, NumberRanges())
        came.add(first, last)
        if len(came) > _RANGES_MAX:
            came.drop_below(came.front[1] + 1)
        if len(self.came_again) > _OPENINGS_MAX:
            del self.came_again[next(iter(self.came_again))]
        for each in self.withholding:
            each.cover(opening, first, last)

    def withhold(self, user: Withholding) -> None:
        """Has the losses of a user whose session is over wait for messages that may come again."""
        for part in self.came_again.get(user.opening, ()):
            user.cover(user.opening, *part)
        self.withholding.append(user)

    def report_losses(self) -> None:
        """Has what was lost in earlier sessions, and did not come again, reported."""
        waiting, self.withholding = self.withholding, []
        self.withholding += [each for each in waiting if each.report_losses()]

    def wanted_holes(self) -> Iterator[tuple[int, int]]:
        """Yields the holes that do not wait for the end of a backoff."""
        waiting = NumberRanges((number, number) for _, number in self._retries)
        for first, last in list(self.holes):
            yield from waiting.without(first, last)

    def take_retries(self, now_ns: int) -> Iterator[int]:
        """Yields the numbers of refused messages that are to be delivered again now."""
        while self._retries and self._retries[0][0] <= now_ns:
            number = heappop(self._retries)[1]
            if number in self.holes:
                yield number

    @property
    def retry_ns(self) -> int | None:
        """When `take_retries` has something; None for never."""
        return self._retries[0][0] if self._retries else None

    # ------------------------------------------------------------------ the area

    def record(self) -> bool:
        """Records what is done; returns False if the area refuses, so that nothing new may be acknowledged."""
        if self.ordered.is_ready:
            with suppress(GmdError):
                self.ordered.record()
                return True
        self.take_over()
        if not self._is_dirty:
            return not self.failing
        first, *ranges = self.acknowledged
        was_failing = self.failing
        try:
            self._area.record(self.sender, self.incarnation, first[1], ranges)
            self.failing = ""
            self._is_dirty, self._unrecorded = False, 0
        except GmdError as error:
            self.failing = str(error)
        if self.user is not None and self.failing != was_failing:
            self.user.update_gate()
        return not self.failing


class ReceivedStreams:
    """The streams of one named receiver; its sessions share them."""

    def __init__(self, area: ReceiverArea, settings: ReceiverSettings) -> None:
        """Begins with the receiver's area, just opened."""
        self._area, self._settings = area, settings
        self._streams: dict[tuple[str, int], ReceivedStream] = {}
        self._users = 0
        self.unregistered: list[Withholding] = []
        """Earlier users whose source ended before it had registered them: no message of their stream has come again."""

    def next_order(self) -> int:
        """Returns the order of a new user: a session that began later has a higher one."""
        self._users += 1
        return self._users

    def of(self, sender: str, incarnation: int) -> ReceivedStream:
        """Returns the stream of a sender and incarnation."""
        found = self._streams.get((sender, incarnation))
        if found is None:
            found = ReceivedStream(sender, incarnation, self._area, self._settings)
            self._streams[sender, incarnation] = found
        return found

    def adopt(self, stream: ReceivedStream, opening: int) -> None:
        """Takes note that an opening belongs to a stream: that of earlier users whose stream was not known, too."""
        for each in [each for each in self.unregistered if each.opening == opening]:
            self.unregistered.remove(each)
            stream.withhold(each)

    def withhold(self, user: Withholding) -> None:
        """As `ReceivedStream.withhold`, for a user that was never registered."""
        stream = next((each for each in self._streams.values() if user.opening in each.came_again), None)
        if stream is None:
            self.unregistered.append(user)
        else:
            stream.withhold(user)

    def failing(self) -> Iterator[str]:
        """Yields why streams cannot be recorded."""
        return (stream.failing for stream in list(self._streams.values()) if stream.failing)

    def record(self) -> bool:
        """Records what is done in all streams, before the receiver closes; returns False if the area refuses."""
        return all([stream.record() for stream in self._streams.values()])
