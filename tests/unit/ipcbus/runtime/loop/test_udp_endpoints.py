"""The sockets of a context: when senders take their turns, what is refused, and that no socket stays open."""

from __future__ import annotations

import dataclasses
import os
import select
import socket
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from ipcbus import ConfigError
from ipcbus.config import Config, ContextOptions, ReceiverOptions
from ipcbus.runtime.loop import udp_endpoints
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.runtime.loop.udp_endpoints import UdpEndpoints
from ipcbus.transport.udp.datagram_relay import CAME, HAS_MORE, LEFT
from ringbuf.slots import Identity
from tests.kit.resolving import source

if TYPE_CHECKING:
    from collections.abc import Iterator

ADVERT = source(2, "t").session


class Sender:
    """A session that is sent, with a socket into which packets come."""

    active = True

    def __init__(self, endpoints: UdpEndpoints, due_ns: int | None) -> None:
        self.endpoints, self.due_ns, self.is_over = endpoints, due_ns, False
        self.turns: list[int] = []
        self.steps: list[str] = []
        self.stats_due_ns: int | None = None
        self.others, mine = socket.socketpair()
        self.session_socket = cast("Any", SimpleNamespace(socket=mine, read=self._read))
        self.session_socket.may_have_more = self.session_socket.rest_waits = False
        self.session_socket.close = mine.close

    def _read(self, now_ns: int) -> set[Any]:
        del now_ns
        self.session_socket.socket.recv(100)
        return {self}

    def settle(self) -> None:
        self.steps.append("settle")

    def turn(self, now_ns: int, *, shows: bool = True) -> int | None:
        self.turns.append(now_ns)
        self.steps.append("turn with stats" if shows else "turn")
        return self.due_ns

    def show_stats(self, now_ns: int) -> int | None:
        del now_ns
        self.steps.append("stats")
        return self.stats_due_ns

    def over(self, now_ns: int, *, context_closes: bool = False) -> bool:
        del now_ns
        return self.is_over or context_closes

    def detach(self) -> None:
        self.endpoints.release(self.session_socket)
        self.others.close()


@pytest.fixture
def event_loop() -> Mock:
    return Mock(network_is_busy=False)


@pytest.fixture
def registry() -> Mock:
    return Mock()


@pytest.fixture
def endpoints(domain: str, event_loop: Mock, registry: Mock) -> Iterator[UdpEndpoints]:
    who = Identity(os.getpid(), os.geteuid(), 1, "mine")
    made = UdpEndpoints(domain, who, ContextOptions(), registry, event_loop, Mock(), Config({}))
    yield made
    made.close()


def test_a_context_without_udp_opens_nothing_and_waits_for_nothing(endpoints: UdpEndpoints, event_loop: Mock) -> None:
    assert endpoints.turn(1) == FOREVER_NS
    assert endpoints.read() == FOREVER_NS
    event_loop.listen.assert_not_called()
    assert not event_loop.network_is_busy


def test_senders_take_their_turns_when_one_is_due_or_after_hurry(endpoints: UdpEndpoints) -> None:
    senders = [Sender(endpoints, due_ns) for due_ns in (100, 70, None)]
    for sender in senders:
        endpoints.add(cast("Any", sender))
    assert endpoints.turn(10) == 70  # `add` hurries
    assert endpoints.turn(69) == 70
    endpoints.turn(70)
    endpoints.hurry()
    endpoints.turn(71)
    assert [sender.turns for sender in senders] == [[10, 70, 71]] * 3


def test_turns_may_be_taken_one_after_the_other_with_other_work_between(endpoints: UdpEndpoints) -> None:
    senders = [Sender(endpoints, due_ns) for due_ns in (100, 70)]
    for sender in senders:
        endpoints.add(cast("Any", sender))
    steps = endpoints.steps(10)
    for number, step in enumerate(steps):
        step(10 + number)
    assert [len(sender.turns) for sender in senders] == [1, 1]
    assert senders[0].turns < senders[1].turns
    assert endpoints.due_ns == 70
    assert endpoints.steps(69) == []
    steps = endpoints.steps(69, early=True)
    steps.pop(0)(69)
    endpoints.hurry()
    for step in steps:
        step(70)
    assert endpoints.due_ns == 0  # what was hurried comes in the next round


def test_the_stats_of_a_sender_are_a_step_of_their_own(endpoints: UdpEndpoints) -> None:
    sender = Sender(endpoints, 100)
    sender.stats_due_ns = 50
    endpoints.add(cast("Any", sender))
    assert endpoints.turn(10) == 50
    assert sender.steps == ["settle", "turn", "stats"]
    sender.others.send(b"x")
    endpoints.read()
    assert sender.steps[3:] == ["turn with stats"]  # nothing follows this one
    sender.is_over = True
    endpoints.hurry()
    endpoints.turn(51)
    assert sender.steps[4:] == ["settle", "turn"]  # it is dropped in its turn


