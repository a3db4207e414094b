"""Control channels over datagrams in virtual time: both sides, over a wire that loses, doubles, delays and reorders."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ipcbus.recovery.frame_window import WINDOW, FrameAcceptor, FrameSettings, FrameWindow
from ipcbus.reliability.rate_limiter import RateLimiter
from ipcbus.wire import udp_packets

if TYPE_CHECKING:
    from collections.abc import Callable

MS, SECOND = 1_000_000, 1_000_000_000
SESSION, COOKIE = 7, 9
FRAMES = 120
TURNS_MAX = 200


@dataclass
class Channel:
    """One channel: what each side has put, and what the other side has taken."""

    window: FrameWindow
    put: list[bytes] = field(default_factory=list)
    taken: list[bytes] = field(default_factory=list)
    settled: bool = False


class World:
    """One run of a seed."""

    def __init__(self, seed: int) -> None:
        draw = self.random = Random(seed)
        self.now = 0
        self.faults: list[str] = []
        self._todo: list[tuple[int, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self.loss = draw.choice([0, 0.05, 0.2, 0.4])
        self.duplication = draw.choice([0, 0.1])
        self.late = draw.choice([0, 0.2, 0.5])
        self.delay = draw.choice([0, 1, 20, 80]) * MS
        self.outage = (draw.randrange(SECOND), draw.choice([0, 0, 0, 3, 30]) * SECOND)
        self.restarts = [draw.randrange(2 * SECOND) for _ in range(draw.choice([0, 0, 1, 3]))]
        self.source_restarts = draw.randrange(2 * SECOND) if draw.random() < 0.2 else None
        self.stops_taking = draw.random() < 0.2
        pace = RateLimiter(draw.choice([0, 2_000_000]), 100 * MS)
        self._pace = pace
        self.acceptor = FrameAcceptor(FrameSettings(), Random(draw.random()), pace)
        self.openers: list[Channel] = []
        self.accepted: list[Channel] = []
        self._turn_at: dict[str, int] = {}
        self._turns = (0, 0)
        self.sent: list[tuple[bytes, bool]] = []

    # ---- the run

    def run(self) -> World:
        """Opens channels, uses them, and lets time pass until nothing changes any more."""
        self._open()
        for when in self.restarts:
            self._at(when, self._open)
        if self.source_restarts is not None:
            self._at(self.source_restarts, self._restart_source)
        for n in range(400):
            self._at(n * 10 * MS, self._work)
        for n in range(300):
            self._at(4 * SECOND + n * 200 * MS, partial(self._work, put=False))
        while self._todo:
            self.now, _, work = heapq.heappop(self._todo)
            work()
        self._judge()
        return self

    def _at(self, when: int, work: Callable[[], object]) -> None:
        heapq.heappush(self._todo, (when, next(self._order), work))

    def _open(self) -> None:
        epoch = self.random.getrandbits(32) or 1
        self.openers.append(Channel(FrameWindow(FrameSettings(), epoch, self.now)))
        self._serve()

    def _restart_source(self) -> None:
        """Another source at the address of the one before, which was killed."""
        if self.acceptor.window is not None:
            self.acceptor.window.end("killed")
        self.acceptor = FrameAcceptor(FrameSettings(), Random(self.random.random()), self._pace)

    def _work(self, *, put: bool = True) -> None:
        """Both applications put and take frames."""
        pairs = [(self.openers[-1], self._accepted_by(self.openers[-1]))]
        for opener, accepted in pairs:
            for channel in (opener, accepted):
                if channel is None:
                    continue
                for _ in range(self.random.randrange(12) if put and len(channel.put) < FRAMES else 0):
                    frame = f"{channel.window.epoch} {len(channel.put)}".encode().ljust(self.random.randrange(1, 1000))
                    if channel.window.put(frame):
                        channel.put.append(frame)
                if put and self.stops_taking and self.now > 100 * MS:
                    continue
                while (found := channel.window.take()) is not None:
                    channel.taken.append(found)
        self._serve()

    def _accepted_by(self, opener: Channel) -> Channel | None:
        return next((each for each in self.accepted if each.window.peer_epoch == opener.window.epoch), None)

    def _serve(self) -> None:
        opener = self.openers[-1].window
        opener.turn(self.now)
        for packet in opener.packets(SESSION, COOKIE, self.now):
            self._wire(packet, to_source=True)
        if self.acceptor.window is not None:
            self.acceptor.window.turn(self.now)
        for packet in self.acceptor.packets(SESSION, COOKIE, self.now):
            self._wire(packet, to_source=False)
        windows = [opener, *([self.acceptor.window] if self.acceptor.window is not None else [])]
        for window in windows:
            if (due := window.next_ns) is not None:
                self._plan(max(due, self.now))

    def _plan(self, when: int) -> None:
        planned = self._turn_at.get("", -1)
        if planned < self.now or when < planned:
            self._turn_at[""] = when
            self._at(when, partial(self._due, when))

    def _due(self, when: int) -> None:
        if self._turn_at.get("") == when:
            self._turn_at[""] = -1
            at, times = self._turns
            self._turns = (self.now, times + 1 if at == self.now else 1)
            assert self._turns[1] < TURNS_MAX, "wants its turn again and again"
            self._serve()

    def _wire(self, packet: bytes, *, to_source: bool) -> None:
        begins, lasts = self.outage
        self.sent.append((packet, to_source))
        if begins <= self.now < begins + lasts:
            return
        for _ in range(1 + (self.random.random() < self.duplication)):
            if self.random.random() >= self.loss:
                late = self.random.randrange(60 * MS) if self.random.random() < self.late else 0
                self._at(self.now + self.delay + late, partial(self._arrive, packet, to_source))
        if self.random.random() < 0.01:  # very late, perhaps in another channel
            self._at(self.now + self.random.randrange(2 * SECOND), partial(self._arrive, packet, to_source))

    def _arrive(self, packet: bytes, to_source: bool) -> None:
        found = udp_packets.parse(packet)
        assert isinstance(found, udp_packets.Frame | udp_packets.FrameAck)
        if not to_source:
            self.openers[-1].window.receive(found, self.now)
        elif self.acceptor.receive(found, self.now) and self.acceptor.window is not None:
            self.accepted.append(Channel(self.acceptor.window))
        self._serve()

    # ---- the accounts

    def _judge(self) -> None:
        for opener in self.openers:
            accepted = self._accepted_by(opener)
            for here, there in ((opener, accepted), (accepted, opener)):
                if here is None:
                    continue
                put = there.put if there is not None else []
                if here.taken != put[: len(here.taken)]:
                    self.faults.append(f"{here.window.epoch} took what was not put, or not in order")
                broken = here.window.broken or (there is None or there.window.broken)
                if opener is self.openers[-1] and not broken and here.taken != put:
                    self.faults.append(f"{here.window.epoch} took {len(here.taken)} of {len(put)}, and is not broken")
                if len(here.window._sent) > WINDOW or len(here.window._held) + len(here.window._ready) > WINDOW:
                    self.faults.append("a window is too long")
        last = self.openers[-1]
        if not self.outage[1] and self.source_restarts is None and self.loss < 0.4 and last.window.broken:
            self.faults.append(f"broken without need: {last.window.broken}")


def run(seed: int) -> World:
    """Runs a seed to its end."""
    return World(seed).run()
