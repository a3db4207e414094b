"""A source over UDP in a process that is stopped: its session ends, and the numbers carry over when it goes on."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus.transport.ring import topic_lines
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.wire import udp_packets
from tests.kit.bus import LBTRM, LBTRU, Bus, Kind
from tests.kit.network import isolated_or_skip
from tests.kit.payload import Books, Ledger, balanced
from tests.kit.peers import PeerProcess, Peers
from tests.kit.udp_hooks import replace_receive

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from tests.kit.zygote import Zygote

TIMEOUT_MS = 300
ROUNDS = 3

pytestmark = pytest.mark.parametrize(
    "kind", [pytest.param(LBTRU, id="lbtru"), pytest.param(LBTRM, id="lbtrm", marks=pytest.mark.long)]
)


@pytest.fixture
def mode() -> str:
    """Who drives the receiving context."""
    return "embedded"


@pytest.fixture(params=["same host", "other host"])
def scene(
    request: pytest.FixtureRequest, zygote: Zygote, domain: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    """A source in another process, and a receiver; the other host has no memory that shows how far the source went."""
    if request.param == "other host":
        monkeypatch.setattr(topic_lines, "find", lambda *_: None)
    with contextlib.ExitStack() as stack:
        if kind is LBTRM:
            stack.enter_context(isolated_or_skip())
        own = stack.enter_context(type(zygote)()) if kind is LBTRM else zygote
        peers = Peers(own, domain)
        stack.callback(peers.clear)
        bus = Bus(domain, kind, "embedded")
        stack.callback(bus.close)
        yield Scene(bus, peers)


class Scene:
    """A source in a process of its own, and a receiver that notices a silence soon."""

    def __init__(self, bus: Bus, peers: Peers) -> None:
        self.bus, self.kind = bus, bus.kind
        self.peers = peers
        self.books = Books()
        self.told: list[str] = []

    def meet(self, **sending: object) -> PeerProcess:
        """Joins the two; `sending` are options of the source."""
        own = f"transport_{self.kind.transport}"
        often: dict[str, object] = {
            f"{own}_sm_minimum_interval": 20,
            f"{own}_sm_maximum_interval": 80,
            f"{own}_ignore_interval": 10,
        }
        soon = {
            f"{own}_activity_timeout": TIMEOUT_MS,
            f"{own}_nak_generation_interval": TIMEOUT_MS // 2,
            f"{own}_nak_backoff_interval": 20,
            f"{own}_acknowledgement_interval": 20,
            "delivery_control_loss_check_interval": 10,
        }
        often.update(sending)
        given: dict[str, Any] = {
            "context": {"liveness_check_interval": 10, **self.kind.context_options},
            "source": often,
            "receiver": soon,
        }
        context = ipcbus.Context(given, domain=self.bus.domain)
        self.bus.contexts.append(context)
        self.receiver = context.receiver(
            "t", self.books.enter, source_notification=lambda notification: self.told.append(notification.type.name)
        )
        sender = self.peers.start("", "sender")
        fast: dict[str, object] = {f"{own}_data_rate_limit": 0, f"{own}_retransmit_rate_limit": 0}
        sender.do("open", domain=self.bus.domain, name="sender", **self.kind.context_options, **fast)
        self.source = sender.do("source", topic="t", transport=self.kind.transport, **often)
        sender.do("joined", topic="t")
        return sender

    @property
    def ledger(self) -> Ledger:
        """What the receiver got."""
        return self.books.ledgers[self.source]

    def accounted(self, sent: int) -> None:
        """Waits until the receiver has accounted for all that was sent, and asserts that the account is right."""
        self.bus.until(lambda: self.books.accounted >= sent, "the messages, or news of their loss")
        balanced(self.ledger, sent, joins=self.ledger.begun)

    def ended(self) -> None:
        """Waits for the end of the session."""
        self.bus.until(lambda: self.ledger.ended == self.ledger.begun, "the end")

    def silent(self, sender: PeerProcess, count: int, size: int = 64) -> int:
        """Stops the source until its session has ended, then has it send; returns how many it has sent in all."""
        begun = self.ledger.begun
        sender.pause()
        self.ended()
        sender.start("send", topic="t", count=count, size=size)
        sender.resume()
        sent = int(sender.finish())
        self.accounted(sent)
        assert self.ledger.begun > begun
        return sent


def test_what_the_source_still_holds_comes_after_a_silence(scene: Scene) -> None:
    sender = scene.meet()
    scene.accounted(sender.do("send", topic="t", count=100))
    for _ in range(ROUNDS):
        scene.silent(sender, 500)
    sent = sender.do("end", topic="t")
    scene.ended()
    assert (scene.ledger.delivered, scene.ledger.lost) == (sent, 0)
    assert scene.ledger.begun == 1 + ROUNDS
    scene.bus.until(lambda: scene.told.count("DELETE") == scene.told.count("CREATE"), "the notifications")


def test_what_the_source_does_not_hold_any_more_is_reported_lost(scene: Scene) -> None:
    window = {f"transport_{scene.kind.transport}_transmission_window_size": 65536}
    sender = scene.meet(**window)
    scene.accounted(sender.do("send", topic="t", count=10))
    for _ in range(ROUNDS):
        scene.silent(sender, 1000, 1000)
    sent = sender.do("end", topic="t")
    scene.ended()
    # How much of it is lost depends on when the source, which sends at once, finds that the receiver is back.
    balanced(scene.ledger, sent, joins=1 + ROUNDS)


def test_a_source_that_closes_after_its_silence_is_accounted_for(scene: Scene) -> None:
    sender = scene.meet()
    scene.accounted(sender.do("send", topic="t", count=10))
    sender.pause()
    scene.ended()
    sender.start("send", topic="t", count=10)
    sender.start("end", topic="t")
    sender.resume()
    sender.finish()
    scene.accounted(sender.finish())
    scene.ended()


def test_what_a_source_had_said_of_datagrams_that_never_came_is_reported_at_its_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, published, cut = UdpReceiver.receive, [0], threading.Event()

    def receive(udp_receiver: UdpReceiver, packet: bytes, address: Hashable, now_ns: int) -> None:
        found = udp_packets.parse(packet)
        if isinstance(found, udp_packets.Topics):
            published[0] = max(listed[2] for listed in found.topics)
        if not (cut.is_set() and isinstance(found, udp_packets.Data)):
            real(udp_receiver, packet, address, now_ns)

    replace_receive(monkeypatch, receive)
    sender = scene.meet()
    scene.accounted(sender.do("send", topic="t", count=10))
    cut.set()
    sent = sender.do("send", topic="t", count=5)
    scene.bus.until(lambda: published[0] == sent, "the numbers of the source")
    sender.pause()
    scene.ended()
    balanced(scene.ledger, sent)
    assert scene.ledger.lost == 5


def test_a_silence_in_which_nothing_was_sent_ends_and_begins_nothing_but_itself(scene: Scene) -> None:
    sender = scene.meet()
    scene.accounted(sender.do("send", topic="t", count=10))
    sender.pause()
    scene.ended()
    sender.kill()
    scene.bus.until(lambda: scene.receiver.sessions == [], "the session to be gone")
    assert (scene.ledger.begun, scene.ledger.ended, scene.ledger.lost) == (1, 1, 0)
