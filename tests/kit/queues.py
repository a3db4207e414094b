"""Event queues under test: threads that dispatch, receivers that note, sends that let the contexts work."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import ipcbus
from tests.kit.bus import GIVE_UP_S, TURN_S
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context, EventQueue, Message, MessageType, Receiver, Source
    from tests.kit.bus import Bus


def dispatch_until(bus: Bus, queue: EventQueue, condition: Callable[[], object], what: str) -> None:
    """Dispatches, and processes events where the mode wants that, until the condition holds."""

    def turn() -> object:
        queue.dispatch(0 if bus.sequential else TURN_S)
        return condition()

    bus.until(turn, what)


def send_each(bus: Bus, source: Source, count: int) -> None:
    """Sends messages and lets the contexts work whenever there is no room."""
    for number in range(count):
        while True:
            try:
                source.send(body(number), block=False)
                break
            except ipcbus.WouldBlock:
                bus.turn()
    source.flush()


class Threads:
    """Threads that dispatch until the queue is closed."""

    def __init__(self, queue: EventQueue, count: int) -> None:
        self.queue = queue
        self.failed: list[BaseException] = []
        self.threads = [threading.Thread(target=self._run) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _run(self) -> None:
        try:
            while True:
                self.queue.dispatch()
        except ipcbus.ClosedError:
            pass
        except BaseException as error:
            self.failed.append(error)

    def close(self) -> None:
        self.queue.close()
        for thread in self.threads:
            thread.join(GIVE_UP_S)
            assert not thread.is_alive()
        assert self.failed == []


class Noting:
    """A receiver that notes what is dispatched, and on which thread."""

    def __init__(self, bus: Bus, queue: EventQueue, topic: str = "t", context: Context | None = None) -> None:
        self.got: list[tuple[MessageType, bytes]] = []
        self.threads: set[int] = set()
        self.receiver: Receiver = bus.receiver(topic, self, context, event_queue=queue)

    def __call__(self, message: Message) -> None:
        assert len(message.view) == len(message)
        self.got.append((message.type, message.data))
        self.threads.add(threading.get_ident())

    @property
    def kinds(self) -> list[MessageType]:
        return [kind for kind, _ in self.got]
