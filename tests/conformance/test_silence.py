"""Sessions whose owner shows no life have ended for their receivers, until it does; over UDP: tests/system."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus import MessageType
from ringbuf.layout import ring_view
from tests.kit.bus import GIVE_UP_S, RECEIVER_PACED, mode_options, on_rings
from tests.kit.payload import Books, Ledger, balanced, body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Context, Source, SourceNotification
    from tests.kit.bus import Bus

INTERVAL_MS, TIMEOUT_MS = 10, 150


def config(bus: Bus, timeout: int = TIMEOUT_MS) -> dict[str, dict[str, Any]]:
    """Options of contexts that give and notice signs of life soon."""
    kind = bus.kind.transport
    return {
        "context": {"transport_lbtipc_datagram_max_size": 8192, "liveness_check_interval": 10},
        "source": {"transport": kind, **bus.kind.options, f"transport_{kind}_sm_interval": INTERVAL_MS},
        "receiver": {f"transport_{kind}_activity_timeout": timeout, "delivery_control_loss_check_interval": 5},
    }


@pytest.fixture
def asleep(bus: Bus) -> Iterator[Context]:
    """A context that shows life only when the test drives it, or sends."""
    context = ipcbus.Context(config(bus), name="asleep", domain=bus.domain, operational_mode="sequential")
    yield context
    context.close()


class Reader:
    """A receiver in the mode under test."""

    def __init__(self, bus: Bus, timeout: int = TIMEOUT_MS, *, wildcard: bool = False) -> None:
        given = config(bus, timeout)
        given["context"].update(mode_options(bus.mode))
        self.context = ipcbus.Context(given, domain=bus.domain)
        bus.contexts.append(self.context)
        self.bus, self.books, self.told = bus, Books(), list[str]()
        make: Any = self.context.wildcard_receiver if wildcard else self.context.receiver
        self.receiver = make("t", self.books.enter, source_notification=self._notify)

    def _notify(self, notification: SourceNotification) -> None:
        self.told.append(notification.type.name)

    @property
    def ledger(self) -> Ledger:
        """What it got of its only source."""
        return next(iter(self.books.ledgers.values()), Ledger())

    def ended(self, times: int = 1) -> None:
        """Waits until it has been told of so many ends."""
        self.bus.until(lambda: self.ledger.ended >= times, "the end")

    def accounted(self, sent: int) -> None:
        """Waits until so many messages came or were reported lost, and asserts that the account is right."""
        self.bus.until(lambda: self.books.accounted >= sent, "the messages, or news of their loss")
        balanced(self.ledger, sent, joins=self.ledger.begun)


def send(source: Source, count: int) -> int:
    for number in range(source.sequence_number + 1, source.sequence_number + 1 + count):
        source.send(body(number))
    source.flush()
    return source.sequence_number + 1


@on_rings
@pytest.mark.parametrize("wildcard", [False, True], ids=["topic", "pattern"])
def test_a_silent_session_ends_and_begins_again_with_an_exact_account(
    bus: Bus, asleep: Context, wildcard: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader(bus, wildcard=wildcard)
    source = asleep.source("t")
    bus.joined(source)
    sent = send(source, 10)
    reader.accounted(sent)
    reader.ended()
    bus.until(lambda: reader.receiver.sessions, "what is known of the session")
    (info,) = reader.receiver.sessions
    assert (info.source, info.owner_pid, info.state) == (source.source, os.getpid(), "ended")
    assert "no sign of life for 0.15 s" in info.reason
    assert any(source.source in record.getMessage() for record in caplog.records)
    assert source.receivers == 0

    sent = send(source, 5)  # a sign of life; nobody receives these
    reader.accounted(sent)  # though nothing follows
    assert reader.ledger.begun >= 2
    assert 1 <= reader.ledger.lost <= 5
    bus.joined(source)
    sent = send(source, 5)
    reader.accounted(sent)
    source.close()
    reader.ended(reader.ledger.begun)
    assert reader.ledger.begun == reader.ledger.ended
    bus.until(lambda: len(reader.told) == 2 * reader.ledger.begun, "the notifications")
    assert reader.told == ["CREATE", "DELETE"] * reader.ledger.begun


@on_rings
def test_what_a_silent_session_sent_before_it_closed_is_accounted_for(bus: Bus, asleep: Context) -> None:
    reader = Reader(bus)
    source = asleep.source("t")
    bus.joined(source)
    reader.accounted(send(source, 10))
    reader.ended()
    sent = send(source, 7)
    source.close()
    reader.accounted(sent)
    reader.ended(reader.ledger.begun)
    assert 1 <= reader.receiver.lost <= 7
    bus.until(lambda: len(reader.told) == 2 * reader.ledger.begun, "the notifications")
    assert reader.told == ["CREATE", "DELETE"] * reader.ledger.begun


@on_rings
def test_an_idle_session_that_shows_life_goes_on(bus: Bus) -> None:
    reader = Reader(bus, 5000)
    awake = ipcbus.Context(config(bus), domain=bus.domain)
    bus.contexts.append(awake)
    source = awake.source("t")
    bus.joined(source)
    reader.accounted(send(source, 1))
    activity = source._session.channel.ring
    first = _activity(activity)
    bus.until(lambda: _activity(activity) > first + 5, "signs of life")
    assert reader.ledger.ended == 0


def _activity(ring: Any) -> int:  # noqa: ANN401 - a mapping
    return int(ring_view(ring.view())[0]["activity"])


@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_a_receiver_without_room_does_not_take_its_source_for_silent(bus: Bus, asleep: Context) -> None:
    """What lies in the ring still has to be read; the silence is noticed after that."""
    reader = Reader(bus)
    full = reader.context.receiver("t", receive_queue_maximum=2)
    source = asleep.source("t")
    bus.joined(source)
    sent = send(source, 10)
    books = Books()
    control = Reader(bus)  # it notices the silence
    control.bus.until(lambda: control.receiver.sessions and control.receiver.sessions[0].state == "ended", "silence")
    assert reader.ledger.ended == 0
    while books.ended == 0:
        message = full.receive(GIVE_UP_S)
        assert message is not None
        books.enter(message)
    balanced(books.ledgers[source.source], sent)
    reader.accounted(sent)


@on_rings
def test_receivers_of_the_session_that_are_closed_meanwhile_get_nothing(bus: Bus, asleep: Context) -> None:
    reader = Reader(bus)
    source = asleep.source("t")
    bus.joined(source)
    reader.accounted(send(source, 3))
    reader.ended()
    reader.receiver.close()
    later = Books()
    reader.context.receiver("t", later.enter)
    send(source, 3)
    bus.joined(source)
    sent = send(source, 3)
    bus.until(lambda: source.source in later.ledgers and later.ledgers[source.source].next == sent, "the messages")
    assert later.ledgers[source.source].wrong == []
    assert reader.ledger.next == 3
    assert reader.told == ["CREATE", "DELETE"]


@on_rings
def test_every_receiver_is_told_of_every_end(bus: Bus, asleep: Context) -> None:
    reader = Reader(bus)
    kinds: list[MessageType] = []
    reader.context.wildcard_receiver(".*", lambda message: kinds.append(message.type))
    source = asleep.source("t")
    bus.joined(source)
    for life in range(1, 4):
        send(source, 1)
        bus.until(lambda life=life: kinds.count(MessageType.EOS) >= life, "the end")  # type: ignore[misc]
    assert kinds.count(MessageType.BOS) == kinds.count(MessageType.EOS)
    reader.ended(3)
