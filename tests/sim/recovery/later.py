"""A receiver that is made when others of its topic, in the same context, receive already (`OwnHistory`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ipcbus.delivery.sink import Sink
from ipcbus.transport.topic_catch_up import TopicCatchUp
from tests.sim.accounts import Account

if TYPE_CHECKING:
    from random import Random

    from ipcbus import Message
    from ipcbus.wire.control_messages import Info, Retransmission
    from tests.sim.recovery.world import LateReception


class LaterReceiver:
    """One of them, at one context; it does for its recovery what `TopicRecoveries` does."""

    def __init__(self, main: LateReception, number: int, random: Random) -> None:
        """Begins its history, or joins the others if they have got nothing yet."""
        self._main, self._number, self._random = main, number, random
        member, topic = main.member, main.topic
        self.account = Account(main.ordered, topic.sent)
        self.sink = Sink(self._called, 1)
        now_ns = member.world.now_ns
        self._floor: int | None = None
        self._low: int | None = None
        wanted = random.choice([None, None, 0, 1, 5, 50])
        self._history = member.delivery.receive_later(
            topic.number,
            self.sink,
            now_ns,
            alike=wanted == member.settings.history,
            wants_all=wanted is None and not member.reads_archive,
        )
        if self._history is not None:
            settings = replace(member.settings, history=wanted)
            self.catch_up = TopicCatchUp(
                member.delivery.demux,
                self._history.controller,
                settings,
                asks_at_once=member.ring,
                number=number,
                older=main.recording(),
                waiting_bytes_max=random.choice([0, 500, 1 << 30]),
            )
            self.catch_up.begin_own_history(now_ns)
        member.delivery.begin_topic(topic.number)

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

    def close(self, upto: int | None) -> None:
        """The session is over; all of it was delivered or reported lost."""
        self.account.close(self._floor, upto)

    @property
    def _now_ns(self) -> int:
        return self._main.member.world.now_ns

    def _called(self, message: Message) -> None:
        member = self._main.member
        member.note(self._main.topic.number, 1 + self._number, message)
        member.guard(lambda: self.account.enter(message))
        if self._random.random() < self._main.raises:
            member.raised += 1
            raise RuntimeError("a callback that raises")
