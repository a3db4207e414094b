from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.resolution.network.forwarder import Forwarder, ForwarderSettings
from ipcbus.wire import relay_packets
from tests.kit.cases import each_of

S = 1_000_000_000
TERMS = ForwarderSettings()
SECRET = b"sixteen bytes or more"


def forwarder(**changes: int) -> Forwarder:
    return Forwarder(replace(TERMS, **changes), SECRET)


def ask(daemon: Forwarder, address: str, cookie: int, now_ns: int) -> int:
    """A keepalive; returns the cookie of its answer."""
    packet = relay_packets.keepalive(cookie, 5)
    daemon.receive(packet, address, now_ns)
    ((answer, to),) = daemon.take()
    found = relay_packets.parse(answer)
    assert found is not None
    assert (found.type, found.nonce, to, len(answer)) == (relay_packets.ANSWER, 5, address, len(packet))
    return found.cookie


def join(daemon: Forwarder, *addresses: str, now_ns: int = 0) -> dict[str, int]:
    """Cookies of those who have proved their addresses."""
    cookies = {address: ask(daemon, address, 0, now_ns) for address in addresses}
    for address, cookie in cookies.items():
        ask(daemon, address, cookie, now_ns)
    return cookies


def test_what_one_says_all_others_hear() -> None:
    daemon = forwarder()
    cookies = join(daemon, "a", "b", "c")
    assert list(daemon.clients) == ["a", "b", "c"]
    daemon.receive(relay_packets.relay(cookies["b"], b"hello"), "b", 0)
    assert dict((to, relay_packets.parse(packet)) for packet, to in daemon.take()) == {
        to: relay_packets.Packet(relay_packets.RELAY, cookies[to], 0, b"hello") for to in ("a", "c")
    }
    assert (daemon.counts.relayed, daemon.counts.sent) == (1, 2)


def test_nobody_is_a_client_before_he_has_echoed_his_cookie() -> None:
    daemon = forwarder()
    cookies = join(daemon, "a")
    for cookie in (0, 7, cookies["a"]):
        ask(daemon, "b", cookie, 0)
        daemon.receive(relay_packets.relay(cookie, b"hello"), "b", 0)
        assert daemon.take() == []
    assert list(daemon.clients) == ["a"]
    assert daemon.counts.dropped_unproven == 3
    # And nobody can speak for a client by forging its address.
    daemon.receive(relay_packets.relay(8, b"hello"), "a", 0)
    assert daemon.counts.dropped_unproven == 4


def test_cookies_are_of_one_daemon_one_address_and_some_time() -> None:
    daemon, other = forwarder(), Forwarder(TERMS, b"another secret....")
    cookie = ask(daemon, "a", 0, 0)
    assert cookie != ask(other, "a", 0, 0)
    assert cookie != ask(daemon, "b", 0, 0)
    assert cookie == ask(daemon, "a", 0, 59 * S)
    assert list(daemon.clients) == []
    following = ask(daemon, "a", cookie, 60 * S)
    assert following != cookie
    assert list(daemon.clients) == ["a"]
    daemon.turn(66 * S)
    ask(daemon, "a", cookie, 120 * S)
    assert list(daemon.clients) == []
    ask(daemon, "a", following, 120 * S)
    assert list(daemon.clients) == ["a"]


def test_who_is_silent_is_forgotten() -> None:
    daemon = forwarder()
    cookies = join(daemon, "a", "b")
    assert daemon.next_ns == 5 * S
    ask(daemon, "a", cookies["a"], 3 * S)
    daemon.turn(5 * S)
    assert list(daemon.clients) == ["a"]
    assert daemon.next_ns == 8 * S
    daemon.receive(relay_packets.relay(cookies["b"], b"hello"), "b", 6 * S)
    assert list(daemon.clients) == ["a", "b"]
    daemon.turn(11 * S)
    assert list(daemon.clients) == []
    assert daemon.next_ns is None


def test_bounds() -> None:
    daemon = forwarder(clients_max=2, datagram_max_size=5, client_bps=80)
    cookies = join(daemon, "a", "b", "c")
    assert list(daemon.clients) == ["a", "b"]
    assert daemon.counts.dropped_full == 1
    daemon.receive(relay_packets.relay(cookies["a"], b"123456"), "a", 0)
    assert daemon.counts.dropped_size == 1
    for _ in range(10):
        daemon.receive(relay_packets.relay(cookies["a"], b"12345"), "a", 0)
    assert daemon.counts.relayed + daemon.counts.dropped_rate == 10
    assert daemon.counts.relayed == 2  # ten bytes a second
    daemon.receive(relay_packets.relay(cookies["b"], b"12345"), "b", 0)
    assert daemon.counts.relayed == 3
    assert len(daemon.take()) == 3
    daemon.turn(5 * S)
    join(daemon, "c", now_ns=5 * S)
    assert list(daemon.clients) == ["c"]


@each_of("packet", [b"", b"x" * 30, relay_packets.answer(1, 2), relay_packets.relay(1, b"")])
def test_what_is_none_is_counted(packet: bytes) -> None:
    daemon = forwarder()
    daemon.receive(packet, "a", 0)
    assert daemon.take() == []
    assert daemon.counts.dropped_malformed == 1


@given(st.lists(st.tuples(st.binary(max_size=40), st.sampled_from([b"", b"\1\x51\0\0", b"\1\x53\0\0"]))))
def test_nobody_is_sent_more_than_he_has_sent(packets: list[tuple[bytes, bytes]]) -> None:
    daemon = forwarder()
    for rest, head in packets:
        daemon.receive(head + rest, "a", 0)
        assert sum(len(packet) for packet, _ in daemon.take()) <= len(head + rest)
    assert list(daemon.clients) == []
