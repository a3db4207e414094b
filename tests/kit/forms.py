"""The forms of receiving, as one thing to test."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ipcbus import MessageType
from tests.kit.bus import GIVE_UP_S, Bus
from tests.kit.loops import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context, Message, Receiver

ROWS = 16


class Got(NamedTuple):
    """What a receiver was given; rows of an array have no number."""

    type: MessageType
    data: bytes
    number: int | None = None
    flags: int | None = None


class Taker:
    """A receiver in one of the forms; `got` is all that came, in order."""

    name = ""

    def __init__(
        self,
        bus: Bus,
        topic: str = "t",
        context: Context | None = None,
        *,
        row: int = 64,
        wildcard: bool = False,
        **options: object,
    ) -> None:
        """Makes the receiver.

        Args:
            bus: makes it, and a context unless one is given.
            topic: what to receive.
            context: where to receive it.
            row: length of the messages, for the form that fills rows.
            wildcard: the topic is a pattern.
            options: of the receiver.
        """
        self.bus, self.row, self.wildcard = bus, row, wildcard
        self.got: list[Got] = []
        self.send_times: list[int] = []
        """Of the messages, ns since the epoch; rows of an array have none."""
        self.context = context or bus.context("taking")
        self.receiver = self._make(topic, options)

    def _make(self, topic: str, options: dict[str, object]) -> Receiver:
        return self._factory(topic, **options)

    @property
    def _factory(self) -> Callable[..., Receiver]:
        return self.context.wildcard_receiver if self.wildcard else self.context.receiver

    def take(self, enough: Callable[[], object]) -> None:
        """Receives until `enough` says so."""
        raise NotImplementedError

    def data(self, count: int) -> list[bytes]:
        """Receives until there are `count` messages in all, and returns their contents."""
        self.take(lambda: self.count() >= count)
        return [got.data for got in self.got if got.type is MessageType.DATA]

    def event(self, kind: MessageType, count: int = 1) -> None:
        """Receives until so many events of a kind have come."""
        self.take(lambda: self.count(kind) >= count)

    def count(self, kind: MessageType = MessageType.DATA) -> int:
        """How many of a kind have come."""
        return sum(got.type is kind for got in self.got)

    @property
    def kinds(self) -> list[MessageType]:
        """The kinds of all that came, in order."""
        return [got.type for got in self.got]

    @property
    def numbers(self) -> list[int]:
        """The topic sequence numbers of the messages that have one."""
        return [got.number for got in self.got if got.type is MessageType.DATA and got.number is not None]

    def _enter(self, message: Message) -> None:
        self.got.append(Got(message.type, message.data, message.sequence_number, message.flags))
        if message.type is MessageType.DATA:
            self.send_times.append(message.send_time_ns)


class CallbackTaker(Taker):
    """The context calls back."""

    name = "callback"

    def _make(self, topic: str, options: dict[str, object]) -> Receiver:
        self._came = threading.Condition()
        return self._factory(topic, self._on_message, **options)

    def _on_message(self, message: Message) -> None:
        with self._came:
            self._enter(message)
            self._came.notify_all()

    def take(self, enough: Callable[[], object]) -> None:
        if self.bus.sequential:
            self.bus.until(enough, f"more than {self.got[-3:]}")
            return
        with self._came:
            assert self._came.wait_for(enough, GIVE_UP_S), f"waited in vain for more than {self.got[-3:]}"


class ReceiveTaker(Taker):
    """One message a call."""

    name = "receive"

    def take(self, enough: Callable[[], object]) -> None:
        while not enough():
            message = self.receiver.receive(GIVE_UP_S)
            assert message is not None, f"waited in vain for more than {self.got[-3:]}"
            self._enter(message)


class ReceiveManyTaker(Taker):
    """Some messages a call."""

    name = "receive_many"

    def take(self, enough: Callable[[], object]) -> None:
        while not enough():
            messages = self.receiver.receive_many(7, GIVE_UP_S)
            assert messages, f"waited in vain for more than {self.got[-3:]}"
            assert len(messages) <= 7
            for message in messages:
                self._enter(message)


class ReceiveIntoTaker(Taker):
    """Messages into the rows of an array; what has no row comes singly."""

    name = "receive_into"

    def take(self, enough: Callable[[], object]) -> None:
        rows = np.zeros((ROWS, self.row), np.uint8)
        while not enough():
            try:
                filled = self.receiver.receive_into(rows, GIVE_UP_S)
            except ValueError:
                filled = 0
            for row in rows[:filled]:
                self.got.append(Got(MessageType.DATA, row.tobytes()))
            if not filled:
                message = self.receiver.receive(0)
                assert message is not None, f"waited in vain for more than {self.got[-3:]}"
                self._enter(message)


class ForTaker(Taker):
    """A for loop."""

    name = "for"

    def take(self, enough: Callable[[], object]) -> None:
        if enough():
            return
        for message in self.receiver:
            self._enter(message)
            if enough():
                return


class AsyncForTaker(Taker):
    """An async for loop."""

    name = "async_for"
    loop = "asyncio"

    def take(self, enough: Callable[[], object]) -> None:
        async def loop() -> None:
            if enough():
                return
            async for message in self.receiver:
                self._enter(message)
                if enough():
                    return

        run(asyncio.wait_for(loop(), GIVE_UP_S), self.loop)


class UvloopForTaker(AsyncForTaker):
    """The same on another event loop."""

    name = "uvloop_for"
    loop = "uvloop"


FORMS: tuple[type[Taker], ...] = (
    CallbackTaker,
    ReceiveTaker,
    ReceiveManyTaker,
    ReceiveIntoTaker,
    ForTaker,
    AsyncForTaker,
    UvloopForTaker,
)
