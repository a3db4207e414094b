"""A receiver that is made late gets what the source kept, in order, each message once, before the live messages."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageFlag, MessageType, wait_for_joining
from ipcbus.runtime.receiving import receiver_channels
from ipcbus.runtime.sending import control_channels
from ipcbus.transport.ring.pipe_link import ReceiverPipeLink
from tests.kit.bus import GIVE_UP_S, KINDS, LBTIPC, LBTRM, LBTRU, LBTSMX, Bus, Kind
from tests.kit.forms import FORMS, CallbackTaker, ReceiveTaker, Taker
from tests.kit.payload import Books, Ledger, balanced, body

if TYPE_CHECKING:
    from ipcbus import Context, Message, Receiver, Source

only_rings = pytest.mark.parametrize("kind", [LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
only_ipc = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
sequential = pytest.mark.parametrize("mode", ["sequential"])
embedded = pytest.mark.parametrize("mode", ["embedded"])


@pytest.fixture(params=[*KINDS, LBTRM], ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    """A transport that has late join."""
    found: Kind = request.param
    return found


class Reader:
    """A receiver with a ledger, and the flags of its messages by number."""

    def __init__(self, bus: Bus, context: Context | None = None, topic: str = "t", **options: object) -> None:
        self.bus, self.books = bus, Books()
        self.flags: dict[int, int] = {}
        self.context = context or bus.context("late")
        self.receiver: Receiver = self.context.receiver(topic, self._on_message, **options)

    def _on_message(self, message: Message) -> None:
        self.books.enter(message)
        if message.type is MessageType.DATA:
            self.flags[message.sequence_number] = message.flags

    @property
    def ledger(self) -> Ledger:
        """The ledger of its only source."""
        return next(iter(self.books.ledgers.values()), Ledger())

    def account(self, sent: int, first: int = 0) -> None:
        """Receives until every number from `first` to below `sent` came or was reported lost."""
        self.bus.until(lambda: self.books.accounted >= sent - first, f"{sent - first} messages, not {self.ledger}")
        balanced(self.ledger, sent, first=first)

    def recovered(self) -> list[int]:
        """The numbers of the messages that came by late join."""
        return [number for number, flags in self.flags.items() if flags & MessageFlag.LATE_JOIN]


def send(bus: Bus, source: Source, count: int, size: int = 64) -> int:
    """Sends so many messages, and drives the receivers meanwhile; returns how many numbers are used in all."""
    for number in range(count):
        source.send(body(source.sequence_number + 1, size))
        if number % 32 == 31:
            source.flush()
            bus.turn()
    source.flush()
    return source.sequence_number + 1


def keeping(bus: Bus, **options: object) -> Source:
    """A source that keeps what it sent."""
    return bus.source(late_join=1, **options)


def serving(bus: Bus) -> Source:
    """The same in a context that serves by itself, for receivers that wait in a call."""
    return bus.source(context=bus.context("serving", mode="embedded"), late_join=1)


def test_what_was_sent_before_comes_first_and_is_flagged(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 300)
    late = Reader(bus)
    late.account(sent)
    assert late.recovered() == list(range(sent))
    sent = send(bus, source, 100)
    late.account(sent)
    assert late.ledger.lost == 0
    assert late.recovered() == list(range(300))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.name))
def test_every_form_of_receiving_gets_it(bus: Bus, form: type[Taker]) -> None:
    source = serving(bus)
    messages = [body(number) for number in range(200)]
    for message in messages:
        source.send(message)
    source.flush()
    taker = form(bus)
    assert taker.data(200) == messages


@sequential
def test_a_wildcard_receiver_gets_it_too(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 100)
    taker = CallbackTaker(bus, "t|u", wildcard=True)
    assert taker.data(sent) == [body(number) for number in range(sent)]


@sequential
@pytest.mark.parametrize("kind", [LBTRU], ids=["lbtru"])
def test_receivers_that_are_made_while_the_channel_is_broken_get_it_too(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, other = keeping(bus), keeping(bus, topic="u")
    sent = send(bus, source, 100)
    send(bus, other, 100)
    first = Reader(bus)
    first.account(sent)
    monkeypatch.setattr(receiver_channels, "_OPEN_AGAIN_NS", 10**18)
    for opened in first.context._receiving_sessions.channels._channels.values():
        opened.channel.close()
    late = [Reader(bus, first.context), Reader(bus, first.context, "u")]
    bus.joined(other)
    send(bus, source, 10)
    send(bus, other, 10)
    monkeypatch.undo()
    for each in late:
        each.account(sent + 10)
        assert each.recovered()[:100] == list(range(100))


def test_without_the_option_nothing_changes(bus: Bus) -> None:
    source = bus.source()
    sent = send(bus, source, 50)
    late = Reader(bus)
    bus.joined(source)
    source.send(body(sent), flush=True)
    late.account(sent + 1, first=sent)
    assert late.recovered() == []


def test_a_receiver_may_want_nothing_of_it(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 50)
    readers = [Reader(bus, use_late_join=0), Reader(bus, history=0)]
    bus.joined(source, 2)
    source.send(body(sent), flush=True)
    for late in readers:
        late.account(sent + 1, first=sent)
        assert late.recovered() == []


@sequential
@pytest.mark.parametrize("options", [{"history": 10}, {"retransmit_request_maximum": 10}])
def test_a_receiver_may_want_the_last_messages_only(bus: Bus, options: dict[str, object]) -> None:
    source = keeping(bus)
    sent = send(bus, source, 50)
    late = Reader(bus, **options)
    late.account(sent, first=sent - 10)
    assert late.recovered() == list(range(sent - 10, sent))


@sequential
def test_no_history_given_is_all_of_it(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 50)
    late = Reader(bus, history=None)
    late.account(sent)
    with pytest.raises(ipcbus.ConfigError, match="history"):
        late.context.receiver("t", history=-2)


def test_two_late_joiners_get_it_each(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 200)
    readers = [Reader(bus), Reader(bus)]
    for late in readers:
        late.account(sent)
    sent = send(bus, source, 50)
    for late in readers:
        late.account(sent)
        assert late.recovered() == list(range(200))


def test_a_second_receiver_of_the_context_gets_its_own_history(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 100)
    first = Reader(bus)
    first.account(sent)
    sent = send(bus, source, 100)
    second = Reader(bus, first.context)
    second.account(sent)
    first.account(sent)
    sent = send(bus, source, 50)
    for reader in (first, second):
        reader.account(sent)
        assert reader.ledger.lost == 0
    assert first.recovered() == list(range(100))
    recovered = second.recovered()
    assert len(recovered) > 100  # the last ones may have come live
    assert recovered == list(range(len(recovered)))


@sequential
def test_receivers_of_one_context_that_want_different_amounts_get_them(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 100)
    everything = Reader(bus)
    everything.account(sent)
    some, live = Reader(bus, everything.context, history=10), Reader(bus, everything.context, use_late_join=0)
    some.account(sent, first=90)
    sent = send(bus, source, 50)
    for reader, first in (everything, 0), (some, 90), (live, 100):
        reader.account(sent, first=first)
        assert reader.ledger.lost == 0


@sequential
def test_receivers_that_wait_together_get_the_amount_that_each_wants(bus: Bus) -> None:
    """Both of them ask before the source answers either."""
    source = keeping(bus)
    sent = send(bus, source, 100)
    live = Reader(bus, use_late_join=0)
    bus.joined(source)
    some, more = Reader(bus, live.context, history=10), Reader(bus, live.context, history=30)
    for _ in range(20):
        live.context.process_events(0)
    some.account(sent, first=90)
    more.account(sent, first=70)
    sent = send(bus, source, 50)
    for reader, first in (some, 90), (more, 70), (live, 100):
        reader.account(sent, first=first)
        assert reader.ledger.lost == 0


@sequential
@pytest.mark.parametrize("got", [0, 1])
def test_a_receiver_beside_a_late_join_that_runs_gets_no_more_than_it_wants(bus: Bus, got: int) -> None:
    source = keeping(bus)
    sent = send(bus, source, 3000)
    everything = Reader(bus)
    bus.joined(source)  # over UDP it is known then where live messages begin
    bus.until(lambda: everything.ledger.delivered >= got, "the first messages of the late join")
    some, live = Reader(bus, everything.context, history=10), Reader(bus, everything.context, history=0)
    never = Reader(bus, everything.context, use_late_join=0)
    everything.account(sent)
    some.account(sent, first=2990)
    sent = send(bus, source, 50)
    for reader, first in (everything, 0), (some, 2990), (live, 3000), (never, 3000):
        reader.account(sent, first=first)
        assert reader.ledger.lost == 0


@sequential
def test_history_counts_what_was_sent_before_the_receiver_joined(bus: Bus) -> None:
    """Messages that are sent until the source answers are live ones."""
    source = keeping(bus)
    send(bus, source, 100)
    first = Reader(bus, history=10)
    if bus.kind.over_udp:
        bus.joined(source)  # live messages begin when the source has registered the receiver
    for _ in range(20):
        first.context.process_events(0)
    for number in range(100, 150):
        source.send(body(number), flush=True)
    first.account(150, first=90)
    later = Reader(bus, first.context, history=10)
    for number in range(150, 200):
        source.send(body(number), flush=True)
    later.account(200, first=140)
    for reader in first, later:
        reader.account(200, first=reader.ledger.first)
        assert reader.ledger.lost == 0


@sequential
def test_a_late_joiner_beside_one_that_wants_live_messages_only(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 100)
    live = Reader(bus, use_late_join=0)
    bus.joined(source)
    late = Reader(bus, live.context)
    late.account(sent)
    sent = send(bus, source, 50)
    live.account(sent, first=100)
    late.account(sent)
    assert late.recovered()[:100] == list(range(100))


@embedded
def test_a_late_joiner_in_the_middle_of_live_traffic(bus: Bus) -> None:
    """The source sends on while the late joiner recovers, and the ring goes round many times."""
    source = keeping(bus, **bus.kind.small())
    early = Reader(bus)
    bus.joined(source)
    stop = threading.Event()

    def feed() -> None:
        while not stop.is_set():
            for _ in range(50):
                source.send(body(source.sequence_number + 1))
            source.flush()
            stop.wait(0.001)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        bus.until(lambda: early.ledger.delivered > 3000, "some traffic")
        readers = [Reader(bus), Reader(bus)]
        goal = source.sequence_number + 3000
        bus.until(lambda: all(reader.ledger.next > goal for reader in readers), f"{goal} messages")
    finally:
        stop.set()
        thread.join(GIVE_UP_S)
    sent = source.sequence_number + 1
    for reader in readers:
        reader.account(sent)
        recovered = reader.recovered()
        assert recovered[:3000] == list(range(3000))
        if not bus.kind.source_paced:
            assert reader.ledger.lost == 0
            assert recovered == sorted(set(recovered))  # live messages that waited may come between them


@only_ipc
@sequential
def test_what_ran_out_of_the_retention_before_is_not_a_loss(bus: Bus) -> None:
    source = keeping(bus, retransmit_retention_size_limit=65536)
    sent = send(bus, source, 5000)
    late = Reader(bus)
    bus.until(lambda: late.ledger.next == sent, "the last message")
    assert 0 < late.ledger.first < sent - 100
    balanced(late.ledger, sent, first=late.ledger.first)
    assert late.ledger.lost == 0


def test_messages_in_fragments_and_with_headers(bus: Bus) -> None:
    if bus.kind is LBTSMX:
        pytest.skip("LBT-SMX has no fragments")
    source = serving(bus)
    long = body(0, 50_000)
    source.send(long)
    source.send(b"with", headers={"a": b"1"})
    source.flush()
    taker = ReceiveTaker(bus)
    taker.take(lambda: taker.count() >= 2)
    assert [got.data for got in taker.got if got.type is MessageType.DATA] == [long, b"with"]
    assert all((got.flags or 0) & MessageFlag.LATE_JOIN for got in taker.got if got.type is MessageType.DATA)


@sequential
@pytest.mark.parametrize("ordered", [-1, 0])
def test_out_of_order_each_number_once(bus: Bus, ordered: int) -> None:
    if bus.kind is LBTSMX and ordered == 0:
        pytest.skip("LBT-SMX refuses it")
    source = keeping(bus)
    sent = send(bus, source, 100)
    taker = CallbackTaker(bus, ordered_delivery=ordered)
    bus.joined(source)
    sent = send(bus, source, 100)
    taker.data(sent)
    assert sorted(taker.numbers) == list(range(sent))


def test_a_source_that_closes_waits_for_the_recovery(bus: Bus) -> None:
    source = serving(bus)
    sent = send(bus, source, 2000)
    late = Reader(bus)
    bus.joined(source)
    closing = threading.Thread(target=source.close)
    closing.start()
    bus.until(lambda: late.ledger.ended, "the end")
    closing.join(GIVE_UP_S)
    balanced(late.ledger, sent)
    assert late.ledger.lost == 0


@only_rings
@embedded
def test_a_source_that_closes_waits_for_a_receiver_that_has_no_channel_yet(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver stands still between its join and its first request, for as long as it likes."""
    monkeypatch.setattr(control_channels, "_CALLED_NS", 0)
    monkeypatch.setattr(control_channels, "_CAME_NS", 0)
    held, waited = threading.Event(), threading.Semaphore(0)
    attend, let_work = ReceiverPipeLink.attend, wait_for_joining._let_work

    def stands_still(link: ReceiverPipeLink) -> bool:
        return attend(link) if held.is_set() else False

    def counts(context: Context) -> None:
        waited.release()
        let_work(context)

    monkeypatch.setattr(ReceiverPipeLink, "attend", stands_still)
    monkeypatch.setattr(wait_for_joining, "_let_work", counts)
    source = bus.source(late_join=1, retransmit_close_timeout=int(GIVE_UP_S * 1000))
    sent = send(bus, source, 2000)
    late = Reader(bus)
    bus.joined(source)
    closing = threading.Thread(target=source.close)
    closing.start()
    looks = 0
    while closing.is_alive() and looks < 20:
        looks += waited.acquire(timeout=0.01)
    held.set()
    bus.until(lambda: late.ledger.ended, "the end")
    closing.join(GIVE_UP_S)
    balanced(late.ledger, sent)
    assert late.ledger.lost == 0


