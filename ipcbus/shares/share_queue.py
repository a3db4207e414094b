"""One share of a source: which member gets which message. No I/O and no clock: bytes and times are passed in."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from ipcbus.shares.share_settings import FOREVER_NS, LostWork, ShareLoss, ShareStatistics
from ipcbus.wire import share_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ipcbus.shares.share_settings import ShareSettings
    from ipcbus.wire.work_entries import WorkMessage

MEMBERS_MAX = 1024
"""Most members of a share."""

_BACKOFF_NS = 10_000_000
_BACKOFF_MAX_NS = 1_000_000_000
_ROOM_NS = 1_000_000
"""Time in ns after which a channel without room is tried again."""
_WORK_BYTES = 1 << 16
"""A SHARE_WORK takes no further entry with more bytes than this, so that a member gets something to do soon."""


@dataclass(slots=True, eq=False)
class _Item:
    message: WorkMessage
    since_ns: int
    deliveries: int = 0
    deadline_ns: int = FOREVER_NS
    done: bool = False
    """Acknowledged or given up; it may still stand in a list."""
    is_suspect: bool = False
    """Whether it may have killed a member: then a member gets it alone, so that it takes no other messages with it."""


@dataclass(slots=True, eq=False)
class _Member:
    peer: Hashable
    instance: int
    context_id: int
    portion: int
    holds: dict[int, _Item] = field(default_factory=dict)
    """What is assigned to it, by number, the oldest assignment first."""
    late: dict[int, _Item] = field(default_factory=dict)
    """What was taken away from it, as it did not acknowledge in time; the member still has it."""
    turn: int = 0
    """When it got its last assignment; the longest time ago comes first."""
    has_room: bool = True

    @property
    def free(self) -> int:
        """How many messages it takes now."""
        return self.portion - len(self.holds) - len(self.late) if self.has_room and not self.has_suspect else 0

    @property
    def has_suspect(self) -> bool:
        """Whether it has a message that may kill it, and no other one."""
        return any(item.is_suspect for item in islice(self.holds.values(), 1))


class ShareQueue:
    """The messages of one share that are not acknowledged, and its members.

    Its user calls `add` with each message once, the methods for what members send, and `turn` after these calls.
    """

    def __init__(self, name: str, topic: int, settings: ShareSettings) -> None:
        """Begins without messages and members.

        Args:
            name: the name of the share.
            topic: the session's number of the topic.
            settings: the options of the source.
        """
        self.name, self._topic, self._settings = name, topic, settings
        self._fresh: deque[_Item] = deque()
        self._again: list[tuple[int, int, _Item]] = []  # a heap: not before this time, number
        self._members: dict[tuple[Hashable, int], _Member] = {}
        self._turns = 0
        self._pending_bytes = 0
        self._pending = self._consumed = self._reassigned = self._lost = self._dead_letters = 0
        self._reports: deque[LostWork] = deque()
        self.ignored = 0
        """Messages of members that are not registered, and of numbers that they do not have."""

    # ------------------------------------------------------------------ figures

    @property
    def pending(self) -> int:
        """The number of messages that are not acknowledged."""
        return self._pending

    @property
    def pending_bytes(self) -> int:
        """The bytes of these messages."""
        return self._pending_bytes

    @property
    def has_members(self) -> bool:
        """Whether a member is registered."""
        return bool(self._members)

    @property
    def members(self) -> list[int]:
        """The ids of the contexts of its members, one for each member."""
        return [member.context_id for member in list(self._members.values())]

    def statistics(self) -> ShareStatistics:
        """Returns its figures; any thread may call this."""
        members = list(self._members.values())
        in_flight = sum(not item.done for member in members for item in list(member.holds.values()))
        counts = self._consumed, self._reassigned, self._lost, self._dead_letters
        return ShareStatistics(len(members), self._pending, in_flight, *counts)

    # ------------------------------------------------------------------ what happens

    def add(self, messages: Iterable[WorkMessage], now_ns: int) -> None:
        """Takes messages that the source has sent."""
        for message in messages:
            if len(message.entry) > self._settings.entry_max:
                self.lose(message.first, message.last, ShareLoss.TOO_LONG)
            else:
                self._fresh.append(_Item(message, now_ns))
                self._pending += 1
                self._pending_bytes += len(message.entry)

    def lose(self, first: int, last: int, reason: ShareLoss, messages: int = 1) -> None:
        """Reports messages that the share does not get."""
        self._lost += messages
        self._reports.append(LostWork(self.name, first, last, reason))

    def join(self, peer: Hashable, instance: int, context_id: int, portion: int) -> int:
        """Registers a member; returns 0, or the reason of a refusal. A member that is registered stays as it is."""
        if (peer, instance) not in self._members:
            if len(self._members) >= MEMBERS_MAX:
                return share_messages.TOO_MANY_MEMBERS
            self._members[peer, instance] = _Member(peer, instance, context_id, portion)
        return share_messages.ACCEPTED

    def knows(self, peer: Hashable, instance: int) -> bool:
        """Returns whether a member is registered."""
        return (peer, instance) in self._members

    def leave(self, peer: Hashable, instance: int) -> None:
        """Assigns what a member has to others: it is closed."""
        member = self._members.pop((peer, instance), None)
        if member is None:
            self.ignored += 1
            return
        for item in member.holds.values():
            self._return(item, 0)

    def lost_peer(self, peer: Hashable) -> None:
        """Assigns what the members of a channel have to others: the channel has ended."""
        for known, instance in list(self._members):
            if known == peer:
                for item in self._members[known, instance].holds.values():
                    item.is_suspect = self._settings.deliveries_max > 0
                self.leave(peer, instance)

    def acknowledge(self, peer: Hashable, instance: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Takes acknowledgements of a member, also of messages that were taken away from it."""
        member = self._members.get((peer, instance))
        if member is None:
            self.ignored += 1
            return
        for first, last in ranges:
            for number in _numbers(member, first, last):
                item = member.holds.pop(number, None) or member.late.pop(number, None)
                if item is None:
                    self.ignored += 1
                elif not item.done:
                    self._finish(item)
                    self._consumed += 1

    def refuse(self, peer: Hashable, instance: int, number: int, delay_ns: int | None, now_ns: int) -> None:
        """Assigns a message that a member gives back again, after a time."""
        member = self._members.get((peer, instance))
        item = member.holds.pop(number, None) if member is not None else None
        if item is None:
            taken_away = member.late.pop(number, None) if member is not None else None
            self.ignored += taken_away is None
            return
        backoff = min(_BACKOFF_NS << min(item.deliveries - 1, 20), _BACKOFF_MAX_NS)
        self._return(item, now_ns + min(backoff if delay_ns is None else delay_ns, FOREVER_NS))

    def close(self) -> None:
        """Gives up what is not acknowledged; members may still have some of it."""
        held = [item for member in self._members.values() for item in member.holds.values()]
        for item in [*self._fresh, *(item for _, _, item in self._again), *held]:
            self._give_up(item, ShareLoss.CLOSED)
        self._fresh.clear()
        self._again.clear()
        self._members.clear()

    def next_report(self) -> LostWork | None:
        """Returns the next report of messages that were given up; None without one."""
        return self._reports.popleft() if self._reports else None

    # ------------------------------------------------------------------ by time

    def turn(self, now_ns: int, send: Callable[[Hashable, bytes], bool]) -> int:
        """Assigns what waits to members with free capacity.

        Args:
            now_ns: the time of the monotonic clock, as in all calls.
            send: sends a message to a peer; returns False when its channel has no room, or has ended.

        Returns:
            When to call again, in ns of the monotonic clock.
        """
        for member in self._members.values():
            member.has_room = True
        self._take_away(now_ns)
        self._expire(now_ns)
        while (item := self._front(now_ns)) is not None:
            able = [
                member for member in self._members.values() if not (item.is_suspect and (member.holds or member.late))
            ]
            freest = max(able, key=_priority, default=None)
            if freest is None or freest.free <= 0:
                break
            self._assign(freest, item, now_ns, send)
        if not self._members:
            self._drop_excess(now_ns)
        return self._due_ns(now_ns)

    def _assign(self, member: _Member, item: _Item, now_ns: int, send: Callable[[Hashable, bytes], bool]) -> None:
        """Assigns this message and some of those behind it that are of its kind."""
        self._turns += 1
        member.turn = self._turns
        deadline_ns = now_ns + self._settings.reassign_ns if self._settings.reassign_ns else FOREVER_NS
        if member.late.pop(item.message.first + 1, None) is not None:  # it has the message still
            self._pop(item)
            item.deadline_ns = deadline_ns
            member.holds[item.message.first + 1] = item
            return
        detail = _detail(item)
        able = sum(each.free > 0 for each in self._members.values())
        most = max(1, min(member.free, (len(self._fresh) + len(self._again)) // able)) if not item.is_suspect else 1
        items = [item]
        self._pop(item)
        size = len(item.message.entry)
        while len(items) < most and size <= _WORK_BYTES and (behind := self._front(now_ns)) is not None:
            if _detail(behind) != detail or behind.message.first <= items[-1].message.first:
                break
            if behind.message.first + 1 in member.late or behind.is_suspect:
                break
            self._pop(behind)
            items.append(behind)
            size += len(behind.message.entry)
        first, following = items[0].message.first + 1, items[-1].message.first + 2
        entries = [each.message.entry for each in items]
        message = share_messages.work(self._topic, member.instance, detail, first, following, entries)
        if not send(member.peer, message):
            member.has_room = False
            for each in reversed(items):
                self._push(each)
            return
        for each in items:
            each.deliveries += 1
            each.deadline_ns = deadline_ns
            member.holds[each.message.first + 1] = each
        self._reassigned += len(items) if detail & share_messages.REASSIGNED else 0

    def _take_away(self, now_ns: int) -> None:
        """Takes messages that were not acknowledged in time away from their members, which stay responsible for them.

        They still count for the member, so that one that hangs gets no further messages.
        """
        if not self._settings.reassign_ns:
            return
        for member in self._members.values():
            for number, item in list(member.holds.items()):
                if item.deadline_ns > now_ns:
                    break
                del member.holds[number]
                member.late[number] = item
                if not item.done:
                    self._return(item, 0)

    def _expire(self, now_ns: int) -> None:
        lifetime = self._settings.lifetime_ns
        if not lifetime:
            return
        while self._fresh and self._fresh[0].since_ns + lifetime <= now_ns:
            self._give_up(self._fresh.popleft(), ShareLoss.LIFETIME)
        for _, _, item in self._again:
            if item.since_ns + lifetime <= now_ns:
                self._give_up(item, ShareLoss.LIFETIME)

    def _drop_excess(self, now_ns: int) -> None:
        while self._pending > self._settings.flight_max and (item := self._front(now_ns) or self._delayed()):
            self._pop(item)
            self._give_up(item, ShareLoss.NO_MEMBER)

    def _delayed(self) -> _Item | None:
        return self._again[0][2] if self._again else None

    def _due_ns(self, now_ns: int) -> int:
        due_ns = FOREVER_NS
        if not all(member.has_room for member in self._members.values()):
            due_ns = now_ns + _ROOM_NS
        if self._again and self._again[0][0] > now_ns:
            due_ns = min(due_ns, self._again[0][0])
        if self._settings.lifetime_ns:
            waiting = [item.since_ns for _, _, item in self._again if not item.done]
            waiting += [self._fresh[0].since_ns] if self._fresh else []
            due_ns = min([due_ns, *(since_ns + self._settings.lifetime_ns for since_ns in waiting)])
        if self._settings.reassign_ns:
            oldest = (next(iter(member.holds.values())) for member in self._members.values() if member.holds)
            due_ns = min([due_ns, *(item.deadline_ns for item in oldest)])
        return due_ns

    # ------------------------------------------------------------------ what waits

    def _front(self, now_ns: int) -> _Item | None:
        """Returns the message that is assigned next: one that comes again before the others; None without one."""
        while self._again:
            not_before_ns, _, item = self._again[0]
            if item.done:
                heapq.heappop(self._again)
            elif not_before_ns <= now_ns:
                return item
            else:
                break
        return self._fresh[0] if self._fresh else None

    def _pop(self, item: _Item) -> None:
        if self._again and self._again[0][2] is item:
            heapq.heappop(self._again)
        else:
            self._fresh.popleft()

    def _push(self, item: _Item) -> None:
        """Puts a message back that was not sent."""
        if item.deliveries:
            heapq.heappush(self._again, (0, item.message.first, item))
        else:
            self._fresh.appendleft(item)

    def _return(self, item: _Item, not_before_ns: int) -> None:
        """Has a message assigned again, unless it was assigned too often."""
        if item.done:
            return
        if item.deliveries >= self._settings.deliveries_max > 0:
            self._give_up(item, ShareLoss.DELIVERIES)
        else:
            heapq.heappush(self._again, (not_before_ns, item.message.first, item))

    def _finish(self, item: _Item) -> None:
        item.done = True
        self._pending -= 1
        self._pending_bytes -= len(item.message.entry)

    def _give_up(self, item: _Item, reason: ShareLoss) -> None:
        if not item.done:
            self._finish(item)
            self._lost += 1
            self._dead_letters += reason is ShareLoss.DELIVERIES
            first, last, _, entry = item.message
            self._reports.append(LostWork(self.name, first, last, reason, item.deliveries, entry))


def _detail(item: _Item) -> int:
    return share_messages.REASSIGNED * (item.deliveries > 0) | share_messages.REQUEST * item.message.is_request


def _priority(member: _Member) -> tuple[int, int]:
    return member.free, -member.turn


def _numbers(member: _Member, first: int, last: int) -> Iterable[int]:
    """Returns the numbers of a range, or those of them that the member has, if the range is longer than that."""
    if last - first <= len(member.holds) + len(member.late):
        return range(first, last + 1)
    return [number for number in [*member.holds, *member.late] if first <= number <= last]
