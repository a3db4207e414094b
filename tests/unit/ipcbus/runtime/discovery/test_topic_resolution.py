"""A context's paths to others over the network: what goes out on which path, and which packets come in."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from ipcbus.config import ContextOptions, ReceiverOptions, SourceOptions
from ipcbus.runtime.discovery.topic_resolution import ResolutionPath, TopicResolution, settings_of
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.transport.udp.network_interface import Interface
from ipcbus.transport.udp.sealing import Seal
from ipcbus.wire.seal import Keyring
from ipcbus.wire.seal_format import Purpose
from ringbuf.slots import Identity
from tests.kit.cases import each_of
from tests.kit.resolving import source

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPBACK, OUTSIDE = Interface("127.0.0.1", 1), Interface("10.1.2.3", 2)
GROUP = ("239.1.1.1", 7)


class Resolution:
    """The protocol of a path, with two packets to send."""

    next_ns = 50
    changes = 0

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.refreshed = 0

    def receive(self, packet: bytes, address: object, now_ns: int) -> None:
        self.got.append(packet)

    def refresh(self, now_ns: int) -> None:
        self.refreshed += 1

    def turn(self, now_ns: int) -> None: ...

    def take(self) -> list[bytes]:
        return [b"one", b"two"]


def path(interface: Interface = LOOPBACK, seal: Seal | None = None) -> tuple[ResolutionPath, Resolution]:
    resolution = Resolution()
    return ResolutionPath(cast("Any", resolution), interface, seal), resolution


@each_of(
    ("interface", "host", "reached"),
    [
        (LOOPBACK, "127.0.0.1", True),
        (LOOPBACK, "10.1.2.3", False),
        (OUTSIDE, "127.0.0.1", False),
        (OUTSIDE, "10.9.9.9", True),
        (Interface("fe80::1%lo", 1), "fe80::2", True),
    ],
)
def test_a_source_on_the_loopback_interface_is_told_there_only(interface: Interface, host: str, reached: bool) -> None:
    assert path(interface)[0].reaches(source(1, "t", host)) == reached


def test_with_a_key_packets_go_out_sealed_and_others_are_dropped(domain: str) -> None:
    mine, other, stranger = (
        Seal(Keyring({1: key * 32}), domain, Purpose.RESOLUTION, Purpose.RESOLUTION, 64) for key in (b"k", b"k", b"x")
    )
    path_, resolution = path(seal=mine)
    port = Mock()
    path_.use_group(port, GROUP)
    path_.turn(1)
    sent = port.send.call_args.args[0]
    assert [to for _, to in sent] == [GROUP, GROUP]
    assert [other.open(packet) for packet, _ in sent] == [b"one", b"two"]
    sealed = other.seal(b"theirs")
    for packet in (b"open", stranger.seal(b"strange"), sealed, sealed):
        path_.receive(packet, GROUP, 2)
    assert resolution.got == [b"theirs"]


def test_a_daemon_that_comes_back_gets_all_adverts_anew() -> None:
    path_, resolution = path()
    clients = Mock(changes=0, next_ns=30)
    clients.take.return_value = []
    path_.use_daemons(Mock(), clients)
    assert path_.turn(1) == 30
    assert resolution.refreshed == 0
    clients.changes, clients.next_ns = 1, 90
    assert path_.turn(2) == 50
    path_.turn(3)
    assert resolution.refreshed == 1
    clients.receive.return_value = None  # of the daemon itself, or of a stranger
    path_.receive(b"x", GROUP, 4)
    assert resolution.got == []


@pytest.fixture
def daemon() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        yield made


def test_offers_wait_for_the_next_turn_and_leave_by_the_paths_that_reach_them(
    domain: str, daemon: socket.socket
) -> None:
    host, port = daemon.getsockname()
    context = ContextOptions({"resolver_unicast_daemon": f"{host}:{port}", "resolver_unicast_interface": "127.0.0.1"})
    hurry = Mock()
    who = Identity(os.getpid(), os.geteuid(), 1, "mine")
    resolution = TopicResolution(domain, who, (context, SourceOptions(), ReceiverOptions()), None, hurry)
    offer = Mock()
    resolution.paths[0].resolution.offer = offer  # type: ignore[method-assign]
    near, far = source(1, "near"), source(1, "far", "10.1.2.3")
    resolution.paths[0].resolution.offers = Mock(side_effect=[True, False])  # type: ignore[method-assign]
    assert [resolution.offers(each.topic) for each in (near, far)] == [True, False]
    resolution.offer(near)
    resolution.offer(far)
    hurry.assert_called_once_with()
    offer.assert_not_called()
    resolution.turn(5)
    offer.assert_called_once_with(near, 5)
    resolution.close()
    for each in resolution.paths[0].ports:
        each.close()


def test_a_context_without_a_path_offers_nothing_and_is_never_due(domain: str) -> None:
    who = Identity(os.getpid(), os.geteuid(), 1, "mine")
    resolution = TopicResolution(domain, who, (ContextOptions(), SourceOptions(), ReceiverOptions()), None, pytest.fail)
    resolution.offer(source(1, "t"))
    resolution.want("t", wildcard=False)
    assert resolution.turn(1) == FOREVER_NS
    assert not resolution.offers("t")
    assert (resolution.sources(), resolution.counters(), resolution.changes) == ({}, {}, 0)


def test_options_become_nanoseconds_and_a_datagram_fits_into_udp() -> None:
    context = ContextOptions({"resolver_datagram_max_size": 65_535})
    source_options = SourceOptions(
        {
            "resolver_advertisement_sustain_interval": 250,
            "resolver_advertisement_minimum_sustain_duration": 3,
        }
    )
    settings = settings_of(context, source_options, ReceiverOptions(), check_address=True)
    assert settings.advertisement_sustain_interval == 250_000_000
    assert settings.advertisement_minimum_sustain_duration == 3_000_000_000
    assert settings.datagram_max_size == 65_000
    assert settings.check_address
