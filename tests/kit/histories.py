"""Receivers of one context that each want an amount of history, made and closed at any moment; drawn from one seed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ipcbus import MessageType, WouldBlock
from tests.kit.payload import LOSSES, body, number_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message, Receiver
    from tests.kit.bus import Bus

_QUIET_TURNS = 2000
"""So many turns without a message mean that nothing more comes; losses are looked for every 250 ms."""


class Wanting:
    """One receiver: what it wants, the bounds of the number at which it joined, and the fate of each number."""

    def __init__(self, course: Course) -> None:
        random = self.random = course.random
        self.course = course
        self.history = random.choice([None, None, 0, 1, 7, 40])
        self.never = random.random() < 0.1
        self.fates: dict[int, str] = {}
        self.order: list[int] = []
        self.begun = self.ended = 0
        self.wrong: list[str] = []
        self.highest = course.sent
        self.lowest = course.lowest_live
        # Over UDP its source has to register it, and an evicted context has to join again.
        self.registered = course.is_registered if course.bus.kind.over_udp else not course.evicts
        options: dict[str, object] = dict(course.shared)
        if self.history is not None:
            options["history"] = self.history
        if self.never:
            options["use_late_join"] = 0
        self.pulls = random.random() < 0.4
        if self.pulls:
            options["receive_queue_maximum"] = random.choice([1, 5, 100])
        take = None if self.pulls else self.enter
        if random.random() < 0.2:
            self.receiver: Receiver = course.context.wildcard_receiver("t|v", take, **options)
        else:
            self.receiver = course.context.receiver("t", take, **options)
        self.name = f"history={self.history} never={self.never} pulls={self.pulls}"

    def enter(self, message: Message) -> None:
        """Enters a message or event."""
        kind = message.type
        if kind is MessageType.BOS:
            self.begun += 1
        elif kind is MessageType.EOS:
            self.ended += 1
        elif kind is MessageType.DATA or kind in LOSSES:
            if self.begun != self.ended + 1:
                self.blame(f"{message!r} outside of BOS and EOS")
            first, last = message.first_sequence_number, message.sequence_number
            if kind is MessageType.DATA and self.course.ordered and number_of(message.data) != first:
                self.blame(f"message {first} holds {number_of(message.data)}")
            for number in range(first, last + 1):
                if number in self.fates:
                    self.blame(f"{number} came twice: {self.fates[number]}, then {kind.name}")
                self.fates[number] = kind.name
                self.order.append(number)
            self.course.highest_seen = max(self.course.highest_seen, last)

    def blame(self, what: str) -> None:
        """Keeps what is wrong."""
        if len(self.wrong) < 5:
            self.wrong.append(what)

    def pull(self, most: int) -> int:
        """Takes some of what waits."""
        count = 0
        while count < most and (message := self.receiver.receive(0)) is not None:
            self.enter(message)
            count += 1
        return count

    def first_owed(self) -> tuple[int, int]:
        """The bounds of the first number that it is owed."""
        low, high = self.lowest, self.highest
        if self.history is None and not self.never:
            return 0, 0
        firsts = self.course.firsts
        wanted = 0 if self.never else self.history or 0

        def back(number: int) -> int:
            before = [first for first in firsts if first < number]
            return before[max(0, len(before) - wanted)] if wanted and before else number

        return back(low), back(high)

    @property
    def is_complete(self) -> bool:
        """Whether it has got all that it is owed."""
        if not self.fates:
            return self.first_owed()[0] >= self.course.sent
        first, last = min(self.fates), max(self.fates)
        owed = self.course.after(self.first_owed()[1]) if self.course.keeps_all else first
        return last == self.course.sent - 1 and len(self.fates) == last - first + 1 and first <= owed

    def check(self, *, complete: bool) -> None:
        """Everything that it was promised came once, and nothing else."""
        course = self.course
        kind = f"{self.name} evicts={course.evicts} ordered={course.ordered}"
        what = f"{kind}: joined within {self.lowest}..{self.highest} of {course.sent}"
        assert self.wrong == [], f"{what}: {self.wrong}"
        lost = sorted(number for number, fate in self.fates.items() if fate != "DATA")
        assert not lost or not course.keeps_all, f"{what}: lost {lost[:10]} of {len(lost)}"
        if course.ordered == 1:
            assert self.order == sorted(self.order), what
        low, high = self.first_owed()
        numbers = sorted(self.fates)
        if numbers and not course.straddles(numbers[0]):
            assert numbers[0] >= low, f"{what}: {numbers[0]} came, and {low} is the first that it may get"
        if not complete:
            return
        if numbers:
            assert numbers == list(range(numbers[0], course.sent)), f"{what}: holes {course.holes(numbers)}"
        if course.keeps_all:
            assert (numbers[0] if numbers else course.sent) <= course.after(high), f"{what}: begins at {numbers[:1]}"
        assert self.begun == self.ended, what
        assert self.begun == bool(numbers) or course.evicts or not numbers, what


class Course:
    """One course of events."""

    def __init__(self, bus: Bus, seed: int) -> None:
        random = self.random = Random(seed)
        self.bus = bus
        kind = bus.kind
        self.ordered = random.choice([1, -1, 0] if kind.transport != "lbtsmx" else [1, -1])
        self.shared: dict[str, object] = {
            "ordered_delivery": self.ordered,
            "otr_message_caching_threshold": random.choice([1, 3, 20, 10_000]),
        }
        self.proximity = random.choice([1, 2, 50, 5000])
        self.shared["retransmit_message_caching_proximity"] = self.proximity
        self.keeps_all = random.random() < 0.8
        self.evicts = not kind.source_paced and random.random() < 0.3
        self.pulls_rarely = random.random() < 0.5
        self.fragments = kind.transport != "lbtsmx" and random.random() < 0.4
        options: dict[str, object] = {"late_join": 1, "retransmit_close_timeout": 0}
        if not self.keeps_all:
            options["retransmit_retention_size_limit"] = 65536
        if self.evicts:
            options |= {"slow_receiver_behavior": "evict", "slow_receiver_timeout": 10, "udp_fallback": "none"}
        sending = bus.context("sending", mode="embedded")
        small = kind.small() if self.evicts or kind.source_paced else {}
        self.source = bus.source("t", sending, **small, **options)
        sizes = {"control_channel_size": 16384} if random.random() < 0.5 else {}
        self.context = bus.context("receiving", mode="sequential", **sizes)
        self.firsts: list[int] = []
        self.highest_seen = -1
        self.joined_at = 0
        self.wanting: list[Wanting] = []
        self.gone: list[Wanting] = []

    @property
    def sent(self) -> int:
        """The numbers that the source has used."""
        return self.source.sequence_number + 1

    @property
    def lowest_live(self) -> int:
        """The least number that may be live for a receiver that is made now."""
        return max(self.joined_at, self.highest_seen + 1)

    @property
    def is_registered(self) -> bool:
        """Whether the source sends to the context, as far as is seen."""
        return any(each.fates for each in self.wanting)

    def straddles(self, number: int) -> bool:
        """Whether a number is in the middle of a message."""
        return number not in self.firsts

    def after(self, number: int) -> int:
        """The end of the message that has a number, or the number."""
        return min((first for first in self.firsts if first >= number), default=self.sent)

    def holes(self, numbers: list[int]) -> list[int]:
        """The numbers that are missing, a few of them."""
        got = set(numbers)
        return [number for number in range(numbers[0], self.sent) if number not in got][:10]

    def send(self, count: int) -> None:
        """The source sends."""
        for _ in range(count):
            self.firsts.append(self.sent)
            size = self.random.choice([64, 64, 2000, 20_000]) if self.fragments else self.random.choice([64, 900])
            self._send(body(self.sent, size))
        self.source.flush()
        for each in self.wanting:
            if not each.registered:
                each.registered, each.highest = bool(each.begun) if self.evicts else self.is_registered, self.sent

    def _send(self, message: bytes) -> None:
        while True:
            try:
                self.source.send(message, block=self.evicts)
                return
            except WouldBlock:
                self.turn()
                for each in self.wanting:
                    if each.pulls:
                        each.pull(5)

    def turn(self) -> int:
        """The receiving context processes its events."""
        return self.context.process_events(0)

    def make(self) -> None:
        """The application makes a receiver."""
        if not self.wanting:
            # Over UDP, datagrams from before may wait in the socket.
            self.joined_at, self.highest_seen = 0 if self.bus.kind.over_udp else self.sent, -1
        self.wanting.append(Wanting(self))

    def close_one(self) -> None:
        """The application closes one."""
        each = self.wanting.pop(self.random.randrange(len(self.wanting)))
        each.receiver.close()
        if not each.pulls:
            each.check(complete=False)

    def run(self) -> None:
        """All of it."""
        random = self.random
        self.send(random.choice([0, 1, 30, 300]))
        for _ in range(random.randint(20, 80)):
            what = random.random()
            if what < 0.3:
                self.send(random.choice([1, 3, 30]))
            elif what < 0.45 and len(self.wanting) < 6:
                self.make()
            elif what < 0.5 and self.wanting:
                self.close_one()
            elif what < 0.7 and self.wanting:
                each = random.choice(self.wanting)
                if each.pulls:
                    each.pull(1 if self.pulls_rarely else random.choice([1, 5, 50]))
            else:
                for _ in range(random.choice([1, 1, 10])):
                    self.turn()
        self.finish()

    def finish(self) -> None:
        """All that was sent is received, and the source closes."""
        self.drain()
        self.source.close()
        self.drain(self.ends)
        for each in self.wanting:
            each.check(complete=True)

    def ends(self) -> bool:
        """Whether each receiver got the end."""
        return all(each.ended == each.begun for each in self.wanting)

    def drain(self, over: Callable[[], bool] | None = None) -> None:
        """Receives until nothing more comes."""
        quiet, known = 0, -1
        while quiet < _QUIET_TURNS and not (over or self.is_complete)():
            self.context.process_events(0.0005)
            for each in self.wanting:
                if each.pulls:
                    each.pull(1000)
            fates = sum(len(each.fates) + each.ended for each in self.wanting)
            quiet, known = 0 if fates != known else quiet + 1, fates

    def is_complete(self) -> bool:
        """Whether each receiver has got all that it is owed."""
        recovers = self.context._receiving_sessions.recoveries.count
        return not recovers and all(each.is_complete for each in self.wanting)
