"""Network interfaces: finds the interface that an option means on this host."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from ipcbus.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface of this host.

    Attributes:
        host: the numeric address to bind to.
        index: its index, which IPv6 needs; 0 leaves the choice to the system.
    """

    host: str
    index: int

    @property
    def family(self) -> socket.AddressFamily:
        """IPv4 or IPv6, by the address."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET


def is_loopback(text: str) -> bool:
    """Returns whether an address, a network or a name means the loopback interface, which no other host reaches."""
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:  # a network or a name
        return text in ("lo", "127.0.0.0/8")


def find(text: str, option: str) -> Interface:
    """Returns the interface that an option means.

    Args:
        text: a numeric address, a network (10.0.0.0/8), or a name; checked when the option was read.
        option: the name of the option, for error texts.

    Raises:
        ConfigError: this host has no such interface.
    """
    try:
        wanted = ipaddress.ip_network(text, strict=False)
    except ValueError:
        wanted = None
    if wanted is not None and wanted.num_addresses == 1:
        if wanted.network_address.is_unspecified:
            return Interface(str(wanted.network_address), 0)
        if wanted.is_loopback and wanted.version == 4:
            # All of 127.0.0.0/8 is this host, though only one address of it is listed.
            return Interface(str(wanted.network_address), _index("lo"))
    known = _addresses()
    found = [(address, name) for address, name in known if (name == text if wanted is None else address in wanted)]
    if not found:
        listed = ", ".join(f"{address} ({name})" for address, name in known) or "none"
        raise ConfigError(f"option {option} = {text!r}: this host has no such interface. It has: {listed}")
    address, name = found[0]
    return Interface(str(address), _index(name))


def _addresses() -> list[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, str]]:
    """Returns all addresses of this host, each with the name of its interface."""
    # Imported here: the default interface, loopback, does not need it, and each context would wait for the import.
    import psutil

    known = [
        (ipaddress.ip_address(address.address.partition("%")[0]), name)
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    ]
    # IPv4 before IPv6, and routable addresses before link-local ones.
    return sorted(known, key=lambda each: (each[0].version, each[0].is_link_local))


def _index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0
