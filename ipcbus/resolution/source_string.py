"""Source strings: the names of transport sessions, in Ultra Messaging's form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipcbus.wire.transport_names import OVER_UDP, TRANSPORT_LBTRM, TRANSPORT_LBTTCP, TRANSPORT_NAMES

_TCP: Final = "tcp "


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The addresses of a session over UDP.

    Attributes:
        host: numeric address of the source, for NAKs and registrations.
        port: its port.
        group: numeric address of the multicast group that it sends to; empty if it sends to each receiver.
        group_port: port of the group; 0 without a group.
        tcp: whether it is the endpoint of a twin over TCP; the transport of a session over TCP says that by itself.
    """

    host: str
    port: int
    group: str = ""
    group_port: int = 0
    tcp: bool = False

    def text(self) -> str:
        """Returns the endpoint in the form of a registry."""
        group = f" {self.group} {self.group_port}" if self.group else ""
        return f"{_TCP if self.tcp else ''}{self.host} {self.port}{group}"

    @staticmethod
    def of(text: str) -> Endpoint | None:
        """Returns the endpoint of a text in a registry; None if the text is empty or invalid."""
        if not text:
            return None
        import ipaddress  # only sessions over UDP need it

        found = text.removeprefix(_TCP).split(" ")
        try:
            hosts = [str(ipaddress.ip_address(host)) for host in found[::2]]
            ports = [int(port) for port in found[1::2]]
        except ValueError:
            return None
        if len(found) not in (2, 4) or not all(0 < port < 1 << 16 for port in ports):
            return None
        group = (hosts[1], ports[1]) if len(found) == 4 else ("", 0)
        return Endpoint(hosts[0], ports[0], *group, tcp=text.startswith(_TCP))


def source_string(transport: int, session_id: int, transport_id: int, endpoint: Endpoint | None) -> str:
    """Returns the source string of a session.

    For example `LBT-IPC:6481f8d4:20001`, `LBT-RU:127.0.0.1:14380:6481f8d4`,
    `LBTRM:10.0.0.1:14390:6481f8d4:224.10.10.10:14400`.
    """
    if endpoint is not None and transport in OVER_UDP:
        return over_udp(transport, session_id, endpoint)
    return f"{TRANSPORT_NAMES.get(transport, '?')}:{session_id:08x}:{transport_id}"


def over_udp(transport: int, session_id: int, endpoint: Endpoint) -> str:
    """Returns the source string of a session over UDP or TCP, or of the UDP twin of a session over a ring."""
    at = f"{_bracketed(endpoint.host)}:{endpoint.port}:{session_id:08x}"
    if transport == TRANSPORT_LBTRM:
        return f"LBTRM:{at}:{_bracketed(endpoint.group)}:{endpoint.group_port}"
    return f"TCP:{at}" if transport == TRANSPORT_LBTTCP else f"LBT-RU:{at}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