@embedded
def test_a_source_that_closes_does_not_wait_for_a_receiver_that_has_left(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receivers that have called, if only to say that they leave, count as about to ask for ever here."""
    monkeypatch.setattr(control_channels, "_CALLED_NS", 1 << 62)
    source = serving(bus)
    sent = send(bus, source, 20)
    late = Reader(bus)
    late.account(sent)
    channels = bus.contexts[0]._sending_sessions.control_channels
    assert channels.is_recovering(source._session, source._number, ())
    late.context.close()
    bus.until(lambda: not channels.is_recovering(source._session, source._number, ()), "the receiver to be forgotten")


@sequential
def test_a_source_that_closes_without_waiting_leaves_a_loss(bus: Bus) -> None:
    source = keeping(bus, retransmit_close_timeout=0)
    sent = send(bus, source, 2000)
    late = Reader(bus)
    bus.joined(source)
    source.close()
    bus.until(lambda: late.ledger.ended, "the end")
    if late.ledger.first >= 0:
        balanced(late.ledger, sent, first=late.ledger.first)


def test_a_pull_receiver_without_room_gets_the_rest_later(bus: Bus) -> None:
    source = serving(bus)
    sent = send(bus, source, 500)
    context = bus.context("slow")
    receiver = context.receiver("t", receive_queue_maximum=5)
    books = Books()
    while books.accounted < sent:
        message = receiver.receive(GIVE_UP_S)
        assert message is not None
        books.enter(message)
    (ledger,) = books.ledgers.values()
    balanced(ledger, sent)
    assert ledger.lost == 0


@embedded
def test_the_end_comes_after_what_a_receiver_without_room_still_gets(bus: Bus) -> None:
    source = keeping(bus, retransmit_close_timeout=500)
    sent = send(bus, source, 500)
    receiver = bus.context("slow").receiver("t", receive_queue_maximum=5)
    bus.joined(source)
    books = Books()
    first = receiver.receive(GIVE_UP_S)
    assert first is not None
    books.enter(first)
    source.close()
    while not (books.ledgers and next(iter(books.ledgers.values())).ended):
        message = receiver.receive(GIVE_UP_S)
        assert message is not None
        books.enter(message)
    (ledger,) = books.ledgers.values()
    balanced(ledger, sent)
    assert ledger.lost == 0


def test_an_event_queue_gets_it(bus: Bus) -> None:
    source = keeping(bus)
    sent = send(bus, source, 300)
    queue = ipcbus.EventQueue(50)
    books = Books()
    bus.context("queued").receiver("t", books.enter, event_queue=queue)

    def turn() -> bool:
        queue.dispatch(0)
        return books.accounted >= sent

    bus.until(turn, "the messages")
    (ledger,) = books.ledgers.values()
    balanced(ledger, sent)
    queue.close()


@embedded
def test_a_source_that_closes_at_once_waits_for_receivers_that_are_joining(bus: Bus) -> None:
    """Their context receives another such topic of the session already, so that it has a control channel."""
    sending, receiving = bus.context("sending"), bus.context("late")
    other = bus.source("other", sending, **bus.kind.id(100), late_join=1)
    bus.receiver("other", lambda message: None, receiving)
    bus.joined(other)
    other.send(body(0), flush=True)
    for number in range(30):
        topic = f"t{number}"
        reader = Reader(bus, receiving, topic)
        source = bus.source(topic, sending, **bus.kind.id(100), late_join=1)
        for sent in range(7):
            source.send(body(sent))
        source.flush()
        source.close()
        bus.until(lambda reader=reader: reader.ledger.ended, "the end of the topic")  # type: ignore[misc]
        assert (reader.ledger.delivered, reader.ledger.lost) == (7, 0)
