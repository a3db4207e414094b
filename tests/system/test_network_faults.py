"""Sessions over networks whose sides pause, leave, return or close during a repair: the account is right."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

from tests.kit.bus import LBTRM, LBTRU, LBTTCP, Kind
from tests.kit.network import isolated_or_skip
from tests.kit.payload import Ledger, balanced
from tests.kit.peers import PeerProcess, Peers, settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.zygote import Zygote

MIB = 1 << 20
LOSS_PERCENT = 5

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.parametrize(
        "kind",
        [
            pytest.param(LBTRU, id="lbtru"),
            pytest.param(LBTRM, id="lbtrm"),
            pytest.param(LBTTCP, id="lbttcp"),
        ],
    ),
]


class Net:
    """Processes that a test starts, on a network that loses a few datagrams."""

    def __init__(self, peers: Peers, kind: Kind) -> None:
        self.peers, self.kind = peers, kind

    def start(self, name: str, mode: str = "embedded", loss: int = LOSS_PERCENT, **options: object) -> PeerProcess:
        """A process with an open context."""
        peer = self.peers.start("", name)
        peer.do("lose", percent=loss)
        limits = {}
        if self.kind is not LBTTCP:
            limits = {f"transport_{self.kind.transport}_{each}_rate_limit": 0 for each in ("data", "retransmit")}
        given = {**self.kind.context_options, **limits, **options}
        peer.do("open", domain=self.peers.domain, mode=mode, name=name, **given)
        return peer

    def source(self, peer: PeerProcess, topic: str = "t", **options: object) -> str:
        """Makes a source; returns its source string."""
        found: str = peer.do("source", topic=topic, transport=self.kind.transport, **options)
        return found

    def window(self, size: int) -> dict[str, object]:
        """The source option that makes its window short."""
        return {f"{self.kind.prefix}_transmission_window_size": size}

    def port(self) -> dict[str, object]:
        """The source option that names its session."""
        return self.kind.id(321)


@pytest.fixture
def net(zygote: Zygote, domain: str, kind: Kind) -> Iterator[Net]:
    """The processes; for multicast a network of their own."""
    with contextlib.ExitStack() as stack:
        if kind is LBTRM:
            stack.enter_context(isolated_or_skip())
        # A process that is forked is in the network of who forked it.
        own = stack.enter_context(type(zygote)()) if kind is LBTRM else zygote
        peers = Peers(own, domain)
        stack.callback(peers.clear)
        yield Net(peers, kind)


def streaming(net: Net) -> tuple[PeerProcess, PeerProcess, str]:
    """A sender in the middle of a stream to one receiver at 10 % loss: both, and the source string."""
    sender, stays = net.start("sender"), net.start("stays", loss=10)
    stays.do("receiver", topic="t")
    source = net.source(sender)
    sender.do("joined", topic="t")
    sender.do("stream", topic="t", size=500, pause=0.001)
    return sender, stays, source


def has_all_since_it_joined(peer: PeerProcess, source: str, sent: int) -> None:
    """Waits until a receiver has settled all that was sent; it has lost nothing since its first message."""
    found = Ledger(**peer.do("await_number", topic="t", source=source, number=sent))
    balanced(found, sent, first=found.first)
    assert found.lost == 0


def wait(seconds: float) -> None:
    """Lets time pass that is itself what a test is about."""
    threading.Event().wait(seconds)


def test_a_pause_while_long_messages_are_on_their_way(net: Net) -> None:
    sender, receiver = net.start("sender"), net.start("receiver")
    receiver.do("receiver", topic="t")
    source = net.source(sender)
    sender.do("joined", topic="t")
    sender.start("send", topic="t", count=30, size=MIB)
    for _ in range(3):
        wait(0.1)
        receiver.pause()
        wait(0.3)
        receiver.resume()
    sent = sender.finish()
    assert settled(receiver, "t", source, sent).lost == 0


@pytest.mark.parametrize("size", [64_000, 10 * MIB])
def test_batches_between_long_messages(net: Net, size: int) -> None:
    sender, receiver = net.start("sender"), net.start("receiver")
    receiver.do("receiver", topic="t")
    source = net.source(sender)
    sender.do("joined", topic="t")
    for _ in range(3):
        sender.do("put", topic="t", count=100)
        sender.do("send", topic="t", count=1 if size > MIB else 20, size=size)
        sender.do("put", topic="t", count=50)
    sent = sender.do("send", topic="t", count=1)
    assert settled(receiver, "t", source, sent).lost == 0


def test_one_slow_receiver_of_several_topics_of_a_session(net: Net) -> None:
    sender, slow, fast = net.start("sender"), net.start("slow"), net.start("fast")
    topics = ["a", "b", "c"]
    for topic in topics:
        slow.do("receiver", topic=topic, every=20 if topic == "b" else 0, pause=0.005)
        fast.do("receiver", topic=topic)
    sources = {topic: net.source(sender, topic, **net.port()) for topic in topics}
    for topic in topics:
        sender.do("joined", topic=topic, receivers=2)
    for topic in topics:
        sender.do("stream", topic=topic, size=500, pause=0.001)
    slow.do("await_messages", topic="b", count=2000)
    sent = sender.do("halt")
    for topic in topics:
        for peer in (slow, fast):
            assert settled(peer, topic, sources[topic], sent[topic]).lost == 0


def test_a_receiver_is_killed_and_another_one_started_during_repair(net: Net) -> None:
    sender, stays, source = streaming(net)
    for number in range(3):
        goes = net.start(f"goes {number}", loss=10)
        goes.do("receiver", topic="t")
        goes.do("await_messages", topic="t", count=500)
        net.peers.kill(goes)
    last = net.start("last", loss=10)
    last.do("receiver", topic="t")
    last.do("await_messages", topic="t", count=500)
    sent = sender.do("halt")["t"]
    assert settled(stays, "t", source, sent).lost == 0
    has_all_since_it_joined(last, source, sent)


def test_receivers_are_stopped_while_they_join(net: Net) -> None:
    sender, stays, source = streaming(net)
    joining = [net.start(f"joins {number}", loss=10) for number in range(6)]
    for number, peer in enumerate(joining):
        peer.start("receiver", topic="t")
        wait(0.03 * number)
        peer.pause()
    wait(1)
    for peer in joining:
        peer.resume()
    for peer in joining:
        peer.finish()
        peer.do("await_messages", topic="t", count=500)
    sent = sender.do("halt")["t"]
    assert settled(stays, "t", source, sent).lost == 0
    for peer in joining:
        has_all_since_it_joined(peer, source, sent)


def test_a_source_is_killed_during_repair(net: Net) -> None:
    sender = net.start("sender", loss=20)
    crew = [net.start(f"receiver {number}", loss=20) for number in range(2)]
    for peer in crew:
        peer.do("receiver", topic="t")
    source = net.source(sender)
    sender.do("joined", topic="t", receivers=2)
    sender.do("stream", topic="t", size=500)
    for peer in crew:
        peer.do("await_messages", topic="t", count=1000)
    sender.kill()
    for peer in crew:
        ledger = Ledger(**peer.do("await_end", topic="t")["ledgers"][source])
        assert ledger.wrong == []
        assert ledger.delivered + ledger.lost == ledger.next
        assert (ledger.begun, ledger.ended) == (1, 1)


def test_a_receiver_joins_while_another_one_pauses(net: Net) -> None:
    sender, paused = net.start("sender"), net.start("paused")
    paused.do("receiver", topic="t")
    source = net.source(sender, **net.window(1 << 20))
    sender.do("joined", topic="t")
    sender.do("stream", topic="t", size=500)
    paused.do("await_messages", topic="t", count=1000)
    paused.pause()
    wait(1)
    joins = net.start("joins")
    joins.do("receiver", topic="t")
    wait(1)
    paused.resume()
    joins.do("await_messages", topic="t", count=1000)
    sent = sender.do("halt")["t"]
    assert settled(paused, "t", source, sent).lost == 0
    has_all_since_it_joined(joins, source, sent)


@pytest.mark.parametrize("fate", ["killed", "stopped"])
def test_a_source_that_closes_waits_for_a_receiver_and_others_lose_nothing(net: Net, fate: str) -> None:
    sender, other, stopped = (net.start(name, loss=0) for name in ("sender", "other", "stopped"))
    for peer in (other, stopped):
        peer.do("receiver", topic="t")
    source = net.source(sender)
    sender.do("joined", topic="t", receivers=2)
    stopped.pause()
    sent = sender.do("fill", topic="t", size=1000)
    sender.do("end", topic="t")
    if fate == "killed":
        net.peers.kill(stopped)
    else:
        wait(3)  # longer than the silence after which a source that is not offered any more counts as dead
        stopped.resume()
    for peer in (other,) if fate == "killed" else (other, stopped):
        ledger = Ledger(**peer.do("await_end", topic="t")["ledgers"][source])
        balanced(ledger, sent)
        assert ledger.lost == 0


@pytest.mark.parametrize("ends", ["end", "close"])
def test_closing_while_repairs_run(net: Net, ends: str) -> None:
    sender, receiver = net.start("sender", loss=20), net.start("receiver", loss=20)
    receiver.do("receiver", topic="t")
    source = net.source(sender)
    sender.do("joined", topic="t")
    sent = sender.do("send", topic="t", count=5000, size=500)
    sender.do(ends, **({"topic": "t"} if ends == "end" else {}))
    ledger = Ledger(**receiver.do("await_end", topic="t")["ledgers"][source])
    balanced(ledger, sent)
    assert ledger.lost == 0


def test_a_source_that_restarts_with_the_same_id_is_another_one(net: Net) -> None:
    receiver = net.start("receiver")
    receiver.do("receiver", topic="t")
    found: list[tuple[str, int]] = []
    for number in range(3):
        sender = net.start(f"sender {number}")
        source = net.source(sender, **net.port())
        sender.do("joined", topic="t")
        sender.do("stream", topic="t", size=500, pause=0.001)
        if found:
            receiver.do("await_messages", topic="t", count=found[-1][1] + 1000)
        else:
            receiver.do("await_messages", topic="t", count=1000)
        if number == 1:
            sent = sender.do("halt")["t"]
            sender.do("close")
        else:
            net.peers.kill(sender)
            sent = -1
        report = receiver.do("await_end", topic="t", count=number + 1)
        found.append((source, sum(each["delivered"] + each["lost"] for each in report["ledgers"].values())))
        ledger = Ledger(**report["ledgers"][source])
        assert ledger.wrong == []
        if sent >= 0:
            balanced(ledger, sent, joins=ledger.begun)
        assert ledger.delivered + ledger.lost == ledger.next
    assert len({source for source, _ in found}) == 3


@pytest.mark.long
@pytest.mark.parametrize("seconds", [3, 15])
def test_a_sequential_application_that_sleeps(net: Net, seconds: int) -> None:
    sender, receiver = net.start("sender"), net.start("receiver", "sequential")
    receiver.do("receiver", topic="t")
    source = net.source(sender)
    sender.do("joined", topic="t")
    sender.do("stream", topic="t", size=500, pause=0.001)
    receiver.do("await_messages", topic="t", count=1000)
    receiver.start("sleep", seconds=seconds)
    receiver.finish()
    wait(2)
    sent = sender.do("halt")["t"]
    receiver.do("await_messages", topic="t", count=sent)
    ledger = receiver.ledger("t", source)
    balanced(ledger, sent, joins=ledger.begun)
    if seconds < 10:
        assert ledger.lost == 0


@pytest.mark.long
def test_one_of_two_receivers_is_stopped_for_90_s(net: Net) -> None:
    sender, stopped, other = net.start("sender"), net.start("stopped"), net.start("other")
    for peer in (stopped, other):
        peer.do("receiver", topic="t")
    source = net.source(sender)
    sender.do("joined", topic="t", receivers=2)
    sender.do("stream", topic="t", size=500, pause=0.002)
    stopped.do("await_messages", topic="t", count=1000)
    stopped.pause()
    wait(90)
    other.do("await_messages", topic="t", count=20_000)
    stopped.resume()
    wait(5)
    sent = sender.do("halt")["t"]
    assert settled(other, "t", source, sent).lost == 0
    stopped.do("await_messages", topic="t", count=sent)
    ledger = stopped.ledger("t", source)
    balanced(ledger, sent, joins=ledger.begun)
