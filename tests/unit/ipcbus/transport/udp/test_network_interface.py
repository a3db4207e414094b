from __future__ import annotations

import socket
from types import SimpleNamespace

import psutil
import pytest

from ipcbus.errors import ConfigError
from ipcbus.transport.udp.network_interface import find
from tests.kit.cases import each_of

ADDRESSES = {
    "lo": ("127.0.0.1", "::1"),
    "eth0": ("fe80::1%eth0", "10.1.0.5", "fd00::5"),
    "eth1": ("10.2.0.5",),
}


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {
        name: [
            SimpleNamespace(family=socket.AF_INET6 if ":" in each else socket.AF_INET, address=each)
            for each in addresses
        ]
        + [SimpleNamespace(family=socket.AF_PACKET, address="00:00:00:00:00:00")]
        for name, addresses in ADDRESSES.items()
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: listed)
    monkeypatch.setattr(socket, "if_nametoindex", lambda name: list(ADDRESSES).index(name) + 1)


@each_of(
    ("text", "address", "index"),
    [
        ("127.0.0.1", "127.0.0.1", 1),
        ("127.0.0.7", "127.0.0.7", 1),
        ("::1", "::1", 1),
        ("10.1.0.5", "10.1.0.5", 2),
        ("10.2.0.0/16", "10.2.0.5", 3),
        ("10.2.0.99/16", "10.2.0.5", 3),
        ("fd00::/8", "fd00::5", 2),
        ("fe80::/10", "fe80::1", 2),
        ("eth0", "10.1.0.5", 2),
        ("0.0.0.0", "0.0.0.0", 0),
        ("::", "::", 0),
    ],
)
def test_found(text: str, address: str, index: int) -> None:
    found = find(text, "o")
    assert (found.host, found.index) == (address, index)
    assert found.family == (socket.AF_INET6 if ":" in address else socket.AF_INET)


@each_of("text", ["10.1.0.6", "10.3.0.0/16", "eth2", "fd00::6"])
def test_not_here(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find(text, "transport_lbtru_interface")
    assert str(caught.value).startswith(f"option transport_lbtru_interface = {text!r}: this host has no such interface")
    assert "10.1.0.5 (eth0)" in str(caught.value)
