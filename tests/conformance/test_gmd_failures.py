"""Failures: timeouts, receivers that go away, nobody to deliver to; and what the application can do then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType, SourceEvent, SourceEventType
from tests.kit.bus import LBTIPC, LBTSMX, Bus, Kind
from tests.kit.guaranteed import MEMORY, Named, acknowledged, expected, send
from tests.kit.payload import body

if TYPE_CHECKING:
    from ipcbus import Message, Source

only_ipc = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
embedded = pytest.mark.parametrize("mode", ["embedded"])


@pytest.fixture(params=[LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    """A transport."""
    found: Kind = request.param
    return found


class Failing:
    """A guaranteed source with its events."""

    def __init__(self, bus: Bus, **options: object) -> None:
        self.bus = bus
        self.events: list[SourceEvent] = []
        given: dict[str, object] = {"gmd_name": "sender", "delivery_mode": "all", **MEMORY, **options}
        self.source: Source = bus.source("t", on_event=self.events.append, **given)

    def failures(self) -> list[SourceEvent]:
        """The failures so far."""
        return [event for event in self.events if event.type is SourceEventType.GMD_FAILURE]

    def fail(self, count: int) -> list[SourceEvent]:
        """Waits for so many failures."""
        self.bus.until(lambda: len(self.failures()) >= count, f"{count} failures, not {self.failures()}")
        return self.failures()


def keep_from_acknowledging(bus: Bus) -> list[Message]:
    """Makes a receiver that acknowledges nothing; returns what it gets."""
    got: list[Message] = []
    bus.receiver("t", got.append, gmd_name="receiver", ipc_gmd_auto_ack=False, **MEMORY)
    return got


def test_no_acknowledgement_in_time(bus: Bus) -> None:
    failing = Failing(bus)
    got = keep_from_acknowledging(bus)
    expected(bus, failing.source, "receiver")
    failing.source.send(body(1), headers={"key": b"k"}, delivery_timeout=0.05, flush=True)
    failing.source.send(body(2), flush=True)
    (failure,) = failing.fail(1)
    message = failure.message
    assert message is not None
    assert (failure.error_number, failure.receiver, failure.gmd_sequence_number) == (518, "receiver", 1)
    assert (message.data, message.headers, message.gmd_sequence_number) == (body(1), (("key", b"k"),), 1)
    assert failure.send_time_ns == message.send_time_ns
    assert failing.source.gmd_num_pending == 2
    status = failing.source.gmd_status(1)
    assert (status.standing.name, status.failed, status.pending) == ("FAILED", (("receiver", 518),), ())
    # An acknowledgement that comes late counts.
    bus.until(lambda: len(got) == 3, "both messages")
    for message in got:
        message.ack()
    acknowledged(bus, failing.source)
    assert len(failing.failures()) == 1


@only_ipc
@embedded
def test_the_timeout_of_the_source_holds_for_all(bus: Bus) -> None:
    failing = Failing(bus, delivery_timeout=1)
    keep_from_acknowledging(bus)
    expected(bus, failing.source, "receiver")
    failing.source.send(body(1), flush=True)
    failing.source.send(body(2), delivery_timeout=0, flush=True)
    (failure,) = failing.fail(1)
    assert (failure.error_number, failure.gmd_sequence_number) == (518, 1)


@embedded
def test_sent_again_after_a_failure(bus: Bus) -> None:
    failing = Failing(bus)
    got = keep_from_acknowledging(bus)
    expected(bus, failing.source, "receiver")
    failing.source.send(body(1), delivery_timeout=0.02, flush=True)
    failing.fail(1)
    assert failing.source.gmd_resend(1) == 1
    bus.until(lambda: len(got) == 3 or len(failing.failures()) == 2, "the message again, or its failure")
    failing.source.gmd_delete(1)
    assert failing.source.gmd_num_pending == 0
    assert not failing.source.gmd_delete(1)
    assert failing.source.gmd_resend() == 0


def test_nobody_is_there(bus: Bus) -> None:
    failing = Failing(bus, gmd_zero_receivers="failure")
    failing.source.send(body(1), flush=True)
    (failure,) = failing.fail(1)
    assert (failure.error_number, failure.receiver) == (521, "")
    named = Named(bus)
    expected(bus, failing.source, "receiver")
    send(bus, failing.source, 3)
    named.until(3)
    assert named.ledger.numbers == [2, 3, 4]
    assert failing.source.gmd_resend() == 1
    named.until(4)
    acknowledged(bus, failing.source)
    assert named.ledger.numbers == [2, 3, 4, 1]


def test_nobody_counts_as_success(bus: Bus) -> None:
    failing = Failing(bus, gmd_zero_receivers="success")
    send(bus, failing.source, 5)
    acknowledged(bus, failing.source)
    assert failing.failures() == []


@pytest.mark.parametrize(("disconnect_mode", "error"), [("gmd_failure", 520), ("gmd_success", 0), ("warm", 519)])
@embedded
def test_a_receiver_goes_away(bus: Bus, disconnect_mode: str, error: int) -> None:
    failing = Failing(bus, gmd_reconnect_timeout=1)
    context = bus.context()
    receiver = context.receiver("t", gmd_name="receiver", gmd_disconnect_mode=disconnect_mode, **MEMORY)
    expected(bus, failing.source, "receiver")
    send(bus, failing.source, 3)
    receiver.close()
    if error:
        failures = failing.fail(3)
        assert [(each.gmd_sequence_number, each.error_number) for each in failures] == [
            (number, error) for number in (1, 2, 3)
        ]
        assert failing.source.gmd_num_pending == 3
    else:
        acknowledged(bus, failing.source)
    assert failing.source.gmd_receivers == []


@only_ipc
@embedded
def test_a_failure_without_a_handler_is_logged_and_kept(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    sending = bus.source("t", gmd_name="sender", delivery_mode="all", gmd_zero_receivers="failure", **MEMORY)
    sending.send(body(1), flush=True)
    bus.until(lambda: "gmd_resend() or gmd_delete()" in caplog.text, "the warning")
    assert "guaranteed message 1 failed for receiver '' (521, no receivers)" in caplog.text
    assert sending.gmd_num_pending == 1


@only_ipc
@embedded
def test_a_forgotten_receiver_is_not_waited_for(bus: Bus) -> None:
    failing = Failing(bus)
    named, other = Named(bus), Named(bus, "other")
    expected(bus, failing.source, "receiver", "other")
    named.receiver.close()
    send(bus, failing.source, 5)
    other.until(5)
    bus.until(lambda: failing.source.gmd_status(5).pending == ("receiver",), "the other one's acknowledgements")
    assert failing.source.gmd_forget("receiver")
    acknowledged(bus, failing.source)
    assert not failing.source.gmd_forget("receiver")
    assert failing.source.gmd_receivers == ["other"]


@only_ipc
@embedded
def test_deliveries_are_confirmed(bus: Bus) -> None:
    failing = Failing(bus, gmd_confirm_delivery=True)
    named = Named(bus)
    expected(bus, failing.source, "receiver")
    send(bus, failing.source, 50)
    named.until(50)

    def confirmed() -> list[int]:
        return [
            number
            for event in failing.events
            if event.type is SourceEventType.GMD_DELIVERED
            for number in range(event.first_gmd_sequence_number, event.gmd_sequence_number + 1)
        ]

    bus.until(lambda: len(confirmed()) == 50, "all confirmations")
    assert confirmed() == list(range(1, 51))


@only_ipc
@embedded
def test_a_deleted_message_leaves_the_queue_of_its_receiver(bus: Bus) -> None:
    failing = Failing(bus)
    context = bus.context()
    receiver = context.receiver("t", gmd_name="receiver", **MEMORY)
    expected(bus, failing.source, "receiver")
    send(bus, failing.source, 5)
    bus.until(lambda: receiver.delivered == 5, "messages in the queue")
    assert failing.source.gmd_delete(3)
    bus.until(lambda: list(receiver._sink.queue)[-1].type is MessageType.GMD_FAILURE, "the news of the deletion")
    got = receiver.receive_many(10, 10)
    assert [message.gmd_sequence_number for message in got] == [0, 1, 2, 4, 5, 3]
    assert got[-1].type is MessageType.GMD_FAILURE
    assert "GMD_FAILURE 't' GMD 3..3 from" in repr(got[-1])
    assert (got[-1].gmd_sender, got[-1].first_gmd_sequence_number, got[-1].data) == ("sender", 3, b"")
    got[-1].ack()  # does nothing
    receiver.receive(0)
    acknowledged(bus, failing.source)


@embedded
def test_a_receiver_is_told_which_messages_it_need_not_process_any_more(bus: Bus) -> None:
    failing, named = Failing(bus), Named(bus, ipc_gmd_auto_ack=False)
    expected(bus, failing.source, "receiver")
    send(bus, failing.source, 6)
    named.until(6)
    (reception,) = named.context._receiving_sessions.receptions._all
    reception.gate.acknowledge(5)
    bus.until(lambda: failing.source.gmd_num_pending == 5, "the acknowledgement")
    for number in (2, 3, 5, 6):
        assert failing.source.gmd_delete(number) is (number != 5)
    bus.until(lambda: sorted(named.ledger.deleted) == [2, 3, 6], f"the news of three messages, not {named.ledger}")
    reception.gate.acknowledge(1)
    reception.gate.acknowledge(4)
    acknowledged(bus, failing.source)
    named.ledger.balanced(1, 6)


@only_ipc
@embedded
def test_unknown_numbers_are_answered(bus: Bus) -> None:
    failing = Failing(bus)
    assert failing.source.gmd_status(1).standing.name == "UNKNOWN"
    assert failing.source.gmd_status(-1).standing.name == "UNKNOWN"
    assert failing.source.gmd_resend(77) == 0
    assert not failing.source.gmd_delete(77)
    assert not failing.source.gmd_forget("nobody")
    assert failing.failures() == []


@pytest.mark.parametrize("mode", ["sequential"])
def test_a_deleted_message_that_waits_unread_does_not_reach_the_next_receiver_of_the_name(bus: Bus) -> None:
    failing = Failing(bus)
    first = Named(bus)
    expected(bus, failing.source, "receiver")
    for _ in range(5):  # they wait in the ring: nobody reads it yet
        failing.source.send(body(failing.source.gmd_sequence_number + 1), flush=True)
    before = first.context._receiving_sessions.sessions()
    first.receiver.close()
    assert failing.source.gmd_delete(3)
    named = Named(bus, context=first.context)
    goes_on = first.context._receiving_sessions.sessions() == before  # a busy machine may leave time to leave it
    named.until(4)
    acknowledged(bus, failing.source)
    assert named.ledger.numbers == [1, 2, 4, 5]
    # Then the next receiver joins the ring where the deleted message still is.
    lost = int(goes_on and not bus.kind.over_udp)
    assert (first.ledger.numbers, named.ledger.lost, named.ledger.deleted) == ([], lost, [])
