"""Responses over UDP when the link breaks and is opened again, and when they never cease: each comes once, in order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from ipcbus.runtime.receiving import failover, receiver_channels
from ipcbus.transport.receiving_session import ReceivingSession
from ipcbus.wire.udp_packets import Frame
from tests.conformance.test_moving_recovery import on_layer, requests_are_answered, with_one_slot
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTRM, LBTRU, Bus, Kind

if TYPE_CHECKING:
    from ipcbus import Message, Receiver, Source
    from ipcbus.transport.udp.udp_link import SenderLinks

over_udp = pytest.mark.parametrize("kind", [LBTRU, LBTRM], ids=["lbtru", "lbtrm"])


@pytest.fixture
def mode() -> str:
    """Contexts deliver in their own threads."""
    return "embedded"


class Link:
    """The link of the only client of a source, which loses frames, or acknowledgements, or nothing."""

    def __init__(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
        udp_sender = source._session.udp_sender
        assert udp_sender is not None
        self.links: SenderLinks = udp_sender.links
        self.loses = ""
        self.lost = 0
        self.epochs: set[int] = set()
        """The links of which frames were lost, as their receiver numbers them."""
        receive, turn = self.links.receive, self.links.turn

        def receive_some(packet: object, client: object, now_ns: int) -> None:
            if self.loses == "frames" and isinstance(packet, Frame):
                self.lost += 1
                self.epochs.add(packet.sender)
            else:
                receive(packet, client, now_ns)  # type: ignore[arg-type]

        def turn_silently(now_ns: int) -> list[tuple[bytes, object]]:
            found = turn(now_ns)
            if self.loses == "acknowledgements" and found:
                self.lost += 1
                return []
            return found  # type: ignore[return-value]

        monkeypatch.setattr(self.links, "receive", receive_some)
        monkeypatch.setattr(self.links, "turn", turn_silently)

    def break_off(self, loses: str = "") -> None:
        """Breaks the link at the source, as a silence of 10 s does, and loses this from now on."""
        (peer,) = self.links._peers.values()
        assert peer.acceptor.window is not None
        peer.acceptor.window.end("the test has ended it")
        self.loses = loses


class Asking:
    """A source whose requests are kept by a receiver, and the responses that have come."""

    def __init__(self, bus: Bus, source: Source) -> None:
        self.bus, self.source, self.answering = bus, source, bus.context("answering")
        self.kept: list[Message] = []
        self.responses: list[bytes] = []

    def on_message(self, message: Message) -> None:
        """Answers a request, or keeps it."""
        if message.type is MessageType.REQUEST and message.data == b"keep":
            self.kept.append(message)
        elif message.type is MessageType.REQUEST:
            message.respond(b"[" + message.data + b"]")

    def ask(self) -> None:
        """Sends a request that is kept."""
        self.source.requests(b"keep", lambda message: self.responses.append(message.data), timeout=GIVE_UP_S)
        self.bus.until(lambda: self.kept, "the request")

    def answer(self, first: int, count: int) -> list[bytes]:
        """Answers the kept request with numbers."""
        given = [b"%d" % number for number in range(first, first + count)]
        # Under the lock, so that no timer of the link runs between two of them: without acknowledgements it would let
        # ever fewer frames go.
        with self.answering._event_loop.driver_lock():
            for data in given:
                self.kept[0].respond(data)
        return given


def asked(bus: Bus) -> tuple[Source, Asking, Receiver]:
    """A source, and a receiver that answers its requests and keeps one."""
    source = bus.source("t", bus.context("asking"))
    asking = Asking(bus, source)
    receiver = bus.receiver("t", asking.on_message, asking.answering)
    bus.joined(source)
    requests_are_answered(source)
    asking.ask()
    return source, asking, receiver


def end_link(receiver: Receiver) -> None:
    """Ends the link at the receiver."""
    (session,) = receiver._context._receiving_sessions.sessions()
    with receiver._context._event_loop.driver_lock():
        session.datagram_source._link_end.end("the test has ended it")  # type: ignore[attr-defined]
        session.datagram_source._on_due()  # type: ignore[attr-defined]
    receiver._context._event_loop.kick()


@over_udp
@pytest.mark.parametrize("loses", ["frames", "acknowledgements"])
def test_responses_without_acknowledgement_when_the_link_breaks_come_once(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, loses: str
) -> None:
    source, asking, receiver = asked(bus)
    link = Link(source, monkeypatch)
    expected: list[bytes] = []

    def all_came() -> bool:
        return len(asking.responses) >= len(expected)

    def some_came() -> bool:
        return len(asking.responses) > len(expected) - 8

    for _ in range(3):
        link.loses, link.lost = loses, 0
        expected.extend(asking.answer(len(expected), 8))
        bus.until(lambda: link.lost, "a loss")
        if loses == "acknowledgements":
            # As a rule all; on a busy machine, where frames were sent again, only four go without an acknowledgement.
            bus.until(some_came, f"some of {expected}, not {asking.responses}")
        end_link(receiver)
        link.break_off()
        bus.until(all_came, f"{expected}, not {asking.responses}")
        requests_are_answered(source)  # over the link that was opened
    assert asking.responses == expected


def lost(receiver: Receiver) -> int:
    """The responses that the answering context counts as lost."""
    return receiver._context._receiving_sessions.channels.responses_lost


@over_udp
@pytest.mark.parametrize("end", ["closed", "silent"])
def test_responses_that_did_not_come_before_the_session_ended_are_counted(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    source, asking, receiver = asked(bus)
    came = asking.answer(0, 3)
    bus.until(lambda: asking.responses == came, "responses")
    (session,) = receiver._context._receiving_sessions.sessions()
    bus.until(lambda: not receiver._context._receiving_sessions.channels.is_unread(session), "the acknowledgements")
    link = Link(source, monkeypatch)
    link.loses = "frames"
    asking.answer(3, 8)
    bus.until(lambda: link.lost, "a loss")
    before = lost(receiver)
    if end == "closed":
        source.close()
    else:
        monkeypatch.setattr(ReceivingSession, "is_silent", lambda _self, _now_ns: True)
    bus.until(lambda: lost(receiver), "the count")
    assert (before, lost(receiver), asking.responses) == (0, 8, came)
    assert "responses that may not have come: 8." in caplog.text


@pytest.mark.long
@pytest.mark.parametrize("kind", [LBTRU], ids=["lbtru"])
def test_responses_that_no_link_brings_are_given_up_and_counted(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_channels, "_OPEN_AGAIN_NS", 1_000_000)
    source, asking, receiver = asked(bus)
    link = Link(source, monkeypatch)
    link.loses = "frames"
    asking.answer(0, 8)
    ended: set[int] = set()
    for _ in range(17):
        assert lost(receiver) == 0
        bus.until(lambda: link.epochs - ended, "a loss")  # noqa: B023 - not that of a frame of an earlier link
        ended |= link.epochs
        end_link(receiver)
    bus.until(lambda: lost(receiver), "the count")
    link.loses = ""
    requests_are_answered(source)
    assert (receiver._context._responses.counters()["resps_lost"], asking.responses) == (8, [])


@pytest.mark.parametrize("kind", [LBTIPC], ids=["lbtipc"])
def test_responses_that_never_cease_do_not_keep_a_receiver_from_its_ring(
    bus: Bus, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "_REST_NS", 1_000_000)
    source = with_one_slot(bus, **bus.kind.small())
    first = bus.receiver("t", lambda _: None, bus.context("first"))
    asking, over = Asking(bus, source), threading.Event()
    receiver = bus.receiver("t", asking.on_message, bus.context("moving", resolution_scan_interval=20))
    on_layer(bus, receiver, "LBT-RU")
    asking.ask()
    given: list[bytes] = []

    def answer() -> None:
        while not over.is_set():
            given.extend(asking.answer(len(given), 1))

    thread = threading.Thread(target=answer)
    thread.start()
    bus.until(lambda: len(asking.responses) > 100, "responses over UDP")
    first.close()
    on_layer(bus, receiver, "ring")
    reached = len(given)
    bus.until(lambda: len(asking.responses) > reached + 100, "responses over the ring")
    over.set()
    thread.join()
    bus.until(lambda: len(asking.responses) >= len(given), "the rest")
    requests_are_answered(source)
    assert asking.responses == given
