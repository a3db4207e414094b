"""A receiver that is made when others of its topic, in the same context, receive already (`OwnHistory`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ipcbus.delivery.sink import Sink
from ipcbus.transport.topic_catch_up import TopicCatchUp
from tests.sim.accounts import Account
from tests.sim.world import MS

if TYPE_CHECKING:
    from random import Random

    from ipcbus import Message
    from ipcbus.delivery.own_history import HistoryLeftOff, OwnHistory
    from ipcbus.wire.control_messages import Info, Retransmission
    from tests.sim.recovery.reception import LateReception


class LaterReceiver:
    """One of them, at one context; it does for its recovery what `TopicRecoveries` does."""

    def __init__(self, main: LateReception, number: int, random: Random) -> None:
        """Begins its history, or joins the others if they have got nothing yet."""
        self._main, self._number, self._random = main, number, random
        member = main.member
        self.account = Account(main.ordered, main.topic.sent)
        self.pulled = random.random() < 0.3
        self.sink = Sink(None, random.randint(1, 5)) if self.pulled else Sink(self._called, 1)
        self._floor: int | None = None
        self._wanted = random.choice([None, None, 0, 1, 5, 50])
        self._close_at = random.choice([0] * 9 + [random.randint(1, 20)])
        self._entered = 0
        self._history: OwnHistory | None = None
        if random.random() < 0.1:
            member.world.after(random.choice([0, 1, 10, 100]) * MS, self._close)
        self.stay(None, None)
        self._shares = self._history is None

    def stay(self, left_off: HistoryLeftOff | None, live_from: int | None) -> None:
        """Begins its history, or goes on with that of an earlier stay, in which others may have got theirs."""
        main, member, number = self._main, self._main.member, self._main.topic.number
        now_ns = member.world.now_ns
        self._low: int | None = None
        if left_off is not None:
            self._history = member.delivery.go_on_with_history(number, self.sink, left_off, now_ns)
        else:
            self._history = member.delivery.receive_later(
                number,
                self.sink,
                now_ns,
                alike=live_from is None and self._wanted == member.settings.history,
                wants_all=self._wanted is None and not member.reads_archive,
                live_from=live_from,
            )
        if self._history is None:
            return
        self.catch_up = TopicCatchUp(
            member.delivery.demux,
            self._history.controller,
            replace(member.settings, history=self._wanted),
            asks_at_once=member.ring,
            number=self._number,
            older=main.recording(),
            waiting_bytes_max=self._random.choice([0, 500, 1 << 30]),
        )
        if left_off is not None and left_off.controller.resumes:
            self._history.controller.miss_again(left_off.controller)
        else:
            self.catch_up.begin_own_history(now_ns)

    @property
    def recovers(self) -> bool:
        """Whether it does not have its history yet."""
        return self._history is not None and not self._history.over and not self._main.closed

    def info(self, found: Info) -> None:
        """The source says what it keeps."""
        assert self._history is not None
        if self.catch_up.recovery.awaits(found):
            self._low = found.low
        self.catch_up.info(found, self._now_ns)
        self._note_promise()
        self._history.advance(self._now_ns)

    def _note_promise(self) -> None:
        first = self._history.controller._promised_from if self._history is not None else None
        if first is not None and self._floor is None and self._low is not None:
            assert first <= self._low
            self._floor = first

    def retransmission(self, found: Retransmission) -> None:
        """The source sends messages again."""
        assert self._history is not None
        self.catch_up.retransmission(found, self._now_ns)
        self._history.advance(self._now_ns)

    def advance(self) -> None:
        """Goes on with the history."""
        if self._history is not None:
            self._note_promise()
            self._history.advance(self._now_ns)

    def pull(self, count: int) -> bool:
        """The application takes some of what is kept; says whether there was anything."""
        queue = self.sink.queue
        had = bool(queue) and not self.sink.closed
        for _ in range(min(count, len(queue))):
            if not self.sink.closed:
                self._enter(queue.popleft())
        return had

    def close(self, upto: int | None) -> None:
        """The session is over; all of it was delivered or reported lost."""
        self.account.close(self._main.floor if self._shares else self._floor, upto)

    @property
    def _now_ns(self) -> int:
        return self._main.member.world.now_ns

    def _close(self) -> None:
        self._main.close_receivers([self.sink])

    def _called(self, message: Message) -> None:
        self._enter(message)
        if self._random.random() < self._main.raises:
            self._main.member.raised += 1
            raise RuntimeError("a callback that raises")

    def _enter(self, message: Message) -> None:
        member = self._main.member
        member.note(self._main.topic.number, 1 + self._number, message)
        member.guard(lambda: self.account.enter(message))
        self._entered += 1
        if self._entered == self._close_at:
            self._close()
