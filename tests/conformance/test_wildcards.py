"""Receivers of all topics that match a pattern."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType
from tests.kit.bus import GIVE_UP_S, RECEIVER_PACED
from tests.kit.forms import CallbackTaker
from tests.kit.look import callback_errors
from tests.kit.payload import Books, balanced, body

if TYPE_CHECKING:
    from ipcbus import Message, Source, WildcardReceiver
    from tests.kit.bus import Bus
    from tests.kit.forms import Taker

BOS, DATA, EOS = MessageType.BOS, MessageType.DATA, MessageType.EOS
SOON = {"liveness_check_interval": 10}


class Diary:
    """Everything that a wildcard receiver is told, in order."""

    def __init__(self, bus: Bus, pattern: str, **options: object) -> None:
        self.got: list[str] = []
        self.receiver: WildcardReceiver = bus.context("following", **SOON).wildcard_receiver(
            pattern,
            self._message,
            on_create=lambda topic: self.got.append(f"create {topic}"),
            on_delete=lambda topic: self.got.append(f"delete {topic}"),
            **options,
        )

    def _message(self, message: Message) -> None:
        self.got.append(f"{message.type.name} {message.topic}")

    def of(self, topic: str) -> list[str]:
        """What stands there of one topic."""
        return [entry.split()[0] for entry in self.got if entry.split()[1] == topic]


def send(source: Source, count: int) -> None:
    for number in range(source.sequence_number + 1, source.sequence_number + 1 + count):
        source.send(body(number))
    source.flush()


def test_every_topic_that_matches_is_received_in_every_form(bus: Bus, form: type[Taker]) -> None:
    context = bus.context("sending")
    taker = form(bus, r"quotes\.[A-Z]+", wildcard=True)
    sources = [bus.source(topic, context) for topic in ("quotes.A", "quotes.B", "quotes.CD")]
    others = [bus.source(topic, context) for topic in ("quotes.a", "xquotes.A", "quotes.A.bid", "quotesxA")]
    for source in sources:
        bus.joined(source)
    for source in [*others, *sources]:
        send(source, 10)
    got = taker.data(30)
    assert sorted(got) == sorted(body(number) for number in range(10) for _ in sources)
    assert all(source.receivers == 0 for source in others)
    context.close()
    taker.event(EOS, 3)
    assert (taker.count(BOS), taker.count(DATA), taker.count(EOS)) == (3, 30, 3)


def test_sources_before_and_after_the_receiver_are_the_same_to_it(bus: Bus) -> None:
    context = bus.context("sending")
    before = bus.source("t.before", context)
    books = Books()
    receiver = bus.context("receiving").wildcard_receiver(r"t\..*", books.enter)
    bus.joined(before)
    after = bus.source("t.after", context)
    bus.joined(after)
    for source in (before, after):
        send(source, 25)
    bus.until(lambda: books.accounted == 50, "the messages")
    assert {session.source for session in receiver.sessions} == {before.source, after.source}
    assert {session.state for session in receiver.sessions} == {"joined"}
    context.close()
    bus.until(lambda: books.ended == 2, "the ends")
    for ledger in books.ledgers.values():
        balanced(ledger, 25)
    assert receiver.sessions == []


def test_receivers_that_overlap_each_get_everything_once(bus: Bus) -> None:
    context = bus.context("receiving")
    takers = [
        CallbackTaker(bus, "t", context),
        CallbackTaker(bus, "t", context, wildcard=True),
        CallbackTaker(bus, ".", context, wildcard=True),
        CallbackTaker(bus, "t|u", context, wildcard=True),
        CallbackTaker(bus, "t", context),
    ]
    source = bus.source("t")
    bus.joined(source)
    send(source, 20)
    for taker in takers:
        assert taker.data(20) == [body(number) for number in range(20)]
        assert [session.source for session in taker.receiver.sessions] == [source.source]
    assert source.receivers == 1  # one context, one delivery controller
    takers[0].receiver.close()
    takers[2].receiver.close()
    send(source, 5)
    source.close()
    for taker in (takers[1], takers[3], takers[4]):
        taker.event(EOS)
        assert taker.kinds == [BOS] + [DATA] * 25 + [EOS]
    for taker in (takers[0], takers[2]):
        assert taker.kinds == [BOS] + [DATA] * 20


def test_a_wildcard_receiver_that_comes_later_gets_its_own_beginning(bus: Bus) -> None:
    context = bus.context("receiving")
    source = bus.source("t")
    first = CallbackTaker(bus, "t", context)
    bus.joined(source)
    send(source, 1)
    first.data(1)
    for life in range(1, 5):
        later = CallbackTaker(bus, "t|u", context, wildcard=True)
        send(source, 1)
        assert later.data(1) == [body(life)]
        assert later.kinds == [BOS, DATA]
        later.receiver.close()
    assert first.data(5) == [body(number) for number in range(5)]


def test_a_topic_is_created_before_its_first_message_and_deleted_after_its_last(bus: Bus) -> None:
    diary = Diary(bus, r"t\..*", resolver_no_source_linger_timeout=0)
    context = bus.context("sending")
    one, two = bus.source("t.one", context), bus.source("t.two", context)
    for source in (one, two):
        bus.joined(source)
        send(source, 2)
    bus.until(lambda: diary.receiver.delivered == 4, "the messages")
    one.close()
    bus.until(lambda: "delete t.one" in diary.got, "the end")
    assert diary.of("t.one") == ["create", "BOS", "DATA", "DATA", "EOS", "delete"]
    assert diary.of("t.two") == ["create", "BOS", "DATA", "DATA"]
    two.close()
    bus.until(lambda: "delete t.two" in diary.got, "the end")
    assert diary.of("t.two") == ["create", "BOS", "DATA", "DATA", "EOS", "delete"]


def test_a_topic_of_several_sources_is_created_once_and_deleted_after_the_last(bus: Bus) -> None:
    diary = Diary(bus, "t", resolver_no_source_linger_timeout=0)
    sources = [bus.source("t", bus.context()) for _ in range(3)]
    for source in sources:
        bus.joined(source)
        send(source, 1)
    bus.until(lambda: diary.receiver.delivered == 3, "the messages")
    for left, source in enumerate(sources, 1):
        source.close()
        bus.until(lambda left=left: diary.got.count("EOS t") == left, "the end")  # type: ignore[misc]
    bus.until(lambda: "delete t" in diary.got, "the deletion")
    assert diary.got[0] == "create t"
    assert diary.got[-1] == "delete t"
    assert diary.got.count("create t") == diary.got.count("delete t") == 1


def test_a_source_that_comes_back_in_time_keeps_its_topic(bus: Bus) -> None:
    diary = Diary(bus, "t", resolver_no_source_linger_timeout=600_000)
    context = bus.context("sending")
    for life in range(1, 4):
        source = bus.source("t", context)
        bus.joined(source)
        send(source, 1)
        source.close()
        bus.until(lambda life=life: diary.got.count("EOS t") == life, "the end")  # type: ignore[misc]
    assert diary.got == ["create t"] + ["BOS t", "DATA t", "EOS t"] * 3
    diary.receiver.close()  # does not wait for the linger time
    assert diary.got[-1] == "delete t"


def test_a_closed_receiver_has_every_topic_deleted(bus: Bus) -> None:
    diary = Diary(bus, ".*")
    sources = [bus.source(topic, bus.context()) for topic in "ab"]
    for source in sources:
        bus.joined(source)
        send(source, 1)
    bus.until(lambda: diary.receiver.delivered == 2, "the messages")
    diary.receiver.close()
    told = list(diary.got)
    for topic in "ab":
        assert diary.of(topic) == ["create", "BOS", "DATA", "delete"]
    for source in sources:
        send(source, 1)
        bus.until(lambda source=source: source.receivers == 0, "the leaving")  # type: ignore[misc]
    assert diary.got == told


def test_closing_the_context_deletes_every_topic(bus: Bus) -> None:
    diary = Diary(bus, ".*")
    source = bus.source("a")
    bus.joined(source)
    bus.until(lambda: "create a" in diary.got, "the topic")
    diary.receiver._context.close()
    assert diary.of("a")[0] == "create"
    assert diary.of("a")[-1] == "delete"
    assert diary.got.count("delete a") == 1


def test_a_receiver_may_be_closed_when_a_topic_is_created(bus: Bus) -> None:
    got: list[str] = []
    context = bus.context("receiving", **SOON)
    receivers: list[WildcardReceiver] = []

    def close(topic: str) -> None:
        got.append(f"create {topic}")
        receivers[0].close()

    receivers.append(
        context.wildcard_receiver(
            ".*", lambda message: got.append("message"), on_create=close, on_delete=lambda t: got.append(f"delete {t}")
        )
    )
    control = CallbackTaker(bus, "a", context)
    source = bus.source("a")
    bus.joined(source)
    send(source, 3)
    assert control.data(3) == [body(number) for number in range(3)]
    assert got == ["create a", "delete a"]


def test_a_receiver_may_be_made_when_a_topic_is_created(bus: Bus) -> None:
    """The usual use: a receiver with a callback of its own for each topic."""
    context = bus.context("receiving", **SOON)
    books: dict[str, Books] = {}

    def follow(topic: str) -> None:
        books[topic] = Books()
        context.receiver(topic, books[topic].enter)

    everything = Books()
    context.wildcard_receiver(".*", everything.enter, on_create=follow)
    sending = bus.context("sending")
    sources = [bus.source(topic, sending, **bus.kind.id(700)) for topic in "abc"]
    for source in sources:
        bus.joined(source)
        send(source, 10)
    for topic in "abc":
        bus.until(lambda topic=topic: topic in books and books[topic].accounted == 10, "the messages")  # type: ignore[misc]
        (ledger,) = books[topic].ledgers.values()
        balanced(ledger, 10)
    bus.until(lambda: everything.accounted == 30, "the messages")


def test_an_exception_in_a_callback_is_counted_and_the_topic_received(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(topic: str) -> None:
        raise RuntimeError(topic)

    got: list[bytes] = []
    context = bus.context("receiving", **SOON)
    receiver = context.wildcard_receiver(".*", lambda message: got.append(message.data), on_create=fail, on_delete=fail)
    source = bus.source("a")
    bus.joined(source)
    source.send(b"x", flush=True)
    bus.until(lambda: b"x" in got, "the message")
    receiver.close()
    assert callback_errors(receiver) == 2
    assert len([record for record in caplog.records if "RuntimeError" in record.getMessage()]) == 1


@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_a_pull_receiver_of_many_topics_holds_its_sources_up_and_loses_nothing(bus: Bus) -> None:
    receiver = bus.context("receiving").wildcard_receiver(".", receive_queue_maximum=5)
    context = bus.context("sending")
    sources = [bus.source(topic, context) for topic in "ab"]
    for source in sources:
        bus.joined(source)
        send(source, 30)
    books = Books()
    while books.accounted < 60:
        message = receiver.receive(GIVE_UP_S)
        assert message is not None
        books.enter(message)
    for ledger in books.ledgers.values():
        balanced(ledger, 30)


def test_options_of_the_first_receiver_win_for_topics_of_patterns(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    context = bus.context("receiving")
    first = CallbackTaker(bus, "a", context, delivery_control_maximum_burst_loss=5)
    second = CallbackTaker(bus, ".", context, wildcard=True, delivery_control_maximum_burst_loss=7)
    for topic in "ab":
        source = bus.source(topic)
        bus.joined(source)
        send(source, 3)
    assert second.data(6)
    assert first.data(3) == [body(number) for number in range(3)]
    warnings = [record.getMessage() for record in caplog.records if "burst_loss" in record.getMessage()]
    assert len(warnings) == 1
    assert all(part in warnings[0] for part in ("'.'", "'a'", "= 5", "its own 7"))


def test_an_event_queue_takes_all_topics(bus: Bus) -> None:
    books = Books()
    with ipcbus.EventQueue(100) as queue:
        bus.context("queued").wildcard_receiver("t.", books.enter, event_queue=queue)
        sources = [bus.source(topic, bus.context()) for topic in ("t1", "t2")]
        for source in sources:
            bus.joined(source)
            send(source, 10)

        def dispatched() -> bool:
            queue.dispatch(0)
            return books.accounted == 20

        bus.until(dispatched, "the messages")
        for source in sources:
            balanced(books.ledgers[source.source], 10)


def test_sessions_tell_of_every_topic(bus: Bus) -> None:
    receiver = bus.context("receiving").wildcard_receiver("t.*")
    context = bus.context("sending")
    shared = [bus.source(topic, context, **bus.kind.id(700)) for topic in ("t1", "t2")]
    alone, other = bus.source("t3"), bus.source("other")
    for source in (*shared, alone):
        bus.joined(source)
    bus.until(lambda: {info.state for info in receiver.sessions} == {"joined"}, "registrations")
    infos = {info.source: info for info in receiver.sessions}
    assert infos.keys() == {shared[0].source, alone.source}
    assert {(info.transport, info.owner_pid, info.state) for info in infos.values()} == {
        (bus.kind.title, os.getpid(), "joined")
    }
    assert other.receivers == 0


def test_another_context_in_the_middle_changes_nothing(bus: Bus) -> None:
    """Sources and receivers of three contexts of one process, all of the same topics."""
    contexts = [bus.context(f"number {number}") for number in range(3)]
    books = [Books() for _ in contexts]
    for context, book in zip(contexts, books, strict=True):
        context.wildcard_receiver("t.", book.enter)
    sources = [bus.source(topic, context) for context in contexts for topic in ("t1", "t2")]
    for source in sources:
        bus.joined(source, 3)
    for source in sources:
        send(source, 10)
    for book in books:
        bus.until(lambda book=book: book.accounted == 60, "the messages")  # type: ignore[misc]
        assert book.ledgers.keys() == {source.source for source in sources}
        for ledger in book.ledgers.values():
            balanced(ledger, 10)


def test_no_wildcard_receiver_is_made_in_vain(bus: Bus) -> None:
    context = bus.context()
    with pytest.raises(ipcbus.ConfigError, match="position 1"):
        context.wildcard_receiver("a(")
    taker = CallbackTaker(bus, "a", context, wildcard=True)
    source = bus.source("a")
    bus.joined(source)
    send(source, 1)
    taker.data(1)
