from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.wire import relay_packets
from ipcbus.wire.relay_packets import Packet
from tests.kit.cases import each_of

U64 = st.integers(0, 2**64 - 1)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_packet_or_none(packet: bytes) -> None:
    relay_packets.parse(packet)
    relay_packets.parse(b"\1" + packet)


@given(U64, U64, st.binary(min_size=1, max_size=100))
def test_packets(cookie: int, nonce: int, inner: bytes) -> None:
    assert relay_packets.parse(relay_packets.keepalive(cookie, nonce)) == Packet(
        relay_packets.KEEPALIVE, cookie, nonce, b""
    )
    assert relay_packets.parse(relay_packets.answer(cookie, nonce)) == Packet(relay_packets.ANSWER, cookie, nonce, b"")
    assert relay_packets.parse(relay_packets.relay(cookie, inner)) == Packet(relay_packets.RELAY, cookie, 0, inner)
    assert len(relay_packets.relay(cookie, inner)) == relay_packets.RELAY_HEADER + len(inner)
    # A sender that only claims an address gets an answer that is not longer than its packet.
    assert len(relay_packets.answer(cookie, nonce)) == len(relay_packets.keepalive(cookie, nonce))


@each_of(
    "packet",
    [
        b"",
        relay_packets.relay(1, b""),
        relay_packets.keepalive(1, 2)[:-1],
        relay_packets.keepalive(1, 2) + b"\0",
        b"\2" + relay_packets.keepalive(1, 2)[1:],
        b"\1\1" + relay_packets.keepalive(1, 2)[2:],
        relay_packets.keepalive(1, 2)[:3] + b"\1" + relay_packets.keepalive(1, 2)[4:],
    ],
)
def test_what_contradicts_itself_is_none(packet: bytes) -> None:
    assert relay_packets.parse(packet) is None
