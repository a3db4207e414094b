"""Sources and receivers of several topics come and go in any order: every stream is whole from where it began."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import ipcbus
from tests.kit.bus import KINDS, Bus, Kind, fresh_domain
from tests.kit.look import objects
from tests.kit.payload import Books, body

if TYPE_CHECKING:
    from ipcbus import Receiver, Source

TOPICS = ["a", "b", "c"]


class Comings(RuleBasedStateMachine):
    """A sending and a receiving context, driven by one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.domain = fresh_domain()
        self.bus = Bus(self.domain, KINDS[0], "sequential")
        self.sending, self.receiving = self.bus.context("sending"), self.bus.context("receiving")
        self.sources: list[Source] = []
        self.receivers: list[tuple[Receiver, Books]] = []
        self.finished: list[Books] = []
        self.sent: dict[tuple[str, str], int] = {}

    @precondition(lambda self: len(self.sources) < 6)
    @rule(topic=st.sampled_from(TOPICS), kind=st.sampled_from(KINDS), shared=st.booleans())
    def make_source(self, topic: str, kind: Kind, shared: bool) -> None:
        # On a session of its own, or on one that different topics share.
        taken = {source.topic for source in self.sources}
        session = kind.id(900 + KINDS.index(kind)) if shared and topic not in taken else {}
        self.bus.kind = kind
        self.sources.append(self.bus.source(topic, self.sending, **kind.small(), **session))

    @precondition(lambda self: self.sources)
    @rule(data=st.data(), count=st.integers(1, 30), size=st.sampled_from([16, 64, 500]), flush=st.booleans())
    def send(self, data: st.DataObject, count: int, size: int, flush: bool) -> None:
        source = data.draw(st.sampled_from(self.sources))
        for _ in range(count):
            try:
                source.send(body(source.sequence_number + 1, size), flush=flush, block=False)
            except ipcbus.WouldBlock:
                self.receiving.process_events(0)

    @precondition(lambda self: self.sources)
    @rule(data=st.data())
    def close_source(self, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(self.sources))
        self.sources.remove(source)
        source.close()

    @precondition(lambda self: len(self.receivers) < 5)
    @rule(topic=st.sampled_from(TOPICS))
    def make_receiver(self, topic: str) -> None:
        books = Books()
        self.receivers.append((self.receiving.receiver(topic, books.enter), books))

    @precondition(lambda self: self.receivers)
    @rule(data=st.data())
    def close_receiver(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.receivers) - 1))
        receiver, books = self.receivers.pop(number)
        receiver.close()
        self.finished.append(books)

    @rule(turns=st.integers(1, 3))
    def turn(self, turns: int) -> None:
        for _ in range(turns):
            self.bus.turn()

    @invariant()
    def nothing_is_wrong(self) -> None:
        for books in [*self.finished, *(books for _, books in self.receivers)]:
            for ledger in books.ledgers.values():
                assert ledger.wrong == []
                assert ledger.begun - ledger.ended in (0, 1)

    def teardown(self) -> None:
        self.sending.close()
        while self.receiving.process_events(0.001):
            pass
        for receiver, books in self.receivers:
            self.bus.until(lambda receiver=receiver: not receiver.sessions, "the ends")  # type: ignore[misc]
            assert all(ledger.begun == ledger.ended for ledger in books.ledgers.values())
            assert books.accounted == receiver.delivered + receiver.lost
        self.nothing_is_wrong()
        self.bus.close()
        assert objects(self.domain) == []


Comings.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
TestComings = Comings.TestCase
