"""Any bytes in any order, at both ends of a session over UDP."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.registration import State
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.reliability.reliable_sender import ReliableSender
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings
from ipcbus.wire import udp_packets

if TYPE_CHECKING:
    from collections.abc import Hashable

SECOND = 1_000_000_000
SESSION = 7
AT = ("127.0.0.1", 1)
HERE = ("127.0.0.1", 2)
RECEIVE = ReceiverSettings(ReceiveSettings(NakSettings(entries_max=50), late_max=50), jump_max=100)

NUMBERS = st.one_of(st.integers(0, 20), st.integers(0, udp_packets.NUMBER_MAX))
U64 = st.integers(0, 2**64 - 1)
FLAGS = st.integers(0, 31)


def _numbers(cookie: int, numbers: set[int]) -> bytes:
    return udp_packets.naks(SESSION, cookie, sorted(numbers))[0]


PACKETS = st.one_of(
    st.binary(max_size=80),
    st.builds(lambda kind, rest: bytes([1, kind, 0, 0, 0, 0, 0, SESSION]) + rest, st.integers(0, 12), st.binary()),
    st.builds(lambda n, f: udp_packets.data(SESSION, n, max(0, n - 3), 1, 0, b"x", f), NUMBERS, FLAGS),
    st.builds(lambda n, f, c, o: udp_packets.session_message(SESSION, n, n // 2, f, c, o), NUMBERS, FLAGS, U64, U64),
    st.builds(_numbers, U64, st.sets(NUMBERS, min_size=1, max_size=30)),
    st.builds(
        lambda r, n: udp_packets.ncfs(SESSION, r, sorted(n))[0],
        st.integers(0, 9),
        st.sets(NUMBERS, min_size=1, max_size=9),
    ),
    st.builds(lambda c, o: udp_packets.connect(SESSION, c, o), U64, U64),
    st.builds(lambda c, f: udp_packets.reset(SESSION, c, f), U64, FLAGS),
    st.builds(lambda c, e, n: udp_packets.frame(SESSION, c, e, e, n, b"x"), U64, st.integers(0, 9), NUMBERS),
    st.builds(
        lambda c, e, n, f: udp_packets.frame_ack(SESSION, c, e, e, (n, n, 1), f), U64, st.integers(0, 9), NUMBERS, FLAGS
    ),
    st.builds(lambda c, t: udp_packets.acks(SESSION, c, 0, (1, 2, "a"), 3, t)[0], U64, st.lists(st.integers(0, 9))),
)
STEPS = st.lists(st.tuples(PACKETS, st.booleans(), st.integers(0, SECOND)), max_size=30)


@given(STEPS, st.booleans(), st.booleans())
def test_a_receiver_takes_anything(steps: list[tuple[bytes, bool, int]], multicast: bool, resume: bool) -> None:
    end = ReliableReceiver(SESSION, AT, RECEIVE, Random(1), 0, (1, 2, "a"), multicast, 0 if resume else None)
    now, delivered = 0, 0
    for packet, from_source, wait in steps:
        now += wait
        delivered += len(end.receive(packet, AT if from_source else HERE, now))
        end.turn(now)
        following = end.next_ns
        assert (following is None) == end.over
        assert following is None or following > now
        assert end.missing <= 50
        assert all(udp_packets.parse(packet) is not None for packet in end.take())
    # Without the answer to its CONNECT nobody is joined, and over unicast nothing is delivered.
    assert end.state in (State.CONNECTING, State.ENDED, State.SILENT)
    assert delivered == 0 or (multicast and not resume)


@given(STEPS, st.booleans())
def test_a_source_takes_anything(steps: list[tuple[bytes, bool, int]], multicast: bool) -> None:
    end = ReliableSender(SESSION, SenderSettings(SendSettings(data_rate=0)), bytes(16), 0, multicast)
    now = 0
    for number in range(5):
        end.send(bytes([number]), 1, 0, 0)
    end.take()
    for packet, one, wait in steps:
        now += wait
        end.receive(packet, AT if one else HERE, now)
        address: Hashable = AT if one else HERE
        assert sum(len(answer) for answer, to in end.take() if to == address) <= len(packet)
        end.turn(now)
        following = end.next_ns(now)
        assert following is None or following > now
        assert all(to is None for _, to in end.take())
    # Nobody has seen a cookie.
    assert list(end.addresses) == []
    assert end.counts.rxs_sent == 0
