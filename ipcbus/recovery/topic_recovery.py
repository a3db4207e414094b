"""What a receiving context asks the source of one topic for, and when: late join and off-transport recovery.

A late join begins with INFO_REQUESTs until the source says what it keeps. Then, as in off-transport recovery, the
missing numbers are asked for in RANGE_REQUESTs, oldest first, a few at a time. What no answer comes for is asked for
again; when no answer comes at all, the recovery ends, and what is missing is lost.

The calls (`transport.topic_catch_up.TopicCatchUp` makes them for a session):

- `begin_late_join` before the topic's first message is read, or nothing for off-transport recovery alone;
- `missing` when the delivery controller has found a gap (its `on_missing`);
- `channel_ready` when a control channel to the source is made, `channel_lost` when it is broken;
- `info` and `retransmitted` for the source's answers, the second when their messages are delivered;
- `work` after each of these calls, when the channel has room again, and at `due_ns`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ipcbus.wire import control_messages
from ipcbus.wire.control_messages import NUMBER_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipcbus.recovery.recovery_settings import RecoverySettings, RequestTerms
    from ipcbus.wire.control_messages import Info


_FLOOR_NS = 5_000_000
"""Time in ns between two looks for the number of the first live message, which comes from the source over UDP."""


class Target(Protocol):
    """What the recovery is for: a delivery controller."""

    skips_live: bool
    """Whether too many live messages wait, so that they are skipped, and asked for as the missing ones."""
    relieved: int
    """How often messages that waited were dropped because the context had buffered too much; they are missing again."""

    @property
    def live_floor(self) -> int | None:
        """The number of the first live message that its receivers get; None while that is not known."""

    @property
    def is_promised(self) -> bool:
        """Whether it does not wait for the source to say how much it keeps."""

    @property
    def joins_late(self) -> bool:
        """Whether a late join is not over yet."""

    def begin_late_join(self, now_ns: int) -> None:
        """Waits for the messages from before the receivers joined."""

    def promise(self, first: int, next_sequence: int, now_ns: int) -> None:
        """Takes note that the source keeps the messages from `first` on, and published those below `next_sequence`."""

    def missing(self, first: int = 0) -> Iterator[tuple[int, int]]:
        """Yields the ranges of numbers from `first` on that a recovery has to bring, ascending."""

    def end_recovery(self, now_ns: int) -> None:
        """Goes on without what was not brought."""


@dataclass(slots=True, order=True)
class _Request:
    """A request that waits for its answer."""

    first: int
    last: int = field(compare=False)
    since_ns: int = field(compare=False)
    """When it was asked, or when the source last answered for a number before it."""
    interval_ns: int = field(compare=False)


class TopicRecovery:
    """Asks for the missing messages of one topic. Bytes and times in, bytes out."""

    def __init__(
        self,
        topic: int,
        target: Target,
        settings: RecoverySettings,
        *,
        asks_at_once: bool,
        number: int = 0,
        give_up: Callable[[int], None] | None = None,
    ) -> None:
        """Makes a recovery that asks for nothing yet.

        Args:
            topic: the session's number of the topic.
            target: gets what the source says, and says what is missing.
            settings: options of the receivers.
            asks_at_once: whether there is no reason to wait before the first request for a gap: the transport itself
                sends nothing again (rings).
            number: tells the source's answer to this recovery from those to others on the same channel.
            give_up: called with the time when the source answers nothing; None: the target goes on without what is
                missing.
        """
        self.topic, self._number = topic, number
        self._give_up = target.end_recovery if give_up is None else give_up
        self._target, self._settings = target, settings
        self.asks_at_once = asks_at_once
        self._requests: list[_Request] = []
        self._noted: deque[tuple[int, int]] = deque()  # numbers below the first may be asked for from the second on
        self._askable = 0
        self._info_due_ns = self._info_until_ns = self._floor_until_ns = 0
        self._answered_ns = 0  # when the last answer came, or since when the source could answer
        self._held_ns = 0  # when a receiver last had no room
        self._relieved, self._alone_until_ns = target.relieved, 0  # until then one request at a time
        self._idle = True
        self._refused = False  # by the channel, which has no room
        self.asks_from, self.asks_below = 0, NUMBER_MAX
        """The source is asked for numbers from the first one on and below the second one."""
        self.requests_sent = 0
        """The requests that were sent, also those for information."""

    # ------------------------------------------------------------------ what happened

    def begin_late_join(self, now_ns: int, *, has_sent: bool = True) -> None:
        """Asks for what was sent before; `has_sent` says whether the source has sent anything, as far as is known."""
        self._target.begin_late_join(now_ns)
        if has_sent or self._settings.asks_silent_sources:
            self.ask_for_history(now_ns)
        else:
            self._target.end_recovery(now_ns)

    def ask_for_history(self, now_ns: int) -> None:
        """Asks what the source keeps, for a target that waits for it already."""
        settings = self._settings
        self._info_due_ns = now_ns
        self._info_until_ns = now_ns + settings.info_requests_max * settings.info_interval_ns
        self._floor_until_ns = now_ns + settings.info_interval_ns if settings.history is not None else 0
        if settings.history == 0:
            self._target.end_recovery(now_ns)

    def missing(self, first: int, last: int, now_ns: int) -> None:
        """Takes note of a gap."""
        delay_ns = 0 if self.asks_at_once else self._terms.initial_delay_ns
        self._noted.append((last + 1, now_ns + delay_ns))

    def awaits(self, found: Info) -> bool:
        """Returns whether an INFO answers this recovery, which waits for it."""
        return not self._target.is_promised and found.request == self._number

    def info(self, found: Info, now_ns: int) -> None:
        """Takes the source's promise, if it answers this recovery."""
        if not self.awaits(found):
            return
        self._answered_ns = now_ns
        self._target.promise(found.low, found.next, now_ns)

    def retransmitted(self, first: int, last: int, now_ns: int) -> None:
        """Takes note that the source has answered for these numbers: what it had was delivered, the rest given up."""
        if first > last:
            return
        self._answered_ns = now_ns
        requests, self._requests = self._requests, []
        for each in requests:
            if first < each.first:
                each.since_ns = now_ns  # its turn is still to come
            if last < each.first or first > each.last:
                self._requests.append(each)
                continue
            for begin, end in ((each.first, first - 1), (last + 1, each.last)):
                if begin <= end:
                    self._requests.append(_Request(begin, end, each.since_ns, each.interval_ns))

    def channel_ready(self, now_ns: int) -> None:
        """Asks on a new channel."""
        self.channel_lost(now_ns)

    def channel_lost(self, now_ns: int) -> None:
        """Forgets what was asked for on a channel that is broken; the next channel is asked for it."""
        self._requests.clear()
        self._info_due_ns = self._answered_ns = now_ns

    def hold(self, now_ns: int) -> None:
        """Takes note that a receiver has no room: what waits for it is not the source's delay."""
        self._held_ns = self._answered_ns = now_ns

    # ------------------------------------------------------------------ what to do

    def work(self, now_ns: int, send: Callable[[bytes], bool]) -> None:
        """Sends the requests that are due, and gives up what is overdue.

        Args:
            now_ns: the time.
            send: sends a control message; returns False when the channel has no room, or when there is no channel.
        """
        self._refused = False
        if not self._target.is_promised:
            self._ask_for_info(now_ns, send)
            return
        first = next(self._missing(), None)
        if first is None:
            self._requests.clear()
            self._noted.clear()
            self._idle = True
            return
        while self._noted and (self._noted[0][1] <= now_ns or self._target.skips_live):
            self._askable = max(self._askable, self._noted.popleft()[0])
        if not self._may_ask(first[0]):
            return
        if self._idle:
            self._idle, self._answered_ns = False, max(self._answered_ns, now_ns)
        if now_ns >= self._answered_ns + self._terms.timeout_ns:
            self._requests.clear()
            self._give_up(now_ns)
            return
        if self._ask_again(now_ns, send):
            self._ask_for_more(first[0], now_ns, send)

    @property
    def due_ns(self) -> int | None:
        """When `work` has to be called at the latest; None when there is nothing to wait for.

        After the channel had no room for a request, it has to be called also when there is room again.
        """
        if not self._target.is_promised:
            return self._info_until_ns if self._refused else min(self._info_due_ns, self._info_until_ns)
        first = next(self._missing(), None)
        if first is None:
            return None
        due = [self._noted[0][1]] if self._noted else []
        if self._may_ask(first[0]):
            if self._idle or not (self._requests or self._refused):
                return 0
            due.append(self._answered_ns + self._terms.timeout_ns)
            due += [self._due_again_ns(each) for each in self._requests if not self._refused]
            due += [self._alone_until_ns] if self._alone_until_ns and not self._refused else []
        return min(due, default=None)

    @property
    def requests(self) -> int:
        """The number of requests that wait for an answer."""
        return len(self._requests)

    def info_request(self) -> bytes:
        """Returns the question what the source keeps; it also shows the source that this recovery still runs."""
        # What is sent until the source answers is live, and does not count.
        return control_messages.info_request(self.topic, self._settings.history, self._target.live_floor, self._number)

    # ------------------------------------------------------------------ inside

    def _missing(self) -> Iterator[tuple[int, int]]:
        for first, last in self._target.missing(self.asks_from):
            if first >= self.asks_below:
                break
            yield first, min(last, self.asks_below - 1)

    @property
    def _terms(self) -> RequestTerms:
        return self._settings.late_join if self._target.joins_late else self._settings.otr

    @property
    def askable_last(self) -> int:
        """The highest number that it may ask for now: the transport may still bring the others."""
        if self.asks_at_once or self._target.joins_late or self._target.skips_live:
            return NUMBER_MAX
        return self._askable - 1

    def _may_ask(self, number: int) -> bool:
        """Returns whether a missing number may be asked for: its gap is old enough, or too many messages wait."""
        return number < self._askable or self._target.joins_late or self._target.skips_live

    def _due_again_ns(self, request: _Request) -> int:
        # What waits for room in a receiver is not the source's delay.
        return max(request.since_ns, self._held_ns) + request.interval_ns

    def _ask_for_info(self, now_ns: int, send: Callable[[bytes], bool]) -> None:
        if now_ns >= self._info_until_ns:
            self._give_up(now_ns)
        elif now_ns < self._floor_until_ns and self._target.live_floor is None:
            self._info_due_ns = now_ns + _FLOOR_NS  # a number of messages is counted from there
        elif now_ns >= self._info_due_ns and self._send(self.info_request(), send):
            self._info_due_ns = now_ns + self._settings.info_interval_ns

    def _ask_again(self, now_ns: int, send: Callable[[bytes], bool]) -> bool:
        """Repeats the requests that are due; returns whether the channel took them all."""
        for each in self._requests:
            if now_ns < self._due_again_ns(each):
                continue
            if not self._ask(each.first, each.last, send):
                return False
            each.since_ns = now_ns
            each.interval_ns = min(2 * each.interval_ns, self._terms.interval_max_ns)
        return True

    def _ask_for_more(self, first_missing: int, now_ns: int, send: Callable[[bytes], bool]) -> None:
        """Asks for missing numbers that were not asked for, the oldest first."""
        terms = self._terms
        if self._target.relieved != self._relieved:
            self._relieved, self._alone_until_ns = self._target.relieved, now_ns + terms.interval_ns
        if now_ns >= self._alone_until_ns:
            self._alone_until_ns = 0
        requests_max = 1 if self._alone_until_ns else terms.requests_max
        until = first_missing + terms.requests_max * terms.numbers_max
        for begin, last in self._missing():
            first = begin
            while first <= last:
                if len(self._requests) >= requests_max or first >= until or not self._may_ask(first):
                    return
                at = bisect_right(self._requests, first, key=lambda each: each.first)
                if at and first <= self._requests[at - 1].last:
                    first = self._requests[at - 1].last + 1
                    continue
                end = min(last, first + terms.numbers_max - 1, until - 1)
                if at < len(self._requests):
                    end = min(end, self._requests[at].first - 1)
                if not self._ask(first, end, send):
                    return
                insort(self._requests, _Request(first, end, now_ns, terms.interval_ns))
                first = end + 1

    def _ask(self, first: int, last: int, send: Callable[[bytes], bool]) -> bool:
        return self._send(control_messages.range_request(self.topic, first, last), send)

    def _send(self, message: bytes, send: Callable[[bytes], bool]) -> bool:
        self._refused = not send(message)
        self.requests_sent += not self._refused
        return not self._refused
