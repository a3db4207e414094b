"""Many threads on one context: handles come and go while others send and receive."""

from __future__ import annotations

import contextlib
import random
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTSMX, Bus, Kind
from tests.kit.payload import Books, body

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.stress

kinds = pytest.mark.parametrize("kind", [LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
TOPICS = ["a", "b", "c"]


class Crowd:
    """Threads that do random things until they are told to stop."""

    def __init__(self, bus: Bus, seed: int) -> None:
        self.contexts = [bus.context("one"), bus.context("two")]
        self.bus, self.seed = bus, seed
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self.books: list[Books] = []

    def send(self, rng: random.Random) -> None:
        """A source lives for a while."""
        source = self.bus.source(rng.choice(TOPICS), rng.choice(self.contexts), **self.bus.kind.small())
        for number in range(rng.randrange(400)):
            # A pull receiver may be full and nobody at it: never wait for ever.
            while not self.stop.is_set():
                try:
                    source.send(body(number), flush=rng.random() < 0.2, block=False)
                    break
                except ipcbus.WouldBlock:
                    self.stop.wait(0.0005)
            else:
                break
        source.close()

    def pull(self, rng: random.Random) -> None:
        """A pull receiver lives for a while."""
        books = Books()
        self.books.append(books)
        receiver = rng.choice(self.contexts).receiver(rng.choice(TOPICS), receive_queue_maximum=rng.choice([1, 50]))
        for _ in range(rng.randrange(300)):
            if rng.random() < 0.5:
                message = receiver.receive(rng.choice([0, 0.001, 0.01]))
                if message is not None:
                    books.enter(message)
            else:
                for message in receiver.receive_many(20, 0.001):
                    books.enter(message)
        receiver.close()

    def called_back(self, rng: random.Random) -> None:
        """A receiver with a callback lives for a while."""
        books = Books()
        self.books.append(books)
        receiver = rng.choice(self.contexts).receiver(rng.choice(TOPICS), books.enter)
        self.stop.wait(rng.uniform(0, 0.05))
        receiver.close()

    def waits_and_is_closed(self, rng: random.Random) -> None:
        """A loop that another thread ends."""
        receiver = rng.choice(self.contexts).receiver("nobody sends this")
        thread = threading.Thread(target=lambda: list(receiver))
        thread.start()
        self.stop.wait(rng.uniform(0, 0.01))
        receiver.close()
        thread.join(GIVE_UP_S)
        assert not thread.is_alive()

    def looks(self, rng: random.Random) -> None:
        """Somebody asks for facts."""
        context = rng.choice(self.contexts)
        receiver = context.receiver(rng.choice(TOPICS), print if rng.random() < 0 else None)
        assert all(session.state in ("joined", "refused") for session in receiver.sessions)
        receiver.close()

    def run(self, act: Callable[[random.Random], None], number: int) -> None:
        """A thread."""
        rng = random.Random(f"{self.seed} {number}")
        try:
            while not self.stop.is_set():
                act(rng)
        except BaseException as error:
            self.errors.append(error)
            self.stop.set()

    def live(self, seconds: float) -> None:
        """Lets them all run for a while."""
        acts = [self.send, self.send, self.pull, self.called_back, self.waits_and_is_closed, self.looks]
        threads = [threading.Thread(target=self.run, args=(act, n)) for n, act in enumerate(acts)]
        for thread in threads:
            thread.start()
        self.stop.wait(seconds)
        self.stop.set()
        for thread in threads:
            thread.join(GIVE_UP_S)
        stuck = [thread.name for thread in threads if thread.is_alive()]
        assert (self.errors, stuck) == ([], []), f"seed {self.seed}"
        for books in self.books:
            for ledger in books.ledgers.values():
                assert (ledger.wrong, ledger.lost) == ([], 0), f"seed {self.seed}"


@kinds
def test_threads_may_do_what_they_like_on_one_context(domain: str, kind: Kind) -> None:
    bus = Bus(domain, kind, "embedded")
    with contextlib.closing(bus):
        Crowd(bus, random.randrange(2**32)).live(1.0)


@pytest.mark.long
@kinds
def test_threads_may_do_what_they_like_for_long(domain: str, kind: Kind) -> None:
    bus = Bus(domain, kind, "embedded")
    with contextlib.closing(bus):
        Crowd(bus, random.randrange(2**32)).live(120.0)


@pytest.mark.parametrize("attempts", [30, pytest.param(3000, marks=pytest.mark.long)])
@kinds
def test_a_context_may_close_while_threads_use_it(domain: str, kind: Kind, attempts: int) -> None:
    rng = random.Random()
    for _ in range(attempts):
        bus = Bus(domain, kind, "embedded")
        crowd = Crowd(bus, rng.randrange(2**32))
        unexpected: list[BaseException] = []

        def use(act: Callable[[random.Random], None], number: int, crowd: Crowd = crowd) -> None:
            try:
                while True:
                    act(random.Random(number))
            except ipcbus.ClosedError:
                pass
            except BaseException as error:
                unexpected.append(error)  # noqa: B023 - this attempt's list

        acts = [crowd.send, crowd.pull, crowd.called_back, crowd.looks]
        threads = [threading.Thread(target=use, args=(act, n)) for n, act in enumerate(acts)]
        for thread in threads:
            thread.start()
        threading.Event().wait(rng.uniform(0, 0.02))
        bus.close()
        crowd.stop.set()
        for thread in threads:
            thread.join(GIVE_UP_S)
        assert not any(thread.is_alive() for thread in threads)
        assert unexpected == []
