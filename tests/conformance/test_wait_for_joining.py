"""Sources that are closed while receivers are about to join, and those that nobody ever joined."""

from __future__ import annotations

import logging
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType, context_closing
from ipcbus.runtime.sending.expected_receivers import ExpectedReceivers
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, LBTRM, LBTRU, LBTSMX, LBTTCP, Bus, Kind
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context, Message

DATA = MessageType.DATA

batching = pytest.mark.parametrize("kind", [LBTIPC, LBTIPC_SOURCE_PACED, LBTRU], ids=lambda kind: str(kind.name))
on_rings = pytest.mark.parametrize("kind", [LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
one_transport = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
embedded = pytest.mark.parametrize("mode", ["embedded"])

NEVER = {"resolver_no_receiver_linger_timeout": 600_000, "implicit_batching_interval": 3_600_000}
"""So long nothing waits in vain: a test that relies on an end of the wait hangs without it. And no timer publishes the
batch while a busy machine has no processor for the thread that closes the source."""


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics of which a closing source has looked for receivers."""
    found: list[str] = []
    look = ExpectedReceivers.of

    def note(self: ExpectedReceivers, topic: str) -> dict[int, int]:
        found.append(topic)
        return look(self, topic)

    monkeypatch.setattr(ExpectedReceivers, "of", note)
    return found


def held_back(context: Context) -> threading.Thread:
    """Keeps an embedded context from joining anything until the test has seen a source wait for it."""
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with context._event_loop.driver_lock():
            held.set()
            go.wait(GIVE_UP_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(GIVE_UP_S)
    thread.go = go  # type: ignore[attr-defined]
    return thread


@batching
@pytest.mark.parametrize("ends", ["source", "context", "exit"])
@pytest.mark.parametrize("wildcard", [False, True], ids=["topic", "pattern"])
def test_who_is_about_to_join_gets_what_is_in_the_open_batch(
    bus: Bus, ends: str, wildcard: bool, looks: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    got: list[bytes] = []
    end = threading.Event()

    def take(message: Message) -> None:
        if message.type is DATA:
            got.append(message.data)
        elif message.type is MessageType.EOS:
            end.set()

    taking = bus.context("taking", mode="embedded")
    (taking.wildcard_receiver if wildcard else taking.receiver)("t.?" if wildcard else "t", take)
    held = held_back(taking)
    context = bus.context("sending")
    source = bus.source("t", context, **NEVER)
    for number in range(3):
        source.send(body(number))
    close: Callable[[], object] = {
        "source": source.close,
        "context": context.close,
        "exit": lambda: context_closing.close_all([context], patient=True),
    }[ends]
    closing = threading.Thread(target=close)
    closing.start()
    while not looks:
        closing.join(0.001)
    held.go.set()  # type: ignore[attr-defined]
    held.join(GIVE_UP_S)
    closing.join(GIVE_UP_S)
    assert end.wait(GIVE_UP_S)
    assert got == [body(number) for number in range(3)]
    assert "no receiver got the messages" not in caplog.text


def test_nobody_is_waited_for_where_nobody_is_about_to_join(
    bus: Bus, looks: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    bus.receiver("another topic")
    context = bus.context("sending")
    source = bus.source("t", context, **NEVER)
    silent = bus.source("silent", context, **NEVER)
    for number in range(3):
        source.send(body(number))
    with caplog.at_level(logging.WARNING, "ipcbus"):
        silent.close()
        source.close()
        source.close()
        context.close()
    (record,) = [record for record in caplog.records if "no receiver got the messages" in record.getMessage()]
    assert f"'t' (3 on {source.source})" in record.getMessage()
    assert (source.unheard, silent.unheard) == (3, 0)
    assert set(looks) <= {"t"}


@one_transport
def test_who_was_heard_is_not_told_otherwise_when_its_receivers_have_gone(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    taking, context = bus.context("taking"), bus.context("sending")
    taking.receiver("t")
    source = bus.source("t", context)
    bus.joined(source)
    source.send(body(0), flush=True)
    taking.close()
    bus.until(lambda: source.receivers == 0, "the leaving")
    context.close()
    assert source.unheard == 0
    assert "no receiver got the messages" not in caplog.text


def test_one_that_came_and_went_unnoticed_is_not_called_nobody(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "sequential")
    source = bus.source()
    taking = bus.context(mode="embedded")
    receiver = taking.receiver("t")
    pause = threading.Event()
    while not source._session.receivers(source._number):
        pause.wait(0.001)
    source.send(body(0), flush=True)
    assert receiver.receive(GIVE_UP_S) is not None
    taking.close()
    source.close()
    assert source.unheard == 0
    bus.close()


@on_rings
@pytest.mark.parametrize("hears_more", [False, True])
def test_what_was_published_before_a_receiver_joined_is_a_warning(
    bus: Bus, hears_more: bool, caplog: pytest.LogCaptureFixture
) -> None:
    context = bus.context("sending")
    source = bus.source("t", context)
    for number in range(3):
        source.send(body(number), flush=True)
    bus.receiver("t", lambda _: None)
    bus.joined(source)
    if hears_more:
        source.send(body(3), flush=True)
    context.close()
    assert source.unheard == (0 if hears_more else 3)
    assert ("no receiver got the messages" in caplog.text) is not hears_more


@one_transport
def test_many_sources_without_receivers_are_one_warning(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    context = bus.context()
    for number in range(10):
        bus.source(f"t{number}", context).send(b"x")
    context.close()
    (record,) = [record for record in caplog.records if "no receiver got the messages" in record.getMessage()]
    assert "and 7 more" in record.getMessage()


@one_transport
@embedded
@pytest.mark.parametrize("ends", ["source", "context"])
def test_a_signal_ends_the_wait_and_not_the_close(bus: Bus, ends: str, looks: list[str]) -> None:
    taking = bus.context("taking")
    taking.receiver("t")
    held = held_back(taking)
    context = bus.context("sending")
    source = bus.source("t", context, **NEVER)
    source.send(body(0))

    def interrupt() -> None:
        while not looks:
            time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        (source if ends == "source" else context).close()
    assert source.closed
    assert context._ended is (ends == "context")
    held.go.set()  # type: ignore[attr-defined]
    held.join(GIVE_UP_S)


@one_transport
@embedded
@pytest.mark.parametrize("ends", ["with", "finally", "option"])
def test_nobody_is_waited_for_after_an_exception_or_without_the_option(bus: Bus, ends: str, looks: list[str]) -> None:
    taking = bus.context("taking")
    taking.receiver("t")
    held = held_back(taking)
    context = bus.context("sending")
    source = bus.source("t", context, resolver_no_receiver_linger_timeout=0 if ends == "option" else 600_000)
    source.send(body(0))
    if ends == "option":
        source.close()
    elif ends == "with":
        with pytest.raises(ZeroDivisionError), context:
            _ = 1 / 0
    else:
        with pytest.raises(ZeroDivisionError):
            try:
                _ = 1 / 0
            finally:
                source.close()
    assert source.closed
    assert looks == []
    held.go.set()  # type: ignore[attr-defined]
    held.join(GIVE_UP_S)


@one_transport
@embedded
@pytest.mark.parametrize("queued", [False, True], ids=["called", "queued"])
def test_nobody_is_waited_for_inside_a_callback(bus: Bus, queued: bool, looks: list[str]) -> None:
    queue = ipcbus.EventQueue(10) if queued else None
    taking = bus.context("taking")
    taking.receiver("t")
    held = held_back(taking)
    source = bus.source("t", None, **NEVER)
    source.send(body(0))
    closed = threading.Event()

    def close(message: Message) -> None:
        source.close()
        closed.set()

    bus.context("calling").receiver("order", close, event_queue=queue)
    order = bus.source("order")
    bus.joined(order)
    order.send(b"close", flush=True)
    while queue is not None and not closed.is_set():
        queue.dispatch(GIVE_UP_S)
    assert closed.wait(GIVE_UP_S)
    assert looks == []
    held.go.set()  # type: ignore[attr-defined]
    held.join(GIVE_UP_S)


@pytest.mark.parametrize("ends", ["source", "context"])
def test_a_sequential_context_may_be_driven_by_another_thread_while_it_waits(
    domain: str, ends: str, looks: list[str]
) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    taking = bus.context("taking")
    receiver = taking.receiver("t")
    held = held_back(taking)
    context = bus.context("sending", mode="sequential")
    source = bus.source("t", context, **NEVER)
    source.send(body(0))
    inside = threading.Event()

    def drive() -> None:
        with context._event_loop.drive_alone():  # as inside process_events
            inside.set()
            while len(looks) < 3:
                context._event_loop.drive(1_000_000, once=False)

    driving = threading.Thread(target=drive)
    driving.start()
    assert inside.wait(GIVE_UP_S)

    def let_go() -> None:
        while len(looks) < 3:
            driving.join(0.001)
        driving.join(GIVE_UP_S)
        held.go.set()  # type: ignore[attr-defined]

    threading.Thread(target=let_go).start()
    (source if ends == "source" else context).close()
    held.join(GIVE_UP_S)
    while (message := receiver.receive(GIVE_UP_S)) is not None and message.type is not MessageType.EOS:
        pass
    assert receiver.delivered == 1
    bus.close()


def test_receivers_that_the_closing_thread_drives_are_not_waited_for(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "sequential")
    bus.receiver("t")
    source = bus.source("t", None, **NEVER)
    source.send(body(0))
    source.close()
    assert source.unheard == 1
    bus.close()


# ---------------------------------------------------------------------- wait_for_sources


@pytest.mark.parametrize("wildcard", [False, True], ids=["topic", "pattern"])
def test_a_receiver_waits_for_sources(bus: Bus, wildcard: bool) -> None:
    taking = bus.context("taking")
    receiver = (taking.wildcard_receiver if wildcard else taking.receiver)("t.*" if wildcard else "t")
    receiver.wait_for_sources(0, 0)
    named = "pattern 't.*'" if wildcard else "topic 't'"
    with pytest.raises(TimeoutError) as caught:
        receiver.wait_for_sources(1, 0.001)
    assert f"{named}: this receiver had joined 0 of 1 sources" in str(caught.value)
    same = "topics that the pattern matches" if wildcard else "the same topic"
    assert f"check that they use the same domain and {same}, or wait longer; rcv.sessions" in str(caught.value)
    sources = [bus.source("t", bus.context(mode="embedded")) for _ in range(2)]
    receiver.wait_for_sources(2, GIVE_UP_S)
    for source in sources:
        source.send(body(0), flush=True)  # the receiver gets what is sent from here on
    got = [receiver.receive(GIVE_UP_S) for _ in range(4)]
    assert sorted(message.type for message in got if message) == [DATA, DATA, MessageType.BOS, MessageType.BOS]
    with pytest.raises(TimeoutError, match="2 of 3"):
        receiver.wait_for_sources(3, 0.001)
    receiver.close()
    with pytest.raises(ipcbus.ClosedError):
        receiver.wait_for_sources(1, 0)


@pytest.mark.parametrize("kind", [LBTRU, LBTTCP, LBTRM], ids=lambda kind: str(kind.name))
def test_a_receiver_that_its_source_does_not_register_says_so(bus: Bus, kind: Kind) -> None:
    """Over LBT-RM it gets what comes to the group, without repairs; otherwise, it gets nothing."""
    name = "tcp" if kind is LBTTCP else kind.transport
    limit = {f"transport_{name}_maximum_clients_per_transport": 1}
    source = bus.source("t", bus.context(mode="embedded"), **limit)
    registered = bus.context("registered")
    registered.receiver("t", events=False).wait_for_sources(1, GIVE_UP_S)
    receiver = bus.receiver("t", events=False)

    def info() -> ipcbus.SessionInfo:
        return receiver.sessions[0]

    if kind is LBTRM:
        receiver.wait_for_sources(1, GIVE_UP_S)
        bus.until(lambda: info().reason, "the reason")
        assert info().state == "joined"
        assert "nothing that is lost on the way is sent again" in info().reason
    else:
        bus.until(lambda: receiver.sessions and info().reason, "the reason")
        assert info().state == "joining"
        with pytest.raises(TimeoutError, match="0 of 1"):
            receiver.wait_for_sources(1, 0.001)
    assert "maximum_clients_per_transport" in info().reason
    registered.close()
    bus.until(lambda: not info().reason, "a registration")
    receiver.wait_for_sources(1, GIVE_UP_S)
    source.send(body(0), flush=True)
    message = receiver.receive(GIVE_UP_S)
    assert message is not None
    assert message.data == body(0)


@pytest.mark.parametrize("kind", [LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
def test_waiting_for_sources_inside_a_callback_is_refused(bus: Bus, kind: Kind) -> None:
    raised: list[BaseException] = []
    context = bus.context()

    def wait(message: Message) -> None:
        with pytest.raises(ipcbus.WrongThread) as caught:
            receiver.wait_for_sources(2, GIVE_UP_S)
        raised.append(caught.value)

    receiver = context.receiver("t", wait)
    source = bus.source()
    bus.joined(source)
    source.send(body(0), flush=True)
    bus.until(lambda: len(raised) == 2, "the callbacks")
