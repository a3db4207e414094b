"""What the ends of a session over UDP show."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ipcbus.delivery.timer_grid import lead_ns
from ipcbus.reliability.receiver_settings import ReceiverCounts
from ipcbus.reliability.reliable_sender import ReliableSender
from ipcbus.reliability.session_sender import SenderCounts, SenderSettings
from ipcbus.stats.counters import counters_of
from ipcbus.transport.udp.datagram_socket import DatagramCounts
from ipcbus.transport.udp.stats_blocks import INTERVAL_NS, SenderStatsBlock
from ipcbus.wire import udp_packets, wire_layout
from ringbuf.channel import Shape
from ringbuf.layout import RING_HEADER
from tests.kit.private_channel import PrivateChannel

TOPICS = 8


class Socket:
    counts = DatagramCounts(dgrams_sent=3, dgrams_overrun=2)


class Port:
    socket, unknown = Socket(), 5


@pytest.mark.parametrize(
    ("kind", "board"), [(SenderCounts, wire_layout.UPLINK_BOARD), (ReceiverCounts, wire_layout.RECEPTION_BOARD)]
)
def test_everything_that_an_end_counts_is_shown_and_in_the_table(
    kind: type[SenderCounts | ReceiverCounts], board: np.dtype[np.void]
) -> None:
    of = "uplink" if kind is SenderCounts else "reception"
    counted = {*kind.__dataclass_fields__, *(f"socket_{name}" for name in DatagramCounts.__dataclass_fields__)}
    assert counted <= set(board.names or ())
    assert counted <= {row.name for row in counters_of(of)}


class Shown:
    """The stats block of a sender, and the sender."""

    def __init__(self) -> None:
        lines = TOPICS * wire_layout.TOPIC_LINE.itemsize
        self.ring = PrivateChannel(Shape(1, 4096, 256, False, 1, lines + wire_layout.uplink_bytes(TOPICS), 0)).ring
        self.topics = np.frombuffer(self.ring.view(RING_HEADER.itemsize, lines), wire_layout.TOPIC_LINE, TOPICS)
        self.topics["topic"] = np.arange(TOPICS)
        self.end = ReliableSender(1, SenderSettings(), b"k" * 16, 0, multicast=False)
        self.board = SenderStatsBlock(self.ring, TOPICS, wire_layout.TRANSPORT_LBTRU, self.end)
        at = RING_HEADER.itemsize + lines
        self.shown = np.frombuffer(self.ring.view(at), wire_layout.UPLINK_BOARD, 1)
        at += wire_layout.UPLINK_BOARD.itemsize
        self.clients = np.frombuffer(self.ring.view(at), wire_layout.CLIENT_LINE, wire_layout.CLIENTS_SHOWN)
        at += wire_layout.CLIENTS_SHOWN * wire_layout.CLIENT_LINE.itemsize
        self.joined = np.frombuffer(self.ring.view(at), np.dtype("<u8"), TOPICS)

    def show(self, now_ns: int = 0) -> None:
        self.board.show(Port(), {}, True, now_ns)  # type: ignore[arg-type]

    def join(self, number: int, topics: tuple[int, ...] = ()) -> tuple[str, int]:
        """Registers a client; returns its address."""
        address = ("10.0.0.1", 1000 + number)
        cookie = 0
        for _ in range(2):
            self.end.receive(udp_packets.connect(1, cookie, 9), address, 0)
            found = udp_packets.parse(self.end.take()[-1][0])
            assert isinstance(found, udp_packets.SessionMessage)
            cookie = found.cookie
        who = (number + 1, 100 + number, f"c{number}")
        for ack in udp_packets.acks(1, cookie, 0, who, 1, topics):
            self.end.receive(ack, address, 0)
        return address

    def leave(self, address: tuple[str, int]) -> None:
        client = next(each for each in self.end.clients if each.address == address)
        self.end.receive(udp_packets.leave(1, client.cookie), address, 0)


def test_counters_and_values_of_the_moment() -> None:
    found = Shown()
    assert found.shown["version"] == 0
    found.join(0)
    found.end.send(b"datagram", 1, 0, 0)
    found.show(7)
    shown = found.shown[0]
    assert (shown["version"], shown["active"], shown["transport"]) == (2, 1, wire_layout.TRANSPORT_LBTRU)
    assert (shown["num_clients"], shown["lead"], shown["trail"]) == (1, 1, 0)
    assert (shown["txw_msgs"], shown["txw_bytes"]) == (1, 8)
    assert (shown["socket_dgrams_sent"], shown["socket_dgrams_overrun"], shown["unknown_msgs_rcved"]) == (3, 2, 5)
    assert (shown["clients_max"], shown["data_rate"]) == (1024, 10_000_000)


def test_it_is_due_on_a_grid_that_all_sessions_share() -> None:
    found = Shown()
    early_ns = INTERVAL_NS - lead_ns(INTERVAL_NS)
    for number, now_ns in enumerate((7, early_ns - 1)):
        found.join(number)
        found.show(now_ns)
        assert found.board.due_ns == INTERVAL_NS
        assert (found.board.is_due(early_ns - 1), found.board.is_due(early_ns)) == (False, True)
    for number, now_ns in enumerate((early_ns, INTERVAL_NS)):
        found.join(2 + number)
        found.show(now_ns)
        assert found.board.due_ns == 2 * INTERVAL_NS


def test_it_is_late_when_the_driver_has_missed_a_write() -> None:
    found = Shown()
    found.show(7)
    assert [found.board.is_late(now_ns) for now_ns in (2 * INTERVAL_NS - 1, 2 * INTERVAL_NS)] == [False, True]


def test_one_that_had_nothing_new_is_due_once_a_second() -> None:
    found = Shown()
    found.show(7)
    assert found.board.due_ns == INTERVAL_NS  # all is new
    for now_ns in (INTERVAL_NS, 2 * INTERVAL_NS):
        found.show(now_ns)
        assert found.board.due_ns == 4 * INTERVAL_NS
    found.join(0)
    found.show(4 * INTERVAL_NS)
    assert found.board.due_ns == 5 * INTERVAL_NS


def test_a_client_that_the_source_waits_for_is_behind_by_all_it_has_not_heard_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Shown()
    found.join(0)
    for number in range(5):
        found.end.send(b"datagram", 1, number, 0)
    found.show()
    assert found.clients[0]["behind"] == 0
    (client,) = found.end.clients
    monkeypatch.setattr(type(found.end), "slowest", client)
    found.show()
    assert found.clients[0]["behind"] == 5


def test_clients_keep_their_lines() -> None:
    found = Shown()
    first, second = found.join(0, (1, 2)), found.join(1, (2,))
    found.show()
    assert found.clients["used"].tolist()[:3] == [1, 1, 0]
    line = found.clients[0]
    assert (line["context_id"], line["pid"], line["context_name"], line["address"]) == (1, 100, b"c0", b"10.0.0.1:1000")
    assert found.joined.tolist()[:4] == [0, 0b01, 0b11, 0]
    since = int(found.clients[1]["since_ns"])
    found.leave(first)
    found.show()
    assert found.clients["used"].tolist()[:2] == [0, 1]
    assert (found.clients[1]["context_id"], found.clients[1]["since_ns"]) == (2, since)
    assert found.joined.tolist()[:4] == [0, 0, 0b10, 0]
    found.join(2, (3,))
    found.leave(second)
    found.show()
    assert found.clients["context_id"].tolist()[:2] == [3, 0]
    assert found.joined[3] == 0b01


def test_topics_that_are_not_there_are_not_shown() -> None:
    found = Shown()
    found.join(0, (1 + TOPICS, 2))
    found.show()
    assert found.joined.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]


def test_more_clients_than_lines_are_counted() -> None:
    found = Shown()
    many = wire_layout.CLIENTS_SHOWN + 5
    for number in range(many):
        found.join(number, (1,))
    found.show()
    assert int(found.clients["used"].sum()) == wire_layout.CLIENTS_SHOWN
    assert found.shown["num_clients"] == many
    assert found.joined[1] == 2**64 - 1


def test_time_in_which_the_data_rate_limits() -> None:
    found = Shown()
    found.join(0)
    end = found.end
    for now_ns, blocked in ((5, False), (10, True), (20, True), (30, False), (50, True)):
        found.board._sender = SimpleNamespace(rate_limited=blocked)  # type: ignore[assignment]
        found.board.limited(now_ns)
    found.board._sender = end
    found.show(60)
    shown = found.shown[0]
    assert (shown["rate_limited_ns"], shown["limited_since"]) == (20, 50)
