"""The schedule of repeated adverts and queries, and the limits of their rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ipcbus.resolution.network.timer_queue import NEVER, TimerQueue

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

_NS = 1_000_000_000

_Key = TypeVar("_Key", bound="Hashable")


class AdvertPacing:
    """A limit of adverts or queries, and of bits, a second.

    After each datagram the sender waits for the time that the datagram takes at the limit. So no span of time has more
    than the limit and one datagram.
    """

    def __init__(self, entries_per_second: int, bits_per_second: int, ahead_ns: int = 0) -> None:
        """Makes a limit.

        Args:
            entries_per_second: limit of adverts or queries; 0: no limit.
            bits_per_second: limit of bits; 0: no limit.
            ahead_ns: size of a burst: the time that it takes at the limit.
        """
        self._entries, self._bits, self._ahead_ns = entries_per_second, bits_per_second, ahead_ns
        self._busy_ns = NEVER

    @property
    def free_ns(self) -> int:
        """The time from which on a datagram may be sent."""
        return self._busy_ns - self._ahead_ns

    def count(self, entries: int, size: int, now_ns: int) -> None:
        """Counts a datagram that was sent, with its adverts or queries and its bytes."""
        cost_ns = max(
            entries * _NS // self._entries + 1 if self._entries else 0,
            size * 8 * _NS // self._bits + 1 if self._bits else 0,
        )
        self._busy_ns = max(self._busy_ns, now_ns) + cost_ns


class Phase(NamedTuple):
    """A phase of the repetition of an advert or query; times in ns.

    Attributes:
        minimum: time to the first repetition; it doubles with each.
        maximum: longest time between two repetitions.
        duration: how long the phase lasts; 0: without end.
        lane: number of the limit that holds for the phase.
        tick: times are rounded up to multiples of it, so that many entries share a datagram; 0: no rounding.
    """

    minimum: int
    maximum: int
    duration: int
    lane: int
    tick: int = 0


class _Item(Generic[_Key]):
    """An advert or query of a schedule."""

    __slots__ = ("due_ns", "interval", "key", "phase", "sent_ns", "since_ns")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.phase = 0
        self.since_ns = self.interval = 0
        self.due_ns = self.sent_ns = NEVER


class Schedule(Generic[_Key]):
    """Adverts or queries that go through phases, each from its own begin."""

    def __init__(self, phases: Sequence[Phase], lanes: Sequence[AdvertPacing], offset_ns: int) -> None:
        """Makes an empty schedule.

        Args:
            phases: the phases in their order; after the end of the last one nothing is sent.
            lanes: the limits.
            offset_ns: begin of ticks, different in each context, so that contexts do not send at one time.
        """
        self._phases, self._lanes, self._offset_ns = phases, lanes, offset_ns
        self._items: dict[_Key, _Item[_Key]] = {}
        self._waiting: list[TimerQueue[_Item[_Key]]] = [TimerQueue() for _ in lanes]

    def __len__(self) -> int:
        """Returns the number of entries."""
        return len(self._items)

    def __contains__(self, key: _Key) -> bool:
        """Returns whether an entry was added and not removed."""
        return key in self._items

    def __iter__(self) -> Iterator[_Key]:
        """Iterates over the entries at the time of the call."""
        return iter(list(self._items))

    def add(self, key: _Key, now_ns: int) -> None:
        """Adds an entry, due at once; does nothing if the schedule has it already."""
        if key not in self._items:
            self._items[key] = _Item(key)
            self.restart(key, 0, now_ns)

    def remove(self, key: _Key) -> bool:
        """Removes an entry; returns whether the schedule had it."""
        item = self._items.pop(key, None)
        if item is None:
            return False
        item.due_ns = NEVER
        return True

    def restart(self, key: _Key, phase: int, now_ns: int) -> None:
        """Begins a phase of an entry again; the entry is due at `now_ns`."""
        item = self._items[key]
        item.phase, item.since_ns, item.interval = phase, now_ns, self._phases[phase].minimum
        item.due_ns = now_ns
        self._put(item)

    def ask(self, key: _Key, at_ns: int, fresh_ns: int, phase: int | None = None) -> None:
        """Makes an entry due at a time, unless it is due earlier.

        Args:
            key: the entry.
            at_ns: the time.
            fresh_ns: does nothing if the entry was sent this time before `at_ns` or later.
            phase: begins this phase again if the entry is in a later one.
        """
        item = self._items[key]
        if item.sent_ns != NEVER and at_ns - item.sent_ns < fresh_ns:
            return
        if phase is not None and item.phase > phase:
            self.restart(key, phase, at_ns)
        elif item.due_ns == NEVER or item.due_ns > at_ns:
            item.due_ns = at_ns
            self._put(item)

    def ready(self, lane: int, now_ns: int) -> bool:
        """Returns whether an entry of a lane is due and may be sent."""
        first = self._waiting[lane].first()
        return first is not None and first.due_ns <= now_ns and self._lanes[lane].free_ns <= now_ns

    def first(self, lane: int, now_ns: int) -> _Key | None:
        """Returns the entry of a lane that is due first; None if none is due."""
        first = self._waiting[lane].first()
        return first.key if first is not None and first.due_ns <= now_ns else None

    def pace(self, lane: int) -> AdvertPacing:
        """Returns the limit of a lane."""
        return self._lanes[lane]

    def sent(self, lane: int, now_ns: int) -> None:
        """Notes that the entry that `first` returned was sent, and sets when it is due next."""
        item = self._waiting[lane].first()
        if item is None:
            return
        self._waiting[lane].pop()
        item.sent_ns = now_ns
        item.due_ns = now_ns + item.interval
        item.interval = min(2 * item.interval, self._phases[item.phase].maximum)
        phase = self._phases[item.phase]
        if phase.duration and item.due_ns - item.since_ns > phase.duration:
            item.phase += 1
            if item.phase == len(self._phases):
                item.phase, item.due_ns = item.phase - 1, NEVER
                return
            phase = self._phases[item.phase]
            item.since_ns += self._phases[item.phase - 1].duration
            item.interval, item.due_ns = phase.minimum, now_ns + phase.minimum
        if phase.tick:
            item.due_ns += (self._offset_ns - item.due_ns) % phase.tick
        self._put(item)

    @property
    def next_ns(self) -> int | None:
        """The next time when an entry is due and may be sent; None without one."""
        times = [
            max(first.due_ns, pace.free_ns)
            for waiting, pace in zip(self._waiting, self._lanes, strict=True)
            if (first := waiting.first()) is not None
        ]
        return min(times, default=None)

    def _put(self, item: _Item[_Key]) -> None:
        self._waiting[self._phases[item.phase].lane].put(item)