def test_a_socket_that_can_be_read_has_packets(endpoints: UdpEndpoints) -> None:
    sender = Sender(endpoints, 100)
    endpoints.add(cast("Any", sender))
    assert not endpoints.has_packets()
    sender.others.send(b"x")
    assert endpoints.has_packets()
    endpoints.read()
    assert not endpoints.has_packets()


def test_a_packet_makes_its_addressee_due_sooner(endpoints: UdpEndpoints) -> None:
    sender = Sender(endpoints, 100)
    endpoints.add(cast("Any", sender))
    assert endpoints.turn(10) == 100
    assert endpoints.read() == 100
    sender.due_ns = 50
    sender.others.send(b"x")
    assert endpoints.read() == 50
    assert len(sender.turns) == 2


def test_after_a_pause_all_packets_are_read_before_their_addressees_timers_run(endpoints: UdpEndpoints) -> None:
    sender = Sender(endpoints, 100)
    endpoints.add(cast("Any", sender))
    sender.session_socket.may_have_more = True
    waiting: list[bool] = []

    def turn(now_ns: int, *, shows: bool = True) -> None:
        del now_ns, shows
        waiting.append(bool(select.select([sender.session_socket.socket], [], [], 0)[0]))

    sender.turn = turn  # type: ignore[method-assign]
    for _ in range(100):
        sender.others.send(b"x" * 100)
    endpoints.read()
    assert waiting == [False]
    sender.others.send(b"x")
    read_ns = time.monotonic_ns()
    assert endpoints.read_after_pause(read_ns) == read_ns
    assert waiting == [False]
    later_ns = read_ns + udp_endpoints._PAUSE_NS + 1
    endpoints.read_after_pause(later_ns)
    assert waiting == [False] * 2


def test_a_brief_read_leaves_what_the_system_keeps(endpoints: UdpEndpoints) -> None:
    sender = Sender(endpoints, 100)
    endpoints.add(cast("Any", sender))
    endpoints.read()  # the first one comes after a pause
    sender.session_socket.may_have_more = True
    for rest_waits, briefly, left in ((True, True, 2), (True, False, 0), (False, True, 0)):
        sender.session_socket.rest_waits = rest_waits
        for _ in range(3):
            sender.others.send(b"x" * 100)
        endpoints._read_ns = time.monotonic_ns()
        endpoints.read(briefly=briefly)
        found = sender.session_socket.socket
        for _ in range(left):
            assert found.recv(100, socket.MSG_DONTWAIT)
        assert not select.select([found], [], [], 0)[0]


def test_a_sender_that_is_over_is_dropped_with_its_socket(endpoints: UdpEndpoints, event_loop: Mock) -> None:
    ends, stays = Sender(endpoints, 100), Sender(endpoints, 200)
    for sender in (ends, stays):
        endpoints.add(cast("Any", sender))
    endpoints.turn(10)
    assert event_loop.network_is_busy
    ends.is_over = True
    endpoints.turn(100)
    assert ends.session_socket.socket.fileno() == -1
    assert endpoints.turn(200) == 200
    assert len(ends.turns) == 2
    assert stays.session_socket.socket.fileno() >= 0
    stays.active = False
    endpoints.turn(300)
    assert not event_loop.network_is_busy


@pytest.mark.parametrize("wrong", [{"endpoint": None}, {"topics_max": 0}, {"topics_max": 48}, {"topics_max": 1 << 30}])
def test_a_damaged_session_is_refused(endpoints: UdpEndpoints, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is damaged"):
        endpoints.join(dataclasses.replace(ADVERT, **wrong), ReceiverOptions(), resume_at=None)


def test_a_session_that_the_registry_cannot_show_leaves_no_socket_and_no_ring(
    endpoints: UdpEndpoints, registry: Mock
) -> None:
    before = socket_count()
    registry.add_reception.side_effect = OSError("full")
    with pytest.raises(OSError, match="full"):
        endpoints.join(ADVERT, ReceiverOptions(), resume_at=None)
    assert socket_count() == before
    registry.add_reception.side_effect = None
    registry.add_reception.return_value = 7
    joined = endpoints.join(ADVERT, ReceiverOptions(), resume_at=None)
    assert socket_count() == before + 1
    joined.leave()
    registry.remove.assert_called_once_with(7)
    assert socket_count() == before


def socket_count() -> int:
    """How many sockets this process has open."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
        except FileNotFoundError:
            continue  # the descriptor of the listing
    return found


def test_acks_are_left_to_a_thread_that_sends_only_while_no_other_socket_is_readable() -> None:
    readable = [(7, 1)]
    sender = Mock()
    sender.session_socket.socket.fileno.return_value = 7
    sender.take_acks.side_effect = lambda *, may_leave=False: LEFT if may_leave else CAME
    endpoints = cast("UdpEndpoints", SimpleNamespace(_latest_sender=sender, _latest=None, _poll=lambda: readable))
    assert UdpEndpoints.take_acks(endpoints) == LEFT
    readable.append((8, 1))
    assert UdpEndpoints.take_acks(endpoints) == HAS_MORE
    assert UdpEndpoints.read_first(endpoints)  # a thread that waits for messages does not stand back
