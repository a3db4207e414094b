"""When what is to be told again and again is told next, and how fast all of it may go onto the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ipcbus.resolution.network.timer_queue import NEVER, TimerQueue

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

_NS = 1_000_000_000

_Key = TypeVar("_Key", bound="Hashable")


class AdvertPacing:
    """A limit of things and of bits a second. Who has sent waits as long as that takes at the limit.

    So no span of time has more than the limit and one datagram.
    """

    def __init__(self, things_per_second: int, bits_per_second: int, ahead_ns: int = 0) -> None:
        """Nothing was sent.

        Args:
            things_per_second: limit of adverts or queries; 0 is none.
            bits_per_second: limit of bits; 0 is none.
            ahead_ns: for so long at the limit may be sent at once.
        """
        self._things, self._bits, self._ahead_ns = things_per_second, bits_per_second, ahead_ns
        self._busy_ns = NEVER

    @property
    def free_ns(self) -> int:
        """From when on something may be sent."""
        return self._busy_ns - self._ahead_ns

    def took(self, things: int, size: int, now_ns: int) -> None:
        """So many things, in so many bytes, were sent."""
        cost_ns = max(
            things * _NS // self._things + 1 if self._things else 0,
            size * 8 * _NS // self._bits + 1 if self._bits else 0,
        )
        self._busy_ns = max(self._busy_ns, now_ns) + cost_ns


class Phase(NamedTuple):
    """Part of the life of what is told again and again.

    Attributes:
        minimum: time to the second telling, in ns; it doubles with each.
        maximum: longest time between two.
        duration: how long the phase lasts; 0 is for ever.
        lane: number of the pace that holds for it.
        tick: times are rounded up to multiples of it, so that many fit one datagram; 0 rounds nothing.
    """

    minimum: int
    maximum: int
    duration: int
    lane: int
    tick: int = 0


class _Item(Generic[_Key]):
    """Something to be told."""

    __slots__ = ("due_ns", "interval", "key", "phase", "since_ns", "told_ns")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.phase = 0
        self.since_ns = self.interval = 0
        self.due_ns = self.told_ns = NEVER


class Schedule(Generic[_Key]):
    """Things that go through the same phases, each at its own time."""

    def __init__(self, phases: Sequence[Phase], lanes: Sequence[AdvertPacing], offset_ns: int) -> None:
        """Empty.

        Args:
            phases: one after the other; after the last one, if it ends, nothing is told any more.
            lanes: the limits.
            offset_ns: where ticks begin: another one in each context, lest all of them speak at once.
        """
        self._phases, self._lanes, self._offset_ns = phases, lanes, offset_ns
        self._items: dict[_Key, _Item[_Key]] = {}
        self._waiting: list[TimerQueue[_Item[_Key]]] = [TimerQueue() for _ in lanes]

    def __len__(self) -> int:
        """Returns how many things there are."""
        return len(self._items)

    def __contains__(self, key: _Key) -> bool:
        """Returns whether it was added and not removed."""
        return key in self._items

    def __iter__(self) -> Iterator[_Key]:
        """All things."""
        return iter(list(self._items))

    def add(self, key: _Key, now_ns: int) -> None:
        """Something new, to be told at once; what is there already stays as it is."""
        if key not in self._items:
            self._items[key] = _Item(key)
            self.restart(key, 0, now_ns)

    def remove(self, key: _Key) -> bool:
        """Not to be told any more; says whether it was there."""
        item = self._items.pop(key, None)
        if item is None:
            return False
        item.due_ns = NEVER
        return True

    def restart(self, key: _Key, phase: int, now_ns: int) -> None:
        """Begins a phase anew, with something to tell at once."""
        item = self._items[key]
        item.phase, item.since_ns, item.interval = phase, now_ns, self._phases[phase].minimum
        item.due_ns = now_ns
        self._put(item)

    def ask(self, key: _Key, at_ns: int, fresh_ns: int, phase: int | None = None) -> None:
        """Somebody wants to hear it: it is told at that time, if it is not told earlier.

        Args:
            key: what.
            at_ns: when.
            fresh_ns: what was told so shortly before needs not be told again.
            phase: one that is begun anew, where it is a later one now.
        """
        item = self._items[key]
        if item.told_ns != NEVER and at_ns - item.told_ns < fresh_ns:
            return
        if phase is not None and item.phase > phase:
            self.restart(key, phase, at_ns)
        elif item.due_ns == NEVER or item.due_ns > at_ns:
            item.due_ns = at_ns
            self._put(item)

    def ready(self, lane: int, now_ns: int) -> bool:
        """Returns whether something is due in a lane, and may be sent."""
        first = self._waiting[lane].first()
        return first is not None and first.due_ns <= now_ns and self._lanes[lane].free_ns <= now_ns

    def first(self, lane: int, now_ns: int) -> _Key | None:
        """What is due longest in a lane; None when nothing is."""
        first = self._waiting[lane].first()
        return first.key if first is not None and first.due_ns <= now_ns else None

    def pace(self, lane: int) -> AdvertPacing:
        """Returns the limit of a lane."""
        return self._lanes[lane]

    def told(self, lane: int, now_ns: int) -> None:
        """What `first` returned is told now; sets when it is told next."""
        item = self._waiting[lane].first()
        if item is None:
            return
        self._waiting[lane].pop()
        item.told_ns = now_ns
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
        """When something is due that may be sent then; None when nothing is."""
        times = [
            max(first.due_ns, pace.free_ns)
            for waiting, pace in zip(self._waiting, self._lanes, strict=True)
            if (first := waiting.first()) is not None
        ]
        return min(times, default=None)

    def _put(self, item: _Item[_Key]) -> None:
        self._waiting[self._phases[item.phase].lane].put(item)
