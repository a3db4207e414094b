"""The sockets that sessions over UDP share: one for each interface and family, closed after its last session."""

from __future__ import annotations

from random import SystemRandom
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from ipcbus.config import ContextOptions, ReceiverOptions
from ipcbus.errors import ConfigError
from ipcbus.runtime.loop.shared_ports import SharedPorts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.transport.udp.session_socket import SessionSocket

OPTIONS = ReceiverOptions({"transport_lbtru_interface": "127.0.0.1"})


class Opened:
    """Takes the sockets, and closes those that are left."""

    def __init__(self) -> None:
        self.ports: list[SessionSocket] = []
        self.shared = SharedPorts(ContextOptions(), None, SystemRandom(), self.ports.append, self.release)

    def release(self, port: SessionSocket) -> None:
        self.ports.remove(port)
        port.close()


@pytest.fixture
def opened() -> Iterator[Opened]:
    made = Opened()
    yield made
    for port in list(made.ports):
        made.release(port)


def test_sessions_of_one_interface_share_a_socket_until_the_last_one_ends(opened: Opened) -> None:
    port = opened.shared.own("lbtru", "127.0.0.1", OPTIONS)
    assert opened.ports == [port]
    assert opened.shared.own("lbtru", "127.0.0.2", OPTIONS) is port
    sessions = [Mock(), Mock()]
    for number, session in enumerate(sessions):
        port.add_taker(session, number, ("127.0.0.1", 1))
    port.remove(sessions[0])
    assert opened.ports == [port]
    port.remove(sessions[1])
    assert opened.ports == []
    assert opened.shared.own("lbtru", "127.0.0.1", OPTIONS) is not port


def test_multicast_needs_an_interface(opened: Opened) -> None:
    with pytest.raises(ConfigError, match="set resolver_multicast_interface"):
        opened.shared.own("lbtrm", "127.0.0.1", OPTIONS)
    assert opened.ports == []
