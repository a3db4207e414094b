from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.wire import relaying
from ipcbus.wire.relaying import Packet

U64 = st.integers(0, 2**64 - 1)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_packet_or_none(packet: bytes) -> None:
    relaying.parse(packet)
    relaying.parse(b"\1" + packet)


@given(U64, U64, st.binary(min_size=1, max_size=100))
def test_packets(cookie: int, nonce: int, inner: bytes) -> None:
    assert relaying.parse(relaying.keepalive(cookie, nonce)) == Packet(relaying.KEEPALIVE, cookie, nonce, b"")
    assert relaying.parse(relaying.answer(cookie, nonce)) == Packet(relaying.ANSWER, cookie, nonce, b"")
    assert relaying.parse(relaying.relay(cookie, inner)) == Packet(relaying.RELAY, cookie, 0, inner)
    assert len(relaying.relay(cookie, inner)) == relaying.RELAY_HEADER + len(inner)
    # The answer to who only claims an address is no longer than what he sent.
    assert len(relaying.answer(cookie, nonce)) == len(relaying.keepalive(cookie, nonce))


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        relaying.relay(1, b""),
        relaying.keepalive(1, 2)[:-1],
        relaying.keepalive(1, 2) + b"\0",
        b"\2" + relaying.keepalive(1, 2)[1:],
        b"\1\1" + relaying.keepalive(1, 2)[2:],
        relaying.keepalive(1, 2)[:3] + b"\1" + relaying.keepalive(1, 2)[4:],
    ],
)
def test_what_contradicts_itself_is_none(packet: bytes) -> None:
    assert relaying.parse(packet) is None
