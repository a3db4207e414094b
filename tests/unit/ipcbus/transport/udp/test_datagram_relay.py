"""Datagrams in order go from the buffer of a socket straight into a ring; everything else is left to be judged."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus.reliability.retransmit_window import RetransmitWindow
from ipcbus.transport.udp.datagram_relay import (
    CAME,
    HAS_MORE,
    NOTHING_CAME,
    TARGETS_MAX,
    DatagramFetcher,
    RecordSender,
    is_next,
    relay,
)
from ipcbus.transport.udp.mmsg import Batched, datagram_length
from ipcbus.wire import udp_packets
from ringbuf.channel import OwnedChannel, Shape
from ringbuf.relay import put, take
from ringbuf.ring import RingReader
from ringbuf.slots import Identity
from tests.kit.udp_sockets import bound
from tests.rings.channels import fill_with_damaged, joined, owned
from tests.unit.ipcbus.reliability.ends import AT, SESSION, receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.reliability.reliable_receiver import ReliableReceiver

LONGEST = 9000


class Way:
    """Two senders, a socket that receives, and a ring."""

    def __init__(self, domain: str) -> None:
        self.near, self.stranger, self.far = bound(), bound(), bound()
        self.arrivals = Batched(self.far.fileno(), False, 65_536, joins=True)
        shape = Shape(SESSION, 65_536, LONGEST + 100, False, 1, 0, 0, "")
        self.channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", shape)
        slot = self.channel.slots.claim(Identity(1, 1, 1, "reader"), 0)
        self.reader = RingReader(self.channel.ring, self.channel.control, slot)
        self.channel.slots.join(slot, self.reader)

    def bring(self, *packets: bytes, by: socket.socket | None = None) -> None:
        """Brings packets into the buffer of the socket."""
        for packet in packets:
            (by or self.near).sendto(packet, self.far.getsockname())
        select.select([self.far], [], [])

    def moved(self, number: int, trail_max: int = 0) -> tuple[int, int, int]:
        """What `relay` says."""
        self.arrivals.fetch(64)
        return relay(self.arrivals, self.channel.writer, SESSION, number, trail_max)

    def publish(self, *bodies: bytes) -> None:
        """Publishes records in the ring."""
        for number, body in enumerate(bodies):
            assert put(self.channel.writer, body, 0, number + 1, 1_700_000_000_000_000_000) >= 0

    def taken(self) -> list[tuple[bytes, int, int]]:
        """What is in the ring."""
        return list(iter(lambda: take(self.reader), None))

    def left(self) -> list[bytes]:
        """What is left in the buffer."""
        return [packet for packet, _ in self.arrivals.receive(64)]


@pytest.fixture
def way(domain: str) -> Iterator[Way]:
    """Sockets and a ring."""
    made = Way(domain)
    yield made
    for sock in (made.near, made.stranger, made.far):
        sock.close()
    made.channel.close()


def data(number: int, body: bytes = b"body", trail: int = 0, flags: int = 0) -> bytes:
    return udp_packets.data(SESSION, number, trail, 1, 1_700_000_000_000_000_000, body, flags)


def test_datagrams_in_order_go_into_the_ring(way: Way) -> None:
    bodies = [bytes([number]) * (number + 1) for number in range(20)]
    way.bring(*[data(5 + number, body) for number, body in enumerate(bodies)])
    assert way.moved(5) == (20, sum(map(len, bodies)), 20 + udp_packets.DATA_HEADER)
    assert [body for body, _, _ in way.taken()] == bodies
    assert way.left() == []
    assert way.arrivals.rcved == 20


OTHERS = {
    "later": data(6),
    "earlier": data(4),
    "again": data(5, flags=udp_packets.AGAIN),
    "behind datagrams for others": data(5, flags=1 << udp_packets.PASSED_SHIFT),
    "a higher trail": data(5, trail=4),
    "of another session": udp_packets.data(SESSION + 1, 5, 0, 1, 0, b"x", 0),
    "of another version": b"\x63" + data(5)[1:],
    "a trail below 0": data(5)[:16] + (6).to_bytes(4, "big") + data(5)[20:],
    "empty": data(5, b""),
    "cut off": data(5)[:11],
    "nothing": b"",
    "control": udp_packets.session_message(SESSION, 6, 0, 0, 0, 0),
}


@pytest.mark.parametrize("packet", OTHERS.values(), ids=OTHERS)
def test_what_a_receiver_has_to_judge_stays(way: Way, packet: bytes) -> None:
    assert not is_next(packet, SESSION, 5, 3)
    way.bring(data(4), packet, data(5))
    assert way.moved(4, 3)[0] == 1
    assert way.left() == [packet, data(5)]
    assert len(way.taken()) == 1


def test_what_comes_from_another_sender_stays(way: Way) -> None:
    way.bring(data(0))
    way.bring(data(1), by=way.stranger)
    way.bring(data(1))
    assert way.moved(0)[0] == 1
    assert way.arrivals.peek() == (way.stranger.getsockname(), SESSION)
    assert way.left() == [data(1), data(1)]


def test_a_full_ring_ends_it(way: Way) -> None:
    packets = [data(number, bytes(8000)) for number in range(12)]
    way.bring(*packets)
    count = way.moved(0)[0]
    assert 0 < count < 12
    assert way.left() == packets[count:]
    assert len(way.taken()) == count


def test_a_receiver_is_told_the_same_either_way() -> None:
    random = Random(7)
    judged, relayed = receiver(multicast=True), receiver(multicast=True)
    number, usual, got = 3, 0, 0
    for end in (judged, relayed):
        end.turn(10_000_000_000)  # from now on they take what comes, though no source registers them
    for now_ns in range(10_000_000_000, 13_000_000_000, 1_000_000):
        kind = random.random()
        number += 1 if kind < 0.8 else random.choice([0, 2, 5, -1, -3])
        packet = data(max(0, number), bytes(random.randrange(1, 9)), max(0, number - random.randrange(1, 40)))
        if kind > 0.98:
            packet = udp_packets.session_message(SESSION, number + 2, 0, 0, 0, 0)
        came = judged.receive(packet, AT, now_ns)
        expected = relayed.expected
        if expected is not None and is_next(packet, *expected):
            usual += 1
            relayed.took(1, len(packet) - udp_packets.DATA_HEADER, now_ns)
            assert came == [(packet[udp_packets.DATA_HEADER :], 1_700_000_000_000_000_000)]
        else:
            assert relayed.receive(packet, AT, now_ns) == came
        for end in (judged, relayed):
            end.turn(now_ns)
        got += len(came)
        assert facts(judged) == facts(relayed)
    assert 500 < usual < got


def facts(end: ReliableReceiver) -> tuple[object, ...]:
    """All that it shows."""
    return end.counts, end.lead, end.missing, end.stopped_at, end.heard_ns, end.settled(0), end.next_ns


# ---- sending

LIMIT = 1 << 62
PREFIX = udp_packets.DATA_BODY.size


def sent(way: Way, window: RetransmitWindow, addresses: tuple[Any, ...], limit: int = LIMIT) -> tuple[Any, ...]:
    """What `send_records` says."""
    return send_records(way.reader, Batched(way.near.fileno(), False, 1), window, addresses, limit)


def send_records(
    reader: RingReader, batched: Batched, window: RetransmitWindow, addresses: tuple[Any, ...], limit: int = LIMIT
) -> tuple[Any, ...]:
    """What was sent, and what `RecordSender` says."""
    sender = RecordSender(reader, window, SESSION)
    sender.aim(batched, addresses, limit)
    said = sender.send()
    return *sender.settle()[:2], *said


def test_memory_of_what_has_left_the_window_is_used_again_only_where_nothing_else_refers_to_it(way: Way) -> None:
    window, batched = RetransmitWindow(20_000, 0, PREFIX), Batched(way.near.fileno(), False, 1)
    lengths = [8000] * 10 + [5000] * 5 + [8000] * 5
    kept: dict[int, tuple[bytes, bytes]] = {}
    for number, length in enumerate(lengths):
        body = bytes([number]) * length
        way.publish(body)
        assert send_records(way.reader, batched, window, (way.far.getsockname(),))[0] == 1
        way.reader.show()
        assert come(way.far, 1)[0][udp_packets.DATA_HEADER :] == body
        for held in range(window.trail, window.lead):
            found = window.get(held)
            assert found is not None
            assert found[PREFIX:] == bytes([held]) * lengths[held]
            if held % 3 == 0:
                kept[held] = found, bytes(bytearray(found))
    assert all(mine == as_it_was for mine, as_it_was in kept.values())
    assert len({mine for mine, _ in kept.values()}) == 7


def come(sock: socket.socket, count: int) -> list[bytes]:
    """The packets that have come to a socket, all of them."""
    sock.setblocking(False)
    found = [sock.recv(65_536) for _ in range(count)]
    with pytest.raises(BlockingIOError):
        sock.recv(1)
    return found


@pytest.mark.parametrize("receivers", [1, 2])
def test_records_go_to_each_address_and_into_the_window(way: Way, receivers: int) -> None:
    window = RetransmitWindow(1000, 0, PREFIX)
    bodies = [bytes([number]) * (100 + number) for number in range(70)]
    way.publish(*bodies)
    addresses = tuple(sock.getsockname() for sock in (way.far, way.stranger)[:receivers])
    assert sent(way, window, addresses) == (70, sum(map(len, bodies)), False, True, [])
    for sock in (way.far, way.stranger)[:receivers]:
        packets = come(sock, 70)
        assert window.get(69) == packets[69][udp_packets.DATA_FRONT.size :]
        for number, packet in enumerate(packets):
            found = udp_packets.parse(packet)
            assert isinstance(found, udp_packets.Data)
            assert (found.number, found.messages, bytes(found.datagram)) == (number, number + 1, bodies[number])
            assert (found.session_id, found.flags) == (SESSION, 0)
            assert abs(found.send_time_ns - 1_700_000_000_000_000_000) < 1000  # the ring counts in ticks
        assert isinstance(found, udp_packets.Data)
        assert found.trail == window.trail > 0
    assert window.lead == 70
    assert sent(way, window, addresses) == (0, 0, False, True, [])


def test_no_more_is_sent_than_the_limit_allows(way: Way) -> None:
    window = RetransmitWindow(10_000, 0, PREFIX)
    way.publish(*[bytes(100)] * 5)
    limit = 3 * (100 + udp_packets.CHARGE)
    assert sent(way, window, (way.far.getsockname(),), limit) == (3, 300, False, False, [])
    assert sent(way, window, (way.far.getsockname(),), limit) == (0, 0, False, False, [])
    assert len(way.taken()) == 2
    come(way.far, 3)


def test_what_finds_no_room_in_the_socket_comes_back(way: Way) -> None:
    window = RetransmitWindow(1 << 20, 0, PREFIX)
    way.publish(*[bytes(1000)] * 60)
    # Over TCP, as the buffers of UDP on loopback are never full.
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as near:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        near.connect(server.getsockname())
        batched = Batched(near.fileno(), False, 1)
        address = way.far.getsockname()
        count, size, _, drained, left = send_records(way.reader, batched, window, (address,))
    assert (count, size, drained) == (60, 60_000, False)
    assert 0 < len(left) < 60
    assert {to for _, to in left} == {address}
    numbers = [udp_packets.DATA_HEAD.unpack_from(packet)[4] for packet, _ in left]
    assert numbers == list(range(60 - len(left), 60))
    assert {len(packet) for packet, _ in left} == {udp_packets.DATA_HEADER + 1000}


def test_too_many_addresses_are_refused(way: Way) -> None:
    for addresses in ((), (AT,) * (TARGETS_MAX + 1)):
        with pytest.raises(ValueError, match="addresses"):
            sent(way, RetransmitWindow(1000, 0, PREFIX), addresses)


class Direct:
    """A `RecordSender` that is called as a batch writer does, and what it leaves to others."""

    def __init__(self, way: Way, limit: int = LIMIT) -> None:
        self.way = way
        self.window = RetransmitWindow(1 << 20, 0, PREFIX)
        self.sender = RecordSender(way.reader, self.window, SESSION)
        self.lock = threading.RLock()
        self.published: list[int] = []
        self.kept: list[Any] = []
        self.rooms = 0
        self.sender.allow(1, self.lock, self.published.append, self.kept.extend, self._on_room)
        self.sender.aim(Batched(way.near.fileno(), False, 1), (way.far.getsockname(),), limit)
        self.sender.ready = True

    def _on_room(self) -> None:
        self.rooms += 1


def test_a_call_sends_what_is_published_until_it_is_settled(way: Way) -> None:
    direct = Direct(way)
    way.publish(bytes(10), bytes(20))
    direct.sender(1)
    way.publish(bytes(30))
    direct.sender(1)
    before = time.monotonic_ns()
    count, size, sent_ns = direct.sender.settle()
    assert (count, size) == (3, 60)
    assert 0 < sent_ns <= before
    assert not direct.sender.unsettled
    come(way.far, 3)
    way.publish(bytes(40))
    direct.sender(1)
    assert (direct.published, direct.kept, direct.rooms) == ([1], [], 0)
    assert direct.sender.settle()[:2] == (0, 0)


def test_a_call_for_other_readers_too_sends_nothing(way: Way) -> None:
    direct = Direct(way)
    way.publish(bytes(10))
    direct.sender(3)
    assert direct.published == [3]
    assert direct.window.lead == 0


def test_a_call_waits_for_no_lock(way: Way) -> None:
    direct = Direct(way)
    way.publish(bytes(10))
    with ThreadPoolExecutor(1) as other, direct.lock:
        other.submit(direct.sender, 1).result()
    assert direct.published == [1]
    direct.sender(1)
    assert (direct.published, direct.window.lead) == ([1], 1)


def test_a_call_leaves_what_clients_have_no_room_for(way: Way) -> None:
    direct = Direct(way, 2 * (100 + udp_packets.CHARGE))
    way.publish(*[bytes(100)] * 3)
    direct.sender(1)
    assert (direct.published, direct.window.lead) == ([1], 2)
    assert not direct.sender.ready
    assert direct.sender.unsettled  # two were sent
    assert direct.sender.settle()[:2] == (2, 200)


def test_a_call_keeps_what_finds_no_room_in_the_socket(way: Way) -> None:
    direct = Direct(way)
    way.publish(bytes(10))
    direct.sender.aim(Batched(way.near.fileno(), False, 1), (("192.0.2.1", 9),), LIMIT)
    way.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as near:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        near.connect(server.getsockname())
        direct.sender.aim(Batched(near.fileno(), False, 1), (way.far.getsockname(),), LIMIT)
        way.publish(*[bytes(1000)] * 60)
        direct.sender(1)
    assert direct.published == [1]
    assert 0 < len(direct.kept) < 61
    assert direct.sender.settle()[0] == 61


# ---- fetching


def fetcher(way: Way, size_max: int = 1 << 20, room_min: int = 0) -> DatagramFetcher:
    """One that expects number 5."""
    found = DatagramFetcher(way.arrivals, way.near.getsockname(), SESSION)
    found.direct(way.channel.writer, 5, 5, size_max, room_min)
    return found


def test_fetch_moves_what_has_come_until_it_is_settled(way: Way) -> None:
    found = fetcher(way)
    assert found.fetch() == NOTHING_CAME
    for number in (5, 6):
        way.bring(data(number, b"%d" % number * number))
        assert found.fetch() == CAME
    way.bring(data(7, b"7"))
    assert not found.has_packet
    assert found.settle() == (2, 11, udp_packets.DATA_HEADER + 6, None)
    assert found.fetch() == HAS_MORE
    assert found.settle() == (0, 0, 0, None)
    assert [body for body, _, _ in way.taken()] == [b"5" * 5, b"6" * 6]


@pytest.mark.parametrize("missing", [False, True])
def test_the_source_may_drop_what_was_fetched_but_not_what_is_missing(way: Way, missing: bool) -> None:
    found = DatagramFetcher(way.arrivals, way.near.getsockname(), SESSION)
    found.direct(way.channel.writer, 5, 3 if missing else 5, 1 << 20, 0)
    way.bring(data(5, trail=3))
    assert found.fetch() == CAME
    way.bring(data(6, trail=6), data(7, trail=6))
    assert found.fetch() == (HAS_MORE if missing else CAME)
    assert len(way.taken()) == (1 if missing else 3)


def test_fetch_leaves_what_is_not_the_next_datagram_of_its_source(way: Way) -> None:
    for packet, by in ((data(7, b"gap"), way.near), (data(6, b"forged"), way.stranger)):
        found = fetcher(way)
        way.bring(data(5, b"next"))
        way.bring(packet, by=by)
        assert found.fetch() == HAS_MORE
        assert found.has_packet
        assert found.settle()[0] == 1
        assert way.left() == [packet]
        assert not found.has_packet


def test_fetch_reads_nothing_beyond_its_limits(way: Way) -> None:
    way.bring(data(5, bytes(100)))
    assert fetcher(way, size_max=0).fetch() == HAS_MORE
    assert fetcher(way, room_min=1 << 20).fetch() == HAS_MORE
    found = fetcher(way, size_max=100)
    assert found.fetch() == HAS_MORE  # it has moved that one, and an ACK is due
    way.bring(data(6, bytes(100)))
    assert found.fetch() == HAS_MORE
    assert len(way.left()) == 1


PLAIN_ACK = udp_packets.acks(SESSION, 77, 0, (1, 2, "name"), 3, None, 0, (0, 0))[0]


def acknowledging(way: Way, *, room: int, share: int = 1 << 20, step: int = 500) -> DatagramFetcher:
    """One that sends an ACK when 500 bytes have come."""
    found = fetcher(way, size_max=500)
    found.acknowledge_by(PLAIN_ACK, way.arrivals, way.reader, room, LONGEST, share, step)
    return found


def answers(way: Way) -> list[udp_packets.Packet | None]:
    """The packets that have come to the source."""
    way.near.setblocking(False)
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(udp_packets.parse(way.near.recv(2000)))
    return found


def test_fetch_sends_the_acks_that_are_due(way: Way) -> None:
    found = acknowledging(way, room=0, share=4000)
    for number in range(5, 11):
        way.bring(data(number, bytes(400)))
        assert found.fetch() == CAME
    acks = answers(way)
    assert [(ack.next, ack.lead, ack.room) for ack in acks if isinstance(ack, udp_packets.Ack)] == [
        (number, number, 4000) for number in range(6, 12)
    ]
    assert {(ack.cookie, ack.context_id, ack.pid, ack.name) for ack in acks if isinstance(ack, udp_packets.Ack)} == {
        (77, 1, 2, "name")
    }
    assert found.settle() == (6, 2400, udp_packets.DATA_HEADER + 400, (6, 4000, 0))


def test_an_ack_says_how_much_room_the_unread_records_leave(way: Way) -> None:
    found = acknowledging(way, room=0)
    way.bring(*(data(number, bytes(4000)) for number in range(5, 9)))
    assert found.fetch() == CAME
    (ack,) = answers(way)
    assert isinstance(ack, udp_packets.Ack)
    assert ack.room < way.channel.writer.capacity - 4 * 4000 - 2 * LONGEST
    assert len(way.taken()) == 4


def test_an_ack_waits_until_the_ring_was_read(way: Way) -> None:
    found = acknowledging(way, room=0)
    way.bring(data(5, bytes(400)))
    assert found.fetch() == CAME
    assert len(answers(way)) == 1
    way.bring(data(6, bytes(400)))
    assert found.fetch() == CAME
    assert answers(way) == []  # what has come and is not read has made no room
    assert len(way.taken()) == 2
    way.reader.show()
    assert found.fetch() == NOTHING_CAME
    (ack,) = answers(way)
    assert isinstance(ack, udp_packets.Ack)
    assert ack.next == 7


def test_where_the_room_does_not_grow_and_the_source_has_little_the_state_machine_decides(way: Way) -> None:
    found = acknowledging(way, room=1000, share=4000, step=5000)
    way.bring(data(5, bytes(400)))
    assert found.fetch() == HAS_MORE  # though nothing else has come
    way.bring(data(6, bytes(400)))
    assert found.fetch() == HAS_MORE
    assert found.settle() == (1, 400, udp_packets.DATA_HEADER + 400, None)
    assert answers(way) == []


def test_an_ack_of_another_length_is_refused(way: Way) -> None:
    for ack in (b"short", bytes(129)):
        with pytest.raises(ValueError, match="an ACK without topics has"):
            fetcher(way).acknowledge_by(ack, way.arrivals, way.reader, 0, LONGEST, 4000, 500)


# ---- datagrams that the system joins

JOINED = [bytes([number]) * length for number, length in enumerate([300, *[1000] * 9, 400, 1000, 1000, *[2000] * 40])]


def refuse_to_join(sock: socket.socket) -> None:
    """The system does not join datagrams that have no checksum (SO_NO_CHECK)."""
    sock.setsockopt(socket.SOL_SOCKET, 11, 1)


@pytest.mark.parametrize("receivers", [1, 2])
@pytest.mark.parametrize("refused", [False, True])
def test_datagrams_are_the_same_whether_they_are_joined_or_not(way: Way, receivers: int, refused: bool) -> None:
    window = RetransmitWindow(1 << 20, 0, PREFIX)
    way.publish(*JOINED[:27])
    addresses = tuple(sock.getsockname() for sock in (way.far, way.stranger)[:receivers])
    if refused:
        refuse_to_join(way.near)
    batched = Batched(way.near.fileno(), False, 1, joins=True)
    count, size, _, drained, left = send_records(way.reader, batched, window, addresses)
    assert (count, size) == (27, sum(map(len, JOINED[:27])))
    assert batched.joins == drained == (not left) == (not refused)
    assert batched.send_pairs(left) == ()
    assert batched.sent == 27 * receivers
    assert batched.sent_bytes == receivers * sum(udp_packets.DATA_HEADER + len(body) for body in JOINED[:27])
    assert batched.refused == batched.blocked == 0
    select.select([way.far], [], [])
    count, size, longest = way.moved(0)
    assert (count, size, longest) == (27, sum(map(len, JOINED[:27])), udp_packets.DATA_HEADER + 2000)
    assert [body for body, _, _ in way.taken()] == JOINED[:27]
    assert way.arrivals.rcved == 27
    assert way.arrivals.rcved_bytes * receivers == batched.sent_bytes
    if receivers == 2:
        assert len(come(way.stranger, 27)) == 27


def test_joined_datagrams_are_taken_one_by_one(way: Way) -> None:
    """The ring is full in between, and the rest of the read is left as packets."""
    window = RetransmitWindow(1 << 20, 0, PREFIX)
    way.publish(*[bytes([number]) * 1000 for number in range(20)])
    batched = Batched(way.near.fileno(), False, 1, joins=True)
    send_records(way.reader, batched, window, (way.far.getsockname(),))
    select.select([way.far], [], [])
    assert way.arrivals.fetch(64) == 1
    assert relay(way.arrivals, way.channel.writer, SESSION, 1, 0) == (0, 0, 0)
    way.publish(*[bytes(4000)] * 15)
    count = relay(way.arrivals, way.channel.writer, SESSION, 0, 0)[0]
    assert 0 < count < 20
    assert way.arrivals.peek() == (way.near.getsockname(), SESSION)
    left = way.left()
    assert [udp_packets.DATA_HEAD.unpack_from(packet)[4] for packet in left] == list(range(count, 20))
    assert {len(packet) for packet in left} == {udp_packets.DATA_HEADER + 1000}
    assert way.arrivals.peek() is None
    assert way.left() == []


def test_a_length_that_the_kernel_cannot_mean_is_not_believed() -> None:
    assert [datagram_length(5000, said) for said in (1000, 1001, 4999)] == [1000, 1001, 4999]
    assert [datagram_length(5000, said) for said in (-1, 0, 5000, 5001, 1 << 30)] == [5000] * 5
    assert [datagram_length(65_000, said) for said in (1, 100, 126, 127)] == [0, 0, 0, 127]
    assert datagram_length(0, 0) == 0


def test_a_source_that_waits_hears_of_the_room_that_damaged_records_leave(domain: str, way: Way) -> None:
    window, batched = RetransmitWindow(1 << 20, 0, PREFIX), Batched(way.near.fileno(), False, 1)
    with owned(f"{domain}d", checksums=True) as channel, joined(f"{domain}d") as joining:
        assert fill_with_damaged(channel) > 20
        assert channel.writer.want_event(100)
        to = (way.far.getsockname(),)
        assert send_records(joining.reader, batched, window, to) == (0, 0, True, True, [])
        assert send_records(joining.reader, batched, window, to) == (0, 0, False, True, [])
        assert channel.writer.write(bytes(100))


def test_a_source_that_waits_hears_of_room_in_the_middle_of_what_is_sent(way: Way) -> None:
    window, batched = RetransmitWindow(1 << 20, 0, PREFIX), Batched(way.near.fileno(), False, 1)
    count = 0
    while way.channel.writer.write(bytes(500)):
        count += 1
    assert way.channel.writer.want_event(500)
    said = send_records(way.reader, batched, window, (way.far.getsockname(),))
    assert (said[0], said[2]) == (count, True)
