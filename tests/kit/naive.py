"""What a delivery controller has to do, said naively: a fate for each number, sets, and no thought of speed."""

from __future__ import annotations

from dataclasses import dataclass, field

PARTIAL_BYTES = 512


@dataclass(frozen=True)
class Whole:
    """A message in one piece."""

    payload: bytes


@dataclass(frozen=True)
class Piece:
    """A fragment; with `bad` one that contradicts itself."""

    first: int
    last: int
    offset: int
    total: int
    size: int
    data: bytes
    bad: bool = False

    @property
    def message(self) -> tuple[int, int, int]:
        """What all pieces of a message have in common."""
        return self.first, self.total, self.size


@dataclass
class Open:
    """A message of which something came."""

    like: Piece
    came: dict[int, Piece] = field(default_factory=dict)


@dataclass
class Naive:
    """One topic, one receiver. `events` are ("data", first, last, payload) and ("lost", number)."""

    ordered: int = 1
    burst_loss: int = 1024
    caching: int = 10_000
    recovery_ns: int = 0
    loss_check_ns: int = 0
    entries_max: int = 0
    bytes_max: int = 2**31
    floor: int | None = 0

    expected: int = -1
    next: int = 0
    next_check: int = 0
    missing: dict[int, tuple[int, int]] = field(default_factory=dict)
    held: dict[int, Whole | Piece] = field(default_factory=dict)
    open: list[Open] = field(default_factory=list)
    events: list[tuple[str | int | bytes, ...]] = field(default_factory=list)
    duplicates: int = 0
    malformed: int = 0
    refused: int = 0

    def arrives(self, number: int, item: Whole | Piece, now: int) -> None:
        """A message or fragment."""
        if self.expected < 0:
            if self._began_before(item):
                return
            self.expected = self.next = number if self.floor is None else min(self.floor, number)
        if number < self.expected and number not in self.missing:
            self.duplicates += 1
            return
        if number >= self.expected:
            self._miss(number, now)
            self.expected = number + 1
            if self.ordered != 1:
                self._settle(self._age(now))
        self.missing.pop(number, None)
        if self.ordered == 1:
            self.held[number] = item
        else:
            self._process(number, item)
        self._settle(self._age(now))

    def note_next_sequence(self, upcoming: int, now: int) -> None:
        """TSNI."""
        known = self.expected if self.expected >= 0 else self.floor
        if known is not None and upcoming > known:
            if self.expected < 0:
                self.expected = self.next = known
            self._miss(upcoming, now)
            self.expected = upcoming
        self._settle(self._age(now))

    def check(self, now: int) -> None:
        """Time passes."""
        self.next_check = now + self.loss_check_ns
        self._settle(now)

    def finish(self, upcoming: int) -> None:
        """The end."""
        self.note_next_sequence(upcoming, 0)
        self._settle(1 << 62)
        while self.open:
            self._spoil(self.open[0])

    @property
    def entries(self) -> int:
        """What counts against the bound."""
        runs = sum(self.missing.get(n - 1, (0, -1))[1] != opened for n, (_, opened) in self.missing.items())
        return runs + len(self.held)

    @property
    def bytes(self) -> int:
        """Memory of what is open."""
        return sum(each.like.total + PARTIAL_BYTES for each in self.open)

    def _began_before(self, item: Whole | Piece) -> bool:
        if self.ordered == 0 or isinstance(item, Whole) or item.bad or item.offset == 0:
            return False
        if self.floor is not None:
            if item.first >= self.floor:
                return False
            self.floor = max(self.floor, item.last + 1)
        return True

    def _miss(self, until: int, now: int) -> None:
        new = range(self.expected, until)
        self.missing |= dict.fromkeys(new, (now + self.recovery_ns, self.expected))

    def _age(self, now: int) -> int:
        """When the check is overdue, what fills a gap may be about to come."""
        late = self.recovery_ns and self.loss_check_ns and 0 < self.next_check < now - self.loss_check_ns
        return 0 if late else now

    def _settle(self, now: int) -> None:
        while True:
            while self.ordered == 1 and self.next in self.held:
                self.next += 1
                self._process(self.next - 1, self.held.pop(self.next - 1))
            too_much = 0 < self.entries_max < self.entries or 0 < self.caching < len(self.held)
            if not self.missing or not (too_much or self.missing[min(self.missing)][0] <= now):
                return
            run = [min(self.missing)]
            while self.missing.get(run[-1] + 1) == self.missing[run[0]]:
                run.append(run[-1] + 1)
            self._give_up(run)

    def _give_up(self, run: list[int]) -> None:
        lost = set(run)
        for number in run:
            del self.missing[number]
        for each in list(self.open):
            if self.ordered == 1 or not lost.isdisjoint(range(each.like.first, each.like.last + 1)):
                self.open.remove(each)
                lost |= each.came.keys()
        self.events += [("lost", number) for number in sorted(lost)]
        self.next = max(self.next, run[-1] + 1)

    def _spoil(self, each: Open, *also: int) -> None:
        self.open.remove(each)
        self.events += [("lost", number) for number in sorted({*each.came, *also})]

    def _process(self, number: int, item: Whole | Piece) -> None:
        if self.ordered == 0 and isinstance(item, Piece) and not item.bad:
            self.events.append(("data", number, number, item.data))
            return
        mine = None
        for each in list(self.open):
            if isinstance(item, Piece) and not item.bad and each.like.message == item.message:
                mine = each
            elif self.ordered == 1 or each.like.first <= number <= each.like.last:
                self._spoil(each)
        if isinstance(item, Whole):
            self.events.append(("data", number, number, item.payload))
        elif item.bad:
            self.malformed += 1
            self.events.append(("lost", number))
        elif mine is None and not self._can_open(number, item):
            self.events.append(("lost", number))
        else:
            if mine is None:
                mine = Open(item)
                self.open.append(mine)
            mine.came[number] = item
            if len(mine.came) == item.last - item.first + 1:
                self.open.remove(mine)
                whole = b"".join(mine.came[each].data for each in sorted(mine.came))
                self.events.append(("data", item.first, item.last, whole))

    def _can_open(self, number: int, item: Piece) -> bool:
        if self.ordered == 1:
            possible = item.offset == 0
        else:
            span = set(range(item.first, item.last + 1))
            known = {each for each in span if each < self.expected} - {number}
            possible = known <= self.missing.keys() and all(
                span.isdisjoint(range(each.like.first, each.like.last + 1)) for each in self.open
            )
        if possible and self.bytes + item.total > self.bytes_max:
            self.refused += 1
            return False
        return possible
