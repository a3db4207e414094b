from __future__ import annotations

from typing import TYPE_CHECKING, cast
from unittest.mock import Mock

from ipcbus.transport.udp.session_socket import SessionSocket

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ipcbus.transport.udp.datagram_socket import DatagramSocket
    from ipcbus.transport.udp.mmsg import Address

SENDER: Address = ("127.0.0.1", 1)


class Socket:
    """What waits in it."""

    def __init__(self, *packets: bytes) -> None:
        self.waiting = list(packets)
        self.closed = False
        self.longest_read = 0

    def close(self) -> None:
        self.closed = True

    def receive(self, limit: int) -> list[tuple[bytes, Address]]:
        found, self.waiting = self.waiting[:limit], self.waiting[limit:]
        self.longest_read = max(map(len, found), default=0)
        return [(packet, SENDER) for packet in found]


class Taker:
    """Gets everything."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        del address, now_ns
        self.got.append(packet)

    def turn(self, now_ns: int) -> int | None:
        del now_ns
        return None


def readings(*packets: bytes) -> list[int]:
    """How many packets each reading took, until nothing was left."""
    taker, found = Taker(), []
    port = SessionSocket(cast("DatagramSocket", Socket(*packets)), default_handler=taker)
    while True:
        before = len(taker.got)
        port.read(0)
        found.append(len(taker.got) - before)
        if not port.may_have_more:
            assert taker.got == list(packets)
            return found


def test_short_packets_are_read_many_at_a_time() -> None:
    assert readings(*[bytes(100)] * 70) == [1, 64, 5]


def test_of_long_packets_only_as_many_as_find_room() -> None:
    assert readings(*[bytes(60_000)] * 20) == [1, 8, 8, 3]


def test_one_that_comes_alone_is_read_by_one_call() -> None:
    taker = Taker()
    socket = Socket(bytes(100))
    port = SessionSocket(cast("DatagramSocket", socket), default_handler=taker)
    port.read(0)
    socket.waiting = [bytes(100)]
    port.read(0)
    assert not port.may_have_more


def test_a_thread_that_waits_for_an_answer_reads_a_few_packets() -> None:
    taker, packets = Taker(), [bytes([number]) * 8 for number in range(20)]
    port = SessionSocket(cast("DatagramSocket", Socket(*packets)), default_handler=taker)
    port.read_answers(0)
    assert taker.got == packets[:8]
    port.read_answers(0)
    assert taker.got == packets[:16]
    sealed = SessionSocket(cast("DatagramSocket", Socket(*packets)), Mock(), default_handler=taker)
    sealed.read_answers(0)  # one thread at a time opens seals
    assert taker.got == packets[:16]


def test_the_last_handler_that_leaves_is_reported() -> None:
    unused: list[SessionSocket] = []
    first, second = Taker(), Taker()
    port = SessionSocket(cast("DatagramSocket", Socket()), on_unused=unused.append)
    port.add(first, 1)
    port.add(first, 2)
    port.add(second, 3)
    port.remove(first)
    assert unused == []
    port.remove(second)
    assert unused == [port]


def test_a_socket_without_an_owner_is_closed_by_its_last_handler() -> None:
    socket, taker = Socket(), Taker()
    port = SessionSocket(cast("DatagramSocket", socket))
    port.add(taker, 1)
    port.remove(taker)
    assert socket.closed


class FullSocket(Socket):
    """Takes `room` packets."""

    def __init__(self) -> None:
        super().__init__()
        self.room, self.sent = 0, list[bytes]()

    def send_pairs(self, pairs: Iterable[tuple[bytes, Address]]) -> tuple[tuple[bytes, Address], ...]:
        given = tuple(pairs)
        taken, rest = given[: self.room], given[self.room :]
        self.room -= len(taken)
        self.sent += [packet for packet, _ in taken]
        return rest


def test_packets_without_room_wait_in_their_order() -> None:
    socket = FullSocket()
    port = SessionSocket(cast("DatagramSocket", socket))
    socket.room = 1
    port.send([(b"1", SENDER), (b"2", SENDER), (b"3", SENDER)])
    assert (port.waits, socket.sent) == (True, [b"1"])
    port.send([(b"4", SENDER)])
    socket.room = 2
    port.read(0)
    assert (port.waits, socket.sent) == (True, [b"1", b"2", b"3"])
    socket.room = 2
    port.send([(b"5", SENDER)])
    port.read(0)
    assert not port.waits
    assert socket.sent == [b"1", b"2", b"3", b"4", b"5"]


def test_no_more_wait_than_a_few_thousand() -> None:
    socket = FullSocket()
    port = SessionSocket(cast("DatagramSocket", socket))
    for number in range(10):
        port.send([(bytes([number]), SENDER)] * 1000)
    socket.room = 10_000
    port.read(0)
    assert not port.waits
    assert len(socket.sent) == 4096
