"""Frame links in virtual time: they delay, fill up and break; a bad one also loses, doubles and reorders frames."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.world import MS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.sim.world import World


@dataclass
class LinkTerms:
    """What a link does; parts of 1, and times in ns."""

    frame_max: int
    frames_max: int
    delay_ns: int
    loss: float = 0
    duplication: float = 0
    reordering: float = 0
    breaks: float = 0

    @staticmethod
    def draw(random: Random) -> LinkTerms:
        """Any link; often one that keeps the promise of `FrameLink`."""
        good = random.random() < 0.6
        return LinkTerms(
            # A lost piece may not go unnoticed: a bad link has frames for whole messages.
            frame_max=random.choice([40, 200, 1400]) if good else 1 << 20,
            frames_max=random.choice([1, 4, 64]),
            delay_ns=random.choice([1, 100, 1000, 5000]) * MS // 1000,
            loss=0 if good else random.choice([0, 0.05, 0.3]),
            duplication=0 if good else random.choice([0, 0.1]),
            reordering=0 if good else random.choice([0, 0.2]),
            breaks=random.choice([0, 0, 0, 0.002]),
        )

    @property
    def brings_all(self) -> bool:
        """Whether it never loses a frame, and is fast enough for what is asked for again."""
        fast = self.frames_max * self.frame_max >= 1000 and self.delay_ns <= MS
        return fast and not (self.loss or self.breaks or self.reordering or self.duplication)


class LinkEnd:
    """One end of a link (`FrameLink`)."""

    def __init__(self, world: World, random: Random, terms: LinkTerms, arrived: Callable[[], None]) -> None:
        self._world, self._random, self._terms, self._arrived = world, random, terms, arrived
        self.frame_max = terms.frame_max
        self.broken = ""
        self.other: LinkEnd
        self._inbox: deque[bytes] = deque()
        self._on_the_way = 0

    def put(self, frame: bytes) -> bool:
        """Sends a frame."""
        other, random, terms = self.other, self._random, self._terms
        if self.broken or len(other._inbox) + self._on_the_way >= terms.frames_max:
            return False
        if random.random() < terms.breaks:
            self.break_off()
            return False
        if random.random() >= terms.loss:
            for _ in range(2 if random.random() < terms.duplication else 1):
                extra = random.randint(1, 3) * MS if random.random() < terms.reordering else 0
                self._on_the_way += 1
                self._world.after(terms.delay_ns + extra, partial(self._arrive, frame))
        return True

    def push(self) -> None:
        """Does nothing: `put` has sent the frame."""

    def take(self) -> bytes | None:
        """Returns the next frame."""
        if not self._inbox:
            return None
        frame = self._inbox.popleft()
        # The other side learns of the room a little later.
        self._world.after(self._terms.delay_ns, self.other._arrived)
        return frame

    def close(self) -> None:
        """Ends the link."""
        self.break_off()

    def break_off(self) -> None:
        """Breaks the link for both sides."""
        for each in (self, self.other):
            if not each.broken:
                each.broken = "cut"
                each._inbox.clear()
                self._world.after(self._terms.delay_ns, each._arrived)

    def _arrive(self, frame: bytes) -> None:
        self._on_the_way -= 1
        if not self.broken:
            self.other._inbox.append(frame)
            self.other._arrived()


def link(
    world: World, random: Random, terms: LinkTerms, here: Callable[[], None], there: Callable[[], None]
) -> tuple[LinkEnd, LinkEnd]:
    """Returns both ends of a new link; each calls its function when something has changed for it."""
    one, other = LinkEnd(world, random, terms, here), LinkEnd(world, random, terms, there)
    one.other, other.other = other, one
    return one, other
