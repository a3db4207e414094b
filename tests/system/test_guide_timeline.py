"""The guide's unrecoverable loss and end of session on real sockets, with shorter timers: their order, and how early.

In virtual time, line by line, it is in tests/sim/test_guide_example.py.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from ipcbus.runtime.receiving.session_joining import SessionJoiner
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.transport.udp.udp_sender import UdpSender
from ipcbus.wire import udp_packets, wire_layout
from tests.kit.bus import LBTRM, LBTRU, Bus, Kind
from tests.kit.datagrams import parse
from tests.kit.network import isolated_or_skip
from tests.kit.udp_hooks import replace_receive

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ipcbus import Message

MS = 1_000_000
SM, BACKOFF, AGAIN, GENERATION, INFO, CHECK = 60, 40, 200, 900, 300, 20
"""Milliseconds: first session message, first and next requests, when they are given up, number info, loss check."""
LATE = 15
"""Milliseconds for which a thread may act by a clock that it has looked at before."""
GONE = 1000
"""Milliseconds of silence after which a source is dead that nobody offers."""


class Timeline:
    """What happens, and when; packets with A4, requests and final notices are lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: dict[str, list[int]] = {}
        self.given_up: list[int] = []
        to_receiver, to_source = UdpReceiver.receive, UdpSender.receive

        def receive(udp_receiver: UdpReceiver, packet: bytes, address: Hashable, now_ns: int) -> None:
            found = udp_packets.parse(packet)
            if isinstance(found, udp_packets.Data):
                datagram = bytes(found.datagram)
                if b"A4" in datagram:
                    self.note("lost")
                    return
                if any(item.flags & wire_layout.FLAG_TSNI for item in parse(datagram)) and "lost" in self.at:
                    self.note("info")
            elif isinstance(found, udp_packets.SessionMessage):
                if found.flags & udp_packets.FINAL:
                    return
                self.note("session message" if "lost" in self.at else "earlier")
            to_receiver(udp_receiver, packet, address, now_ns)

        def ask(udp_sender: UdpSender, packet: bytes, address: Hashable, now_ns: int) -> None:
            if packet[1] == udp_packets.NAK:
                self.note("request")
            else:
                to_source(udp_sender, packet, address, now_ns)

        replace_receive(monkeypatch, receive)
        monkeypatch.setattr(UdpSender, "receive", ask)

    def note(self, what: str) -> None:
        """It happens now."""
        self.at.setdefault(what, []).append(time.monotonic_ns())

    def note_message(self, message: Message) -> None:
        """A receiver's callback."""
        known = {MessageType.DATA: bytes(message.data).decode(), MessageType.EOS: "end"}
        self.note(known.get(message.type, message.type.name))

    def first(self, what: str) -> int:
        """When it happened."""
        return self.at[what][0]


@pytest.fixture(params=[LBTRU, LBTRM], ids=lambda kind: str(kind.name))
def bus(domain: str, request: pytest.FixtureRequest) -> Iterator[Bus]:
    """Contexts with threads."""
    kind: Kind = request.param
    with isolated_or_skip() if kind is LBTRM else contextlib.nullcontext():
        made = Bus(domain, kind, "embedded")
        yield made
        made.close()


def test_the_loss_and_the_end_come_in_the_guides_order(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Timeline(monkeypatch)
    own = f"transport_{bus.kind.transport}_"
    sending = bus.context("sending")
    source = bus.source(
        "A", sending, **{f"{own}sm_minimum_interval": SM, "transport_topic_sequence_number_info_interval": INFO}
    )
    times = {
        f"{own}nak_initial_backoff_interval": BACKOFF,
        f"{own}nak_backoff_interval": AGAIN,
        f"{own}nak_generation_interval": GENERATION,
        "delivery_control_loss_check_interval": CHECK,
    }
    receiver = bus.receiver("A", line.note_message, **times)
    bus.joined(source)
    for number in range(4):
        source.send(b"A%d" % number, flush=True)
    bus.until(lambda: "A3" in line.at, "the messages before")

    sent = time.monotonic_ns()
    source.send(b"A4", flush=True)
    bus.until(lambda: "info" in line.at, "number info")
    source.send(b"A5", flush=True)
    bus.until(lambda: "A5" in line.at, "what waits behind the loss")
    session = receiver._context._receiving_sessions.sessions()[0].datagram_source
    assert isinstance(session, UdpReceiver)
    assert session.reliable_receiver.counts.unrecovered_tmo == 1
    assert receiver.lost == 1

    # In this order, and none before its time, by a clock that a thread may have looked at before.
    told, asked, info = line.first("session message"), line.at["request"], line.first("info")
    lost, waited = line.first("UNRECOVERABLE_LOSS"), line.first("A5")
    assert sent < line.first("lost") < told < asked[0] < info < lost < waited
    assert told >= sent + (SM - LATE) * MS
    assert asked[0] >= told + (BACKOFF // 2 - LATE) * MS
    assert asked[1] >= asked[0] + (AGAIN // 2 - LATE) * MS
    assert info >= sent + (INFO - LATE) * MS
    assert lost >= told + (GENERATION - LATE) * MS  # the transport has given up, and told nobody
    assert "end" not in line.at

    # The final notices are lost, and the receiver does not see on this host that the source has gone: the session ends
    # by silence.
    monkeypatch.setattr(SessionJoiner, "withdraw_dead", lambda *given: None)
    line.note("closed")
    sending.close()
    bus.until(lambda: "end" in line.at, "the end")
    assert line.first("end") >= line.first("closed") + GONE * MS, session.reason
    assert [what for what in line.at if what.startswith("A")] == ["A0", "A1", "A2", "A3", "A5"]
