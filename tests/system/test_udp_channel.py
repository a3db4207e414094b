"""Control channels over UDP with real sockets: losses, killed processes, sources that are made again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus.recovery.frame_window import LONG_WINDOW
from tests.kit.bus import LBTRM, LBTRU, Bus, Kind
from tests.kit.network import isolated_or_skip
from tests.kit.udp_links import UdpEnds, leave_links, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.peers import Peers

FRAMES = 500

pytestmark = pytest.mark.parametrize(
    "kind", [pytest.param(LBTRU, id="lbtru"), pytest.param(LBTRM, id="lbtrm", marks=pytest.mark.long)]
)


@pytest.fixture
def mode() -> str:
    """Who drives the contexts."""
    return "sequential"


@pytest.fixture
def bus(domain: str, kind: Kind) -> Iterator[Bus]:
    """Contexts in this process."""
    with isolated_or_skip() if kind is LBTRM else contextlib.nullcontext():
        made = Bus(domain, kind, "sequential")
        yield made
        made.close()


def test_frames_come_once_and_in_order_though_a_fifth_is_lost_each_way(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LBTRU", "LBTRM"):
        for variable in (f"{name}_LOSS_RATE", f"{name}_SRC_LOSS_RATE"):
            monkeypatch.setenv(variable, "20")
    ends = UdpEnds(bus)
    links = ends.open()
    sent, came = [0, 0], [0, 0]

    def work() -> bool:
        for index, link in enumerate(links):
            while sent[index] < FRAMES and link.put(sent[index].to_bytes(1000, "little")):
                sent[index] += 1
            while (frame := link.take()) is not None:
                assert int.from_bytes(frame, "little") == came[index]
                came[index] += 1
        return came == [FRAMES, FRAMES]

    bus.until(work, "all frames")
    for link in links:
        assert link.link.window.counts.frames_retransmitted
        assert link.broken == ""


def test_messages_go_on_beside_a_channel_whose_other_side_takes_nothing(bus: Bus) -> None:
    ends = UdpEnds(bus)
    here, there = ends.open()
    for link in (here, there):
        bus.until(lambda link=link: not link.put(bytes(link.frame_max)), "a full link")  # type: ignore[misc]
    ends.source.send(b"message", flush=True)
    got: list[bytes] = []

    def receive() -> bool:
        message = ends.receiver.receive(0)
        if message is not None:
            got.append(message.data)
        return b"message" in got

    bus.until(receive, "the message")
    assert here.broken == there.broken == ""
    assert [here.link.window.counts.frames_sent, there.link.window.counts.frames_sent] == [LONG_WINDOW, LONG_WINDOW]


def test_a_source_that_is_closed_breaks_the_link_and_the_next_one_has_another(bus: Bus) -> None:
    ends = UdpEnds(bus)
    here, there = ends.open()
    assert here.put(b"before")
    ends.sending.close()
    bus.until(lambda: here.broken and there.link.broken, "the end")
    again = UdpEnds.__new__(UdpEnds)
    again.bus, again.lock, again.receiving, again.receiver = bus, ends.lock, ends.receiving, ends.receiver
    again.sending = bus.context("sending again", mode="sequential")
    again.source = bus.source(context=again.sending)
    leave_links(again.udp_sender)
    bus.joined(again.source)
    bus.until(lambda: again.udp_receiver.reliable_receiver.channel_cookie, "the registration")
    here, there = again.open()
    assert here.put(b"after")
    assert there.take() == b"after"


def test_a_receiver_that_leaves_breaks_the_link_of_its_source(bus: Bus) -> None:
    ends = UdpEnds(bus)
    here, there = ends.open()
    ends.receiver.close()
    bus.until(lambda: there.broken, "the end")
    assert "left the session" in there.broken
    assert "ended" in here.link.broken


def test_a_source_that_is_killed_breaks_the_link(bus: Bus, kind: Kind, peers: Peers) -> None:
    if kind is LBTRM:
        pytest.skip("a process that is forked is in the network of who forked it")
    sender = peers.start(name="sender")
    sender.do("source", topic="t", transport=kind.transport)
    receiving = bus.context("receiving")
    receiver = bus.receiver(context=receiving)
    bus.until(lambda: receiver.sessions, "the session")
    bus.until(lambda: receiving._network._udp_receivers[0].reliable_receiver.channel_cookie, "the registration")
    link = receiving._network._udp_receivers[0].open_link()
    bus.until(lambda: link.put(b"frame"), "the link to open")
    sender.kill()
    bus.until(lambda: link.broken, "the end")
    assert not link.put(b"frame")


def test_a_receiver_that_is_killed_breaks_the_link_and_holds_nobody_up(bus: Bus, kind: Kind, peers: Peers) -> None:
    if kind is LBTRM:
        pytest.skip("a process that is forked is in the network of who forked it")
    timeout: dict[str, Any] = {f"transport_{kind.transport}_client_activity_timeout": 1500}
    sending = bus.context("sending")
    source = bus.source(context=sending, **timeout)
    udp_sender = sending._network._udp_senders[0]
    leave_links(udp_sender)
    killed = peers.start("sequential", "killed")
    killed.do("receiver", topic="t")
    other = bus.receiver(context=bus.context("receiving"))
    bus.joined(source, 2)
    killed.start("open_link")  # its answer comes when the source has been driven
    ((_, link),) = opened(bus, udp_sender)
    bus.until(lambda: link.take() == b"from the peer", "a frame")
    killed.kill()
    while link.put(bytes(1000)):
        link.push()
    source.send(b"message", flush=True)

    def receive() -> bool:
        message = other.receive(0)
        return message is not None and message.data == b"message"

    bus.until(receive, "the message")
    bus.until(lambda: link.broken, "the end")
    assert len(udp_sender.links) == 0
