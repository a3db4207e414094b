"""Sources and receivers of several topics come and go in any order: every stream is whole from where it began."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import ipcbus
from ipcbus import SourceNotificationType
from tests.kit.bus import RINGS, Bus, Kind, fresh_domain
from tests.kit.look import objects
from tests.kit.payload import Books, body

if TYPE_CHECKING:
    from ipcbus import Message, Receiver, Source, SourceNotification, WildcardReceiver

TOPICS = ["a", "b", "c"]
PATTERNS = ["a", "[ab]", ".", "a|c", "d"]


class Following:
    """What a wildcard receiver was told besides messages."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.topics: dict[str, int] = {}
        self.sources: dict[str, int] = {}
        self.books: dict[str, Books] = {}  # by topic: several topics may share a session
        self.wrong: list[str] = []

    def create(self, topic: str) -> None:
        self._step(self.topics, topic, 1)

    def delete(self, topic: str) -> None:
        self._step(self.topics, topic, -1)

    def notify(self, notification: SourceNotification) -> None:
        change = 1 if notification.type is SourceNotificationType.CREATE else -1
        # Sources of one topic may share a session, so there may be several of a source string.
        self.sources[notification.source] = self.sources.get(notification.source, 0) + change
        if self.sources[notification.source] < 0 or self.topics.get(notification.topic) != 1:
            self.wrong.append(f"{notification} after {self.sources} and {self.topics}")

    def enter(self, message: Message) -> None:
        self.books.setdefault(message.topic, Books()).enter(message)
        if self.topics.get(message.topic) != 1 or not self.sources.get(message.source):
            self.wrong.append(f"{message.type.name} of {message.topic} after {self.sources} and {self.topics}")
        if not re.fullmatch(self.pattern, message.topic):
            self.wrong.append(f"{message.topic} does not match {self.pattern}")

    def _step(self, counts: dict[str, int], name: str, change: int) -> None:
        counts[name] = counts.get(name, 0) + change
        if counts[name] not in (0, 1):
            self.wrong.append(f"{name} {change:+} after {counts}")

    def assert_ended(self) -> None:
        assert not any(self.topics.values())
        assert not any(self.sources.values())


class Comings(RuleBasedStateMachine):
    """A sending and a receiving context, driven by one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.domain = fresh_domain()
        self.bus = Bus(self.domain, RINGS[0], "sequential")
        self.sending, self.receiving = self.bus.context("sending"), self.bus.context("receiving")
        self.sources: list[Source] = []
        self.receivers: list[tuple[Receiver, Books]] = []
        self.following: list[tuple[WildcardReceiver, Following]] = []
        self.all_following: list[Following] = []
        self.finished: list[Books] = []
        self.sent: dict[tuple[str, str], int] = {}

    @precondition(lambda self: len(self.sources) < 6)
    @rule(topic=st.sampled_from(TOPICS), kind=st.sampled_from(RINGS), shared=st.booleans())
    def make_source(self, topic: str, kind: Kind, shared: bool) -> None:
        # On a session of its own, or on one that different topics share.
        taken = {source.topic for source in self.sources}
        session = kind.id(900 + RINGS.index(kind)) if shared and topic not in taken else {}
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

    @precondition(lambda self: len(self.following) < 4)
    @rule(pattern=st.sampled_from(PATTERNS), linger=st.sampled_from([0, 1, 10_000]))
    def make_wildcard_receiver(self, pattern: str, linger: int) -> None:
        told = Following(pattern)
        receiver = self.receiving.wildcard_receiver(
            pattern,
            told.enter,
            on_create=told.create,
            on_delete=told.delete,
            source_notification=told.notify,
            resolver_no_source_linger_timeout=linger,
        )
        self.following.append((receiver, told))
        self.all_following.append(told)

    @precondition(lambda self: self.following)
    @rule(data=st.data())
    def close_wildcard_receiver(self, data: st.DataObject) -> None:
        receiver, told = self.following.pop(data.draw(st.integers(0, len(self.following) - 1)))
        receiver.close()
        told.assert_ended()
        self.finished += told.books.values()

    @rule(turns=st.integers(1, 3))
    def turn(self, turns: int) -> None:
        for _ in range(turns):
            self.bus.turn()

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert [told.wrong for told in self.all_following if told.wrong] == []
        for books in [*self.finished, *self._books()]:
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
        for wildcard, told in self.following:
            self.bus.until(lambda wildcard=wildcard: not wildcard.sessions, "the ends")  # type: ignore[misc]
            ledgers = [ledger for books in told.books.values() for ledger in books.ledgers.values()]
            assert all(ledger.begun == ledger.ended for ledger in ledgers)
            assert sum(books.accounted for books in told.books.values()) == wildcard.delivered + wildcard.lost
            self.bus.until(lambda told=told: not any(told.sources.values()), "the notifications")  # type: ignore[misc]
        self.nothing_is_wrong()
        self.bus.close()
        for told in self.all_following:
            told.assert_ended()
        assert objects(self.domain) == []

    def _books(self) -> list[Books]:
        """Those of the receivers there are."""
        return [books for _, books in self.receivers] + [
            books for _, told in self.following for books in told.books.values()
        ]


Comings.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
TestComings = Comings.TestCase
