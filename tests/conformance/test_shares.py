"""Shares: each message goes to one member, until it is acknowledged; others get everything."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageFlag, MessageType, SourceEventType
from ringbuf.layout import control_view, ring_view
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTRU, LBTTCP, Bus, on_all
from tests.kit.forms import FORMS, Taker
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context, Message, Receiver, Source, SourceEvent
    from ipcbus.transport.sending_session import SendingSession

embedded = pytest.mark.parametrize("mode", ["embedded"])
only_ipc = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))


class Member:
    """A member of a share, in a context of its own unless one is given."""

    def __init__(self, bus: Bus, share: str = "workers", context: Context | None = None, **options: object) -> None:
        self.messages: list[Message] = []
        self.fails = False
        self.receiver: Receiver = bus.receiver("t", self.take, context, share=share, **options)

    def take(self, message: Message) -> None:
        if message.type in (MessageType.DATA, MessageType.REQUEST):
            self.messages.append(message)
            if self.fails:
                raise RuntimeError("this message cannot be worked off")

    @property
    def data(self) -> list[bytes]:
        """What it got."""
        return [message.data for message in self.messages]


def joined(bus: Bus, source: Source, receivers: int) -> None:
    """Waits as `wait_for_receivers` does, driving the contexts."""
    bus.until(lambda: source._joined() >= receivers, f"{receivers} receivers")


def settled(bus: Bus, source: Source, share: str = "workers") -> ipcbus.ShareStatistics:
    """Waits until a share has no message left, and returns its figures."""
    bus.until(lambda: source.shares[share].pending == 0, "the work to be done")
    return source.shares[share]


def send(source: Source, first: int, last: int) -> list[bytes]:
    """Sends these messages."""
    messages = [body(number) for number in range(first, last)]
    source.send_many(messages, flush=True)
    return messages


@on_all
def test_each_message_goes_to_one_member_and_to_all_others(bus: Bus) -> None:
    source, got = bus.source(), list[bytes]()
    members = [Member(bus), Member(bus), Member(bus, "auditors")]
    bus.context("other").receiver("t", on_data=got.append)
    joined(bus, source, 4)
    messages = [message for first in range(0, 300, 50) for message in send(source, first, first + 50)]
    found = settled(bus, source)
    bus.until(lambda: len(got) == 300 and len(members[2].messages) == 300, "the others")
    first, second, auditor = (member.data for member in members)
    assert sorted(first + second) == sorted(messages)
    assert min(len(first), len(second)) > 0
    assert auditor == got == messages
    assert (found.members, found.consumed, found.lost, found.reassigned) == (2, 300, 0, 0)
    assert {message.flags for message in members[0].messages} == {MessageFlag.UMQ_ULB}
    assert {message.gmd_sequence_number for message in members[0].messages} == {0}


@pytest.mark.parametrize("kind", [LBTIPC, LBTRU, LBTTCP], ids=lambda kind: str(kind.name))
def test_a_long_message_counts_once_from_the_moment_it_is_sent(bus: Bus) -> None:
    source = bus.source()
    busy = Member(bus, ipc_gmd_auto_ack=False, umq_ulb_receiver_portion=1)
    joined(bus, source, 1)
    long = bytes(200_000)
    for sent in range(1, 6):
        source.send(long)  # its last fragments wait in the batch
        found = source.shares["workers"]
        assert found.pending + found.consumed + found.lost == sent
    source.flush()
    for taken in range(1, 6):
        bus.until(lambda: len(busy.messages) == taken, "a message")  # noqa: B023 - called at once
        busy.messages[-1].ack()
    assert settled(bus, source).consumed == 5


@embedded
@only_ipc
@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.name))
def test_every_form_of_receiving_acknowledges(bus: Bus, form: type[Taker]) -> None:
    source, taker = bus.source(), form(bus, share="workers")
    joined(bus, source, 1)
    messages = send(source, 0, 100)
    assert taker.data(100) == messages
    if form.name != "callback":
        taker.receiver.receive_many(10, 0)  # acknowledges the last message; nothing comes
    assert settled(bus, source).consumed == 100


@embedded
@only_ipc
def test_what_a_closed_member_has_not_acknowledged_goes_to_another_one(bus: Bus) -> None:
    source = bus.source()
    idle = Member(bus, ipc_gmd_auto_ack=False, umq_ulb_receiver_portion=5)
    joined(bus, source, 1)
    messages = send(source, 0, 20)
    bus.until(lambda: len(idle.messages) == 5, "its portion")
    assert (source.shares["workers"].in_flight, source.shares["workers"].pending) == (5, 20)
    idle.messages[0].ack()
    bus.until(lambda: len(idle.messages) == 6, "the next message")
    busy = Member(bus)
    joined(bus, source, 2)
    bus.until(lambda: len(busy.messages) == 14, "the rest")
    idle.receiver.close()
    found = settled(bus, source)
    assert (found.consumed, found.reassigned, found.members) == (20, 5, 1)
    assert sorted(idle.data[:1] + busy.data) == sorted(messages)
    again = [message.data for message in busy.messages if message.flags & MessageFlag.UMQ_REASSIGNED]
    assert again == messages[1:6]


@embedded
@only_ipc
def test_a_message_that_is_refused_comes_again_and_is_given_up_at_last(bus: Bus) -> None:
    events: list[SourceEvent] = []
    options = {"umq_ulb_message_max_reassignments": 3, "umq_ulb_dead_letter_topic": "dead"}
    source = bus.source(on_event=events.append, **options)
    member, dead = Member(bus), list[ipcbus.Message]()
    bus.receiver("dead", dead.append, events=False)
    joined(bus, source, 1)
    member.fails = True
    source.send(b"poison", headers={"name": b"value"}, flush=True)
    found = settled(bus, source)
    assert (found.consumed, found.lost, found.reassigned, found.dead_letters) == (0, 1, 2, 1)
    bus.until(lambda: SourceEventType.SHARE_FAILURE in [event.type for event in events], "the event")
    event = next(event for event in events if event.type is SourceEventType.SHARE_FAILURE)
    assert (event.share, event.first_sequence_number, event.sequence_number, event.deliveries) == ("workers", 0, 0, 3)
    assert "max_reassignments" in event.reason
    assert member.data == [b"poison"] * 3
    bus.until(lambda: dead, "the message on the other topic")
    (letter,) = dead
    assert letter.data == b"poison"
    headers = dict(letter.headers)
    assert (headers.pop("umq_source"), headers.pop("umq_reason")) == (source.source.encode(), event.reason.encode())
    origin = {"umq_topic": b"t", "umq_share": b"workers", "umq_sequence_number": b"0", "umq_deliveries": b"3"}
    assert headers == {"name": b"value", **origin}
    with pytest.raises(ipcbus.ConfigError, match="dead_letter"):
        bus.source("dead", umq_ulb_dead_letter_topic="dead")


@embedded
@only_ipc
def test_what_is_not_acknowledged_in_time_goes_to_another_member(bus: Bus) -> None:
    source = bus.source(umq_ulb_message_reassignment_timeout=20)
    hung = Member(bus, ipc_gmd_auto_ack=False, umq_ulb_receiver_portion=2)
    joined(bus, source, 1)
    messages = send(source, 0, 10)
    bus.until(lambda: len(hung.messages) == 2, "its portion")
    busy = Member(bus)
    found = settled(bus, source)
    assert (found.consumed, found.reassigned) == (10, 2)
    assert sorted(busy.data) == sorted(messages)
    assert hung.data == messages[:2]


@embedded
@only_ipc
def test_a_send_waits_for_members_that_are_behind(bus: Bus) -> None:
    events: list[SourceEvent] = []
    source = bus.source(umq_ulb_flight_size=10, on_event=events.append)
    member = Member(bus, ipc_gmd_auto_ack=False, umq_ulb_receiver_portion=4)
    joined(bus, source, 1)
    with pytest.raises(ipcbus.WouldBlock, match="umq_ulb_flight_size"):
        for number in range(1000):
            source.send(body(number), flush=True, block=False)
    sent = source.sequence_number + 1
    assert 10 <= sent < 1000

    def is_done() -> bool:
        messages = list(member.messages)
        for message in messages:
            message.ack()
        return len(messages) == sent

    bus.until(is_done, "all messages")
    assert settled(bus, source).consumed == sent
    bus.until(lambda: SourceEventType.WAKEUP in [event.type for event in events], "the event")
    source.send(b"more", flush=True)


@embedded
@only_ipc
def test_a_send_waits_for_members_that_have_many_bytes_to_work_off(bus: Bus) -> None:
    source = bus.source(retransmit_retention_size_limit=1 << 20)
    member = Member(bus, ipc_gmd_auto_ack=False)
    joined(bus, source, 1)
    sent = 0
    with pytest.raises(ipcbus.WouldBlock, match="retransmit_retention_size_limit"):
        while sent < 40:  # less than the window
            source.send(bytes(50_000), flush=True, block=False)
            sent += 1
    assert 11 <= sent < 20
    bus.until(lambda: len(member.messages) == sent, "all messages")
    for message in member.messages:
        message.ack()
    assert settled(bus, source).lost == 0
    source.send(b"more", flush=True)


@embedded
@only_ipc
def test_a_message_that_alone_takes_more_than_that_goes_through(bus: Bus) -> None:
    source = bus.source(retransmit_retention_size_limit=1 << 20)
    member = Member(bus)
    joined(bus, source, 1)
    messages = [bytes([number]) * 900_000 for number in range(5)]
    for message in messages:
        source.send(message)
    source.flush()
    assert settled(bus, source).lost == 0
    assert member.data == messages


@embedded
@only_ipc
def test_a_share_without_members_keeps_some_messages_and_reports_the_others(bus: Bus) -> None:
    events: list[SourceEvent] = []
    source = bus.source(on_event=events.append, umq_ulb_flight_size=10)
    first = Member(bus)
    joined(bus, source, 1)
    first.receiver.close()
    bus.until(lambda: source.shares["workers"].members == 0, "the end of the member")
    messages = send(source, 0, 25)
    bus.until(lambda: source.shares["workers"].lost == 15, "the losses")
    second = Member(bus)
    found = settled(bus, source)
    assert (found.consumed, found.lost) == (10, 15)
    assert second.data == messages[15:]
    lost = [event.sequence_number for event in events if event.type is SourceEventType.SHARE_FAILURE]
    assert lost == list(range(15))


@embedded
@only_ipc
@pytest.mark.parametrize("what", ["source", "context"])
def test_what_members_have_not_done_when_the_source_closes_is_reported(
    bus: Bus, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    events: list[SourceEvent] = []
    source = bus.source(on_event=events.append)
    first = Member(bus)
    joined(bus, source, 1)
    done = send(source, 0, 5)
    settled(bus, source)
    first.receiver.close()
    bus.until(lambda: source.shares["workers"].members == 0, "the end of the member")
    send(source, 5, 35)
    if what == "source":
        source.close()
    else:
        source._context.close()
    assert first.data == done
    lost = [event for event in events if event.type is SourceEventType.SHARE_FAILURE]
    # A context that closes calls nothing back.
    assert [event.sequence_number for event in lost] == (list(range(5, 35)) if what == "source" else [])
    assert {event.reason for event in lost} <= {"the source was closed"}
    (text,) = [record.getMessage() for record in caplog.records if "have not done" in record.getMessage()]
    assert "members of share 'workers' have not done 30 of its messages" in text


@embedded
@only_ipc
def test_long_messages_headers_and_requests_go_to_members(bus: Bus) -> None:
    source, member = bus.source(), Member(bus)
    joined(bus, source, 1)
    source.send(bytes(100_000))
    source.send(b"with", headers={"name": b"value"}, flush=True)
    bus.until(lambda: len(member.messages) == 2, "both")
    long, with_headers = member.messages
    assert (len(long), long.first_sequence_number) == (100_000, 0)
    assert (with_headers.sequence_number, with_headers.headers) == (long.sequence_number + 1, (("name", b"value"),))
    answering = bus.context().receiver(
        "asked", lambda m: m.respond(b"!") if m.type is MessageType.REQUEST else None, share="workers"
    )
    asking = bus.source("asked")
    joined(bus, asking, 1)
    assert asking.request(b"?", timeout=20).data == b"!"
    answering.close()


@embedded
@only_ipc
def test_close_waits_until_members_have_done_their_work(bus: Bus) -> None:
    source, member = bus.source(), Member(bus, umq_ulb_receiver_portion=1)
    joined(bus, source, 1)
    messages = [body(number) for number in range(20)]
    source.send_many(messages)  # in the open batch
    source.close()
    assert member.data == messages


def test_a_message_that_comes_alone_wakes_its_member_only(domain: str) -> None:
    came = threading.Semaphore(0)
    with ipcbus.Context(domain=domain, operational_mode="sequential") as sending, contextlib.ExitStack() as stack:
        source = sending.source("t")
        members = [stack.enter_context(ipcbus.Context(domain=domain)) for _ in range(3)]
        for member in members:
            member.receiver("t", on_data=lambda _: came.release(), share="workers")
        source.wait_for_receivers(3, GIVE_UP_S)
        session, control = source._session, source._session.channel.control
        everyone = (1 << 3) - 1

        def sleeps() -> bool:
            """Whether all members have read what there is, and have nothing to do but sleep."""
            return control_view(control.view())[0]["parked"] == everyone and not sending.process_events(0)

        source.send(b"", flush=True)  # each member reads the beginning of the session
        session.wake_unread()
        assert came.acquire(timeout=GIVE_UP_S)
        wait_until(lambda: source.shares["workers"].pending == 0 and sleeps(), sending)
        for _ in range(3):
            woken = wakes_sent(session)
            source.send(b"", flush=True)  # nothing drives its context
            assert came.acquire(timeout=GIVE_UP_S)
            assert wakes_sent(session) == woken + 1
            wait_until(lambda: source.shares["workers"].pending == 0 and sleeps(), sending)
        other = members[0].receiver("t", share="")  # it needs the records
        source.wait_for_receivers(4, GIVE_UP_S)
        source.send(b"seen by all", flush=True)
        assert data_of(other) == b"seen by all"


@pytest.mark.parametrize("transport", ["lbttcp", "lbtru"])
def test_a_message_over_the_network_leaves_with_its_send(domain: str, transport: str) -> None:
    done: list[bytes] = []
    with ipcbus.Context(domain=domain, operational_mode="sequential") as sending, contextlib.ExitStack() as stack:
        working, receiving = (stack.enter_context(ipcbus.Context(domain=domain)) for _ in range(2))
        source = sending.source("t", transport=transport)
        working.receiver("t", on_data=done.append, share="workers")
        other = receiving.receiver("t")
        wait_until(lambda: source._joined() >= 2, sending)
        session = source._session
        source.send(b"first", flush=True)
        # Its readers that sleep are woken after a while.
        wait_until(lambda: bool(done) and session._all_woken_at == session.channel.writer.head, sending)
        assert data_of(other) == b"first"
        source.send(b"second", flush=True)  # nothing drives its context
        assert data_of(other) == b"second"


@pytest.mark.parametrize("transport", ["lbtipc", "lbttcp", "lbtru"])
def test_what_waits_is_kept_when_a_long_message_follows(domain: str, transport: str) -> None:
    done: list[int] = []
    with (
        ipcbus.Context(domain=domain, operational_mode="sequential") as sending,
        ipcbus.Context(domain=domain) as working,
    ):
        working.receiver("t", on_data=lambda data: done.append(len(data)), share="workers")
        source = sending.source("t", transport=transport, retransmit_retention_size_limit=1 << 20)
        wait_until(lambda: source._joined() >= 1, sending)
        source.send_many([bytes(450_000), bytes(900_000)])  # together more than the source keeps
        source.flush()
        wait_until(lambda: source.shares["workers"].pending == 0, sending)
        assert (source.shares["workers"].lost, done) == (0, [450_000, 900_000])


@embedded
@on_all
def test_a_message_that_cannot_be_kept_for_members_is_refused(bus: Bus) -> None:
    events: list[SourceEvent] = []
    limit, got = 1 << 18, list[bytes]()
    options: dict[str, object] = {"message_max": 300_000} if bus.kind.transport == "lbtsmx" else {}
    source = bus.source(retransmit_retention_size_limit=limit, on_event=events.append, **options)
    bus.context("other").receiver("t", on_data=got.append)
    joined(bus, source, 1)
    source.send(bytes(290_000))  # no share needs it
    member = Member(bus)
    joined(bus, source, 2)
    for send_long in (
        lambda: source.send(bytes(290_000)),
        lambda: source.send(bytes(290_000), headers={"name": b"value"}, block=False),
        lambda: source.send_many([bytes(290_000)]),
    ):
        with pytest.raises(ipcbus.MessageTooLarge, match=f"topic 't'.*retransmit_retention_size_limit = {limit};"):
            send_long()
    if options:
        with pytest.raises(ipcbus.MessageTooLarge, match="retransmit_retention_size_limit"), source.acquire(290_000):
            pass
    source.send(bytes(200_000), flush=True)
    assert settled(bus, source).lost == 0
    bus.until(lambda: len(got) == 2, "the others")
    assert ([len(data) for data in member.data], [len(data) for data in got]) == ([200_000], [290_000, 200_000])
    assert SourceEventType.SHARE_FAILURE not in [event.type for event in events]


@embedded
@on_all
def test_the_refusal_names_the_limit_that_is_enough(bus: Bus) -> None:
    options: dict[str, object] = {"message_max": 300_000} if bus.kind.transport == "lbtsmx" else {}
    source, member = bus.source(retransmit_retention_size_limit=1 << 18, **options), Member(bus)
    joined(bus, source, 1)
    with pytest.raises(ipcbus.MessageTooLarge) as refusal:
        source.send(bytes(290_000))
    (enough,) = re.findall(r"make the source with retransmit_retention_size_limit=(\d+)", str(refusal.value))
    enough = int(enough)
    for number, limit in enumerate((enough - 1, enough)):
        source = bus.source(f"t{number}", retransmit_retention_size_limit=limit, **options)
        other = bus.receiver(f"t{number}", member.take, share="workers")
        joined(bus, source, 1)
        if limit < enough:
            with pytest.raises(ipcbus.MessageTooLarge):
                source.send(bytes(290_000))
        else:
            source.send(bytes(290_000), flush=True)
            assert settled(bus, source).consumed == 1
        other.close()


def data_of(receiver: Receiver) -> bytes:
    """Returns the next message of a receiver whose context drives itself."""
    while True:
        message = receiver.receive(GIVE_UP_S)
        assert message is not None
        if message.type is MessageType.DATA:
            return message.data


def wakes_sent(session: SendingSession) -> int:
    """How many sleeping readers a session has woken."""
    return int(ring_view(session.channel.ring.view())[0]["wakes_sent"])


def wait_until(condition: Callable[[], bool], context: Context) -> None:
    """Drives a context until something holds."""
    until = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < until
        context.process_events(0.001)


def test_a_member_has_no_name_of_its_own(domain: str) -> None:
    with ipcbus.Context(domain=domain) as context, pytest.raises(ipcbus.ConfigError, match="share"):
        context.receiver("t", share="workers", gmd_name="one")
