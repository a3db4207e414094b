"""A session over UDP whose source waits for its client: the thread that waits reads the answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from ipcbus.reliability.reliable_sender import ReliableSender
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings
from ipcbus.transport.udp import ack_watch
from ipcbus.transport.udp.datagram_relay import CAME, HAS_MORE, LEFT, NOTHING_CAME
from ipcbus.transport.udp.mmsg import Batched
from ipcbus.transport.udp.stats_blocks import INTERVAL_NS, next_write_ns
from ipcbus.transport.udp.udp_sender import UdpSender
from ipcbus.wire import udp_packets
from ringbuf.channel import OwnedChannel, Shape
from tests.kit.udp_sockets import bound

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSION = 7
COUNT = 200
CLIENT = ("127.0.0.1", 9)
OTHER = ("127.0.0.1", 10)


def test_a_thread_that_waits_for_a_client_reads_its_answers(domain: str) -> None:
    settings = SenderSettings(SendSettings(data_rate=0))
    sender = ReliableSender(SESSION, settings, bytes(32), time.monotonic_ns(), multicast=False)
    port = Mock(direct=None, waits=False)
    names = f"{domain}-ring", f"{domain}-control"
    channel = OwnedChannel(*names, Shape(SESSION, 1 << 20, 4096, False, 1, 0, 0, ""))
    try:
        udp_sender = UdpSender(
            channel, port, sender, Mock(due_ns=1 << 62), Mock(), name="", group=None, twin=False, return_timeout_ns=0
        )
        now_ns = time.monotonic_ns()
        cookie = sender._clients.cookie(CLIENT, now_ns)
        udp_sender.receive(udp_packets.connect(SESSION, cookie, 1), CLIENT, now_ns)
        client = sender.client_at(CLIENT)
        assert client is not None

        def answer(room: int) -> bytes:
            (packet,) = udp_packets.acks(SESSION, client.cookie, sender.lead, (1, 1, ""), 1, [], 0, (sender.lead, room))
            udp_sender.receive(packet, CLIENT, time.monotonic_ns())
            return packet

        answer(10_000)
        for _ in range(COUNT):
            assert channel.writer.write(bytes(1000))
        # Between the first look and the wait, the client makes room; the driver of the context has no processor.
        port.read_answers.side_effect = lambda _: [answer(1 << 22)]
        udp_sender.send_published()
        assert sender.lead == COUNT
        assert port.read_answers.call_count == 1
        assert channel.writer.write(bytes(1000))
        udp_sender.send_published()
        assert port.read_answers.call_count == 1  # there is room
    finally:
        channel.close()


def test_a_receiver_at_the_address_of_one_that_has_died_is_not_forgotten_with_it(domain: str) -> None:
    settings = SenderSettings(SendSettings(data_rate=0, drop_bytes=1))
    sender = ReliableSender(SESSION, settings, bytes(32), time.monotonic_ns(), multicast=False)
    alive = {1}
    listener = Mock(context_lives=lambda context_id: context_id in alive)
    names = f"{domain}-ring", f"{domain}-control"
    channel = OwnedChannel(*names, Shape(SESSION, 1 << 20, 4096, False, 1, 0, 0, ""))
    try:
        udp_sender = UdpSender(
            channel,
            Mock(direct=None, waits=False),
            sender,
            Mock(due_ns=1 << 62),
            listener,
            name="",
            group=None,
            twin=False,
            return_timeout_ns=10_000_000_000,
        )
        now_ns = time.monotonic_ns()

        def connect(address: tuple[str, int], cookie: int) -> None:
            udp_sender.receive(udp_packets.connect(SESSION, cookie, 1), address, now_ns)

        def answer(address: tuple[str, int], context_id: int, following: int) -> None:
            cookie = sender._clients.cookie(address, now_ns)
            (packet,) = udp_packets.acks(
                SESSION, cookie, following, (context_id, context_id, ""), 1, [], 0, (following, 1 << 20)
            )
            udp_sender.receive(packet, address, now_ns)

        for context_id, address in ((1, OTHER), (2, CLIENT)):
            alive.add(context_id)
            connect(address, sender._clients.cookie(address, now_ns))
            answer(address, context_id, 0)
        alive.discard(2)
        # A process that has the address now begins its stay; its first ACK is lost.
        connect(CLIENT, 0)
        connect(CLIENT, sender._clients.cookie(CLIENT, now_ns))
        assert udp_sender.reclaim() == 0
        assert channel.writer.write(bytes(1000))
        udp_sender.send_published()
        answer(OTHER, 1, 1)
        assert (sender.trail, sender.lead) == (0, 1)  # it is still held for the one that has it not
        udp_sender.receive(udp_packets.leave(SESSION, sender._clients.cookie(OTHER, now_ns)), OTHER, now_ns)
        udp_sender.close()
        assert not udp_sender.over(time.monotonic_ns())
        alive.add(3)
        answer(CLIENT, 3, 0)
        assert [client.context_id for client in sender.clients] == [3]
        alive.discard(3)
        assert udp_sender.over(time.monotonic_ns())
    finally:
        channel.close()


def test_acks_need_no_turn_and_everything_else_does(domain: str) -> None:
    sender = ReliableSender(SESSION, SenderSettings(), bytes(32), time.monotonic_ns(), multicast=False)
    port, listener = Mock(direct=None, waits=False), Mock()
    channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", Shape(SESSION, 65_536, 4096, False, 1, 0, 0, ""))
    try:
        udp_sender = UdpSender(
            channel, port, sender, Mock(due_ns=1 << 62), listener, name="", group=None, twin=False, return_timeout_ns=0
        )
        cookie = sender._clients.cookie(CLIENT, time.monotonic_ns())
        connect = udp_packets.connect(SESSION, cookie, 1)

        def come(*packets: bytes) -> bool:
            def read(now_ns: int) -> list[bytes]:
                for packet in packets:
                    udp_sender.receive(packet, CLIENT, now_ns)
                return list(packets)

            listener.turn_is_due.reset_mock()
            port.read_answers.side_effect = read
            assert (udp_sender.take_acks() == CAME) != bool(listener.turn_is_due.call_count)
            return not listener.turn_is_due.call_count

        assert not come(connect)
        (ack,) = udp_packets.acks(SESSION, cookie, 0, (1, 1, ""), 1, [])
        assert not come(ack)  # it says who the client is
        assert come(ack)
        assert not come(ack, udp_packets.leave(SESSION, cookie))
    finally:
        channel.close()


def stats_block() -> Mock:
    board = Mock(due_ns=0)
    board.is_due.side_effect = lambda now_ns: now_ns >= board.due_ns
    return board


def test_the_timer_of_the_statistics_goes_on_while_datagrams_are_sent(domain: str) -> None:
    sender = ReliableSender(SESSION, SenderSettings(SendSettings(data_rate=0)), bytes(32), 0, multicast=False)
    port, listener, board = Mock(direct=None, waits=False), Mock(), stats_block()
    channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", Shape(SESSION, 65_536, 4096, False, 1, 0, 0, ""))
    try:
        udp_sender = UdpSender(
            channel, port, sender, board, listener, name="", group=None, twin=False, return_timeout_ns=0
        )

        def sent() -> int:
            assert channel.writer.write(b"x")
            udp_sender.send_published()
            return int(listener.turn_is_due.call_count)

        def turn_is_for_the_board() -> bool:
            board.show.side_effect = lambda *_: setattr(board, "due_ns", 1 << 60)
            board.due_ns = 0
            return udp_sender.turn(time.monotonic_ns()) == 1 << 60

        assert not turn_is_for_the_board()  # nothing was sent: no timer
        assert [sent(), sent()] == [1, 1]  # the first one starts it
        assert turn_is_for_the_board()
        assert [sent(), sent()] == [1, 1]
        assert turn_is_for_the_board()
        assert not turn_is_for_the_board()
        assert sent() == 2
    finally:
        channel.close()


def test_a_turn_and_a_sending_thread_leave_the_statistics_to_a_call_of_their_own(domain: str) -> None:
    sender = ReliableSender(SESSION, SenderSettings(SendSettings(data_rate=0)), bytes(32), 0, multicast=False)
    port, listener, board = Mock(direct=None, waits=False), Mock(), stats_block()
    board.show.side_effect = lambda *_: setattr(board, "due_ns", 1 << 60)
    board.is_late.return_value = False
    channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", Shape(SESSION, 65_536, 4096, False, 1, 0, 0, ""))
    try:
        udp_sender = UdpSender(
            channel, port, sender, board, listener, name="", group=None, twin=False, return_timeout_ns=0
        )
        now_ns = time.monotonic_ns()
        assert (udp_sender.turn(now_ns, shows=False), board.show.call_count) == (None, 0)  # nothing was sent
        assert (udp_sender.show_stats(now_ns), board.show.call_count) == (None, 1)
        board.due_ns = 0
        assert channel.writer.write(b"x")
        udp_sender.send_published()
        assert board.show.call_count == 1
        assert now_ns < board.due_ns < 1 << 59  # the next time on the grid
        board.due_ns, board.is_late.return_value = 0, True  # nobody drives the context
        assert channel.writer.write(b"x")
        udp_sender.send_published()
        assert board.show.call_count == 2
        board.due_ns = 0
        assert channel.writer.write(b"x")
        udp_sender.settle()
        assert udp_sender.turn(now_ns, shows=False) == next_write_ns(now_ns)  # and not at the time of a slow timer
        assert (udp_sender.show_stats(now_ns), board.show.call_count) == (1 << 60, 3)
        board.due_ns = 0
        udp_sender.close()
        assert udp_sender.show_stats(now_ns) is None  # an ended session shows nothing
    finally:
        channel.close()


@pytest.mark.parametrize("all_sent", [True, False])
def test_records_go_without_the_protocol_again_only_if_the_last_send_has_sent_all(
    domain: str, monkeypatch: pytest.MonkeyPatch, all_sent: bool
) -> None:
    sender = ReliableSender(SESSION, SenderSettings(SendSettings(data_rate=0)), bytes(32), 0, multicast=False)
    port, listener, board = Mock(direct=None, waits=False), Mock(), stats_block()
    board.show.side_effect = lambda *_: setattr(board, "due_ns", 1 << 60)
    channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", Shape(SESSION, 65_536, 4096, False, 1, 0, 0, ""))
    try:
        udp_sender = UdpSender(
            channel, port, sender, board, listener, name="", group=None, twin=False, return_timeout_ns=0
        )
        goes_on = Mock()
        monkeypatch.setattr(udp_sender, "_go_on_directly", goes_on)
        monkeypatch.setattr(udp_sender, "_send_records", lambda now_ns: False)
        monkeypatch.setattr(udp_sender, "_send_published", lambda now_ns: True)
        now_ns = time.monotonic_ns()
        udp_sender.turn(now_ns, shows=False)
        monkeypatch.setattr(udp_sender, "_send_published", lambda now_ns: all_sent)
        udp_sender.send_published()  # another thread, between the turn and the statistics
        udp_sender._shown_lead = -1  # something was sent
        goes_on.reset_mock()
        udp_sender.show_stats(now_ns + 2 * INTERVAL_NS)
        assert goes_on.call_count == all_sent
    finally:
        channel.close()


def test_slow_timers_wait_for_the_stats_block_while_datagrams_are_sent(domain: str) -> None:
    settings = SenderSettings(SendSettings(data_rate=0, sm_minimum=200_000_000))
    sender = ReliableSender(SESSION, settings, bytes(32), time.monotonic_ns(), multicast=False)
    port, listener, board = Mock(direct=None, waits=False), Mock(), stats_block()
    channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", Shape(SESSION, 65_536, 4096, False, 1, 0, 0, ""))
    try:
        udp_sender = UdpSender(
            channel, port, sender, board, listener, name="", group=None, twin=False, return_timeout_ns=0
        )
        now_ns = time.monotonic_ns()
        cookie = sender._clients.cookie(CLIENT, now_ns)
        udp_sender.receive(udp_packets.connect(SESSION, cookie, 1), CLIENT, now_ns)

        def turn(stats_in_ns: int) -> int | None:
            board.show.side_effect = lambda *_: setattr(board, "due_ns", now_ns + stats_in_ns)
            board.due_ns = 0
            return udp_sender.turn(now_ns)

        board.due_ns = 1 << 62
        assert channel.writer.write(b"x")
        udp_sender.send_published()
        message_ns = sender.next_ns(now_ns)
        assert message_ns is not None
        now_ns += 20_000_000
        assert turn(210_000_000) == now_ns + 210_000_000  # a session message is due 20 to 30 ms before
        assert turn(250_000_000) == message_ns  # nothing was sent meanwhile
    finally:
        channel.close()


class Direct:
    """A sender with one client, whose records go to a socket without the protocol where that is possible."""

    def __init__(self, domain: str, near: Batched, client: tuple[str, int]) -> None:
        sender = ReliableSender(SESSION, SenderSettings(SendSettings(data_rate=0)), bytes(32), 0, multicast=False)
        self.port = Mock(direct=near, waits=False)
        self.port.read_answers.return_value = []
        shape = Shape(SESSION, 1 << 20, 70_000, False, 1, 0, 0, "")
        self.channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", shape)
        board = Mock(due_ns=1 << 62)
        board.is_due.return_value = False
        self.udp_sender = UdpSender(
            self.channel, self.port, sender, board, Mock(), name="", group=None, twin=False, return_timeout_ns=0
        )
        self.left: list[int] = []
        """The calls that went through the protocol."""
        self._publish = self.udp_sender.direct(self._through_protocol, None)
        self._sender, self._client = sender, client
        self.cookie = sender._clients.cookie(client, time.monotonic_ns())
        self.udp_sender.receive(udp_packets.connect(SESSION, self.cookie, 1), client, time.monotonic_ns())

    def _through_protocol(self, mask: int) -> None:
        self.left.append(mask)
        self.udp_sender.send_published()

    def ack(self, room: int) -> None:
        lead = self._sender.lead
        (packet,) = udp_packets.acks(SESSION, self.cookie, lead, (1, 1, ""), 1, [], 0, (lead, room))
        self.udp_sender.receive(packet, self._client, time.monotonic_ns())

    def publish(self, size: int = 60_000) -> None:
        assert self.channel.writer.write(bytes(size))
        self._publish(self.udp_sender.bit)


@pytest.fixture
def direct(domain: str) -> Iterator[Direct]:
    with bound() as near, bound() as far:
        made = Direct(domain, Batched(near.fileno(), False, 1), far.getsockname())
        yield made
        made.channel.close()


def test_a_thread_that_publishes_takes_the_acks_before_the_driver_does(
    direct: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SENDING_NS", "UNSEEN_NS", "MORE_NS"):  # a busy machine may hold up the thread that sends for as long
        monkeypatch.setattr(ack_watch, name, 60_000_000_000)
    udp_sender, answers = direct.udp_sender, direct.port.read_answers

    def driver() -> int:
        return udp_sender.take_acks(may_leave=True)

    direct.ack(4 << 20)
    assert driver() == NOTHING_CAME  # no thread sends
    for _ in range(5):
        direct.publish()
    assert driver() == LEFT
    assert udp_sender.take_acks() == NOTHING_CAME
    looks = answers.call_count
    count = 0
    while answers.call_count == looks:
        direct.publish()
        count += 1
    assert 44 <= count <= 52  # three quarters of the room that the client had told
    answers.return_value = [udp_packets.naks(SESSION, direct.cookie, [1])[0]]
    assert udp_sender.take_acks() == HAS_MORE
    for _ in range(5):
        direct.publish()
    assert driver() == HAS_MORE  # others may follow


def test_records_go_on_without_the_protocol_after_its_timers(direct: Direct) -> None:
    direct.ack(4 << 20)
    direct.publish(64)
    assert direct.left
    for _ in range(3):
        direct.udp_sender.turn(time.monotonic_ns())
        direct.left.clear()
        direct.publish(64)
        assert not direct.left
    assert direct.udp_sender.reliable_sender.lead == 4  # each was sent once
