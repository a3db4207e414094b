from __future__ import annotations

from random import Random

from ipcbus.resolution.network.forwarder import Forwarder, ForwarderSettings
from ipcbus.resolution.network.resolver_clients import ResolverClients, ResolverClientSettings
from ipcbus.wire import relay_packets

MS = 1_000_000
S = 1000 * MS


class Net:
    """Clients and daemons, and time; what is sent comes at once."""

    def __init__(self, *clients: str) -> None:
        self.now_ns = 0
        self.daemons = {name: Forwarder(ForwarderSettings(), name.encode() * 16) for name in ("d", "e")}
        self.clients = {
            name: ResolverClients(("d", "e"), ResolverClientSettings(), Random(name), 0) for name in clients
        }
        self.heard: dict[str, list[bytes]] = {name: [] for name in clients}
        self.down: set[str] = set()

    def run(self, until_ns: int) -> None:
        """Lets time pass."""
        while self.now_ns < until_ns:
            for client in self.clients.values():
                client.turn(self.now_ns)
            self.carry()
            for daemon in self.daemons.values():
                daemon.turn(self.now_ns)
            self.now_ns += 10 * MS

    def carry(self) -> None:
        """Brings what was sent where it belongs, and what that leads to."""
        moved = True
        while moved:
            moved = False
            for name, client in self.clients.items():
                for packet, to in client.take():
                    moved = True
                    if to not in self.down:
                        self.daemons[str(to)].receive(packet, name, self.now_ns)
            for name, daemon in self.daemons.items():
                for packet, to in daemon.take():
                    moved = True
                    inner = self.clients[str(to)].receive(packet, name, self.now_ns)
                    if inner is not None:
                        self.heard[str(to)].append(inner)


def test_all_daemons_that_answer_are_used() -> None:
    net = Net("a", "b")
    net.run(100 * MS)
    assert list(net.clients["a"].alive) == ["d", "e"]
    net.clients["a"].send(b"hello")
    net.carry()
    assert net.heard == {"a": [], "b": [b"hello", b"hello"]}


def test_one_that_dies_is_noticed_and_missed_by_nobody() -> None:
    net = Net("a", "b")
    net.run(2 * S)
    changes = net.clients["a"].changes
    net.down = {"d"}
    net.clients["a"].send(b"at once")
    net.carry()
    assert net.heard["b"] == [b"at once"]
    net.run(4 * S)
    assert list(net.clients["a"].alive) == ["e"]
    assert net.clients["a"].changes == changes + 1
    # It comes back with another secret: all cookies are void.
    net.daemons["d"] = Forwarder(ForwarderSettings(), b"another secret..")
    net.down = set()
    net.run(6 * S)
    assert list(net.clients["a"].alive) == ["d", "e"]
    assert net.clients["a"].changes == changes + 2
    net.clients["b"].send(b"again")
    net.carry()
    assert net.heard["a"] == [b"again", b"again"]


def test_cookies_that_change_are_followed() -> None:
    net = Net("a", "b")
    for second in range(1, 200):
        net.run(second * S)
        net.clients["a"].send(b"%d" % second)
        net.carry()
    assert net.heard["b"] == [b"%d" % second for second in range(1, 200) for _ in range(2)]
    assert not any(daemon.counts.dropped_unproven for daemon in net.daemons.values())
    keepalives = net.daemons["d"].counts.keepalives
    assert keepalives < 2 * (2 * 199 + 20)


def test_while_none_answers_all_that_ever_have_are_tried() -> None:
    net = Net("a")
    net.clients["a"].send(b"too early")
    assert net.clients["a"].take() == []
    assert net.clients["a"].counts.unsent == 1
    net.run(S)
    net.down = {"d", "e"}
    net.run(5 * S)
    assert list(net.clients["a"].alive) == []
    net.clients["a"].take()
    net.clients["a"].send(b"hello")
    assert [to for _, to in net.clients["a"].take()] == ["d", "e"]


def test_only_daemons_are_heard() -> None:
    client = ResolverClients(("d",), ResolverClientSettings(), Random(1), 0)
    client.turn(0)
    ((packet, _),) = client.take()
    asked = relay_packets.parse(packet)
    assert asked is not None
    assert asked.cookie == 0
    for forged, address in (
        (relay_packets.answer(5, asked.nonce), "x"),
        (relay_packets.answer(5, asked.nonce ^ 1), "d"),
        (relay_packets.answer(5, 0), "d"),
        (relay_packets.answer(0, asked.nonce), "d"),
        (relay_packets.relay(0, b"inner"), "d"),
        (relay_packets.relay(5, b"inner"), "d"),
        (relay_packets.keepalive(5, asked.nonce), "d"),
        (b"", "d"),
    ):
        assert client.receive(forged, address, 1) is None
    assert list(client.alive) == []
    assert client.counts.dropped_unproven == 8
    assert client.receive(relay_packets.answer(5, asked.nonce), "d", 1) is None
    assert list(client.alive) == ["d"]
    assert client.receive(relay_packets.relay(5, b"inner"), "d", 1) == b"inner"
    assert client.next_ns == 20 * MS


def test_a_daemon_that_gives_new_cookies_keeps_nobody_busy() -> None:
    client = ResolverClients(("d",), ResolverClientSettings(), Random(1), 0)
    sent = 0
    for now_ns in range(0, S, MS):
        client.turn(now_ns)
        for packet, _ in client.take():
            sent += 1
            found = relay_packets.parse(packet)
            assert found is not None
            client.receive(relay_packets.answer(now_ns + 1, found.nonce), "d", now_ns)
    assert sent <= 51


def test_without_daemons_nothing_is_due() -> None:
    client = ResolverClients((), ResolverClientSettings(), Random(1), 0)
    assert client.next_ns is None
    client.turn(0)
    assert client.take() == []
