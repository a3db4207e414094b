"""The first free port of a range."""

from __future__ import annotations

import socket

import pytest

from ipcbus.errors import TransportError
from ipcbus.transport.udp.network_interface import Interface
from ipcbus.transport.udp.ports import Ports, bind_first, new_socket

LOOPBACK = Interface("127.0.0.1", 0)
kinds = pytest.mark.parametrize(
    ("kind", "name"), [(socket.SOCK_DGRAM, "UDP"), (socket.SOCK_STREAM, "TCP")], ids=["UDP", "TCP"]
)


@kinds
def test_a_port_in_use_is_passed_over_or_named(kind: socket.SocketKind, name: str) -> None:
    with new_socket(socket.AF_INET, kind) as first, new_socket(socket.AF_INET, kind) as second:
        bind_first(first, LOOPBACK, Ports(0, 0, False, "the_port"))
        port = first.getsockname()[1]
        with pytest.raises(TransportError, match=f"{name} port {port} is in use on interface 127.0.0.1.*the_port"):
            bind_first(second, LOOPBACK, Ports(port, port, False, "the_port"))
        bind_first(second, LOOPBACK, Ports(port, port, True, "the_port"))
        assert second.getsockname()[1] != port


@kinds
def test_an_interface_that_is_not_of_this_host(kind: socket.SocketKind, name: str) -> None:
    with (
        new_socket(socket.AF_INET, kind) as sock,
        pytest.raises(TransportError, match=f"{name} port 0 of interface 192.0.2.1 cannot be taken.*the_port"),
    ):
        bind_first(sock, Interface("192.0.2.1", 0), Ports(0, 0, False, "the_port"))


@kinds
def test_it_neither_blocks_nor_is_inherited(kind: socket.SocketKind, name: str) -> None:
    del name
    with new_socket(socket.AF_INET, kind) as sock:
        assert (sock.getblocking(), sock.get_inheritable()) == (False, False)
