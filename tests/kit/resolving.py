"""Topic resolution over real sockets of loopback, as a context does it."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from random import Random
from typing import TYPE_CHECKING, cast

from ipcbus.resolution.local.adverts import Endpoint, SessionAdvert, SourceAdvert
from ipcbus.resolution.network.network_resolution import NetworkResolution, Who
from ipcbus.resolution.network.resolution_settings import ResolutionSettings
from ipcbus.resolution.network.resolver_clients import ResolverClients, ResolverClientSettings
from ipcbus.wire import wire_layout
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


def source(context_id: int, topic: str, host: str = "127.0.0.1") -> SourceAdvert:
    """What a context publishes; nobody answers at its endpoint."""
    endpoint = Endpoint(host, 14380)
    session = SessionAdvert(context_id, 0, wire_layout.TRANSPORT_LBTRU, context_id, 0, 1 << 20, True, 64, endpoint)
    return SourceAdvert(session, topic, 1)


class Node:
    """A context's part in it, with a socket that it reads when it is driven."""

    def __init__(self, context_id: int, domain: str, daemons: list[tuple[str, int]]) -> None:
        now_ns = time.monotonic_ns()
        self.socket = socket.socket(socket.AF_INET6 if ":" in daemons[0][0] else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind((daemons[0][0], 0))
        random = Random(context_id)
        terms = ResolutionSettings(check_address=False)
        self.resolution = NetworkResolution(terms, Who(context_id, context_id, ""), domain, random, now_ns)
        addresses = [socket.getaddrinfo(*daemon)[0][4] for daemon in daemons]
        self.clients = ResolverClients(addresses, ResolverClientSettings(), random, now_ns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def drive(self) -> None:
        """Reads what has come, and does what is due."""
        while True:
            try:
                packet, address = self.socket.recvfrom(65536)
            except BlockingIOError:
                break
            except ConnectionRefusedError:
                continue
            now_ns = time.monotonic_ns()
            inner = self.clients.receive(packet, address, now_ns)
            if inner is not None:
                self.resolution.receive(inner, address, now_ns)
        now_ns = time.monotonic_ns()
        changes = self.clients.changes
        self.clients.turn(now_ns)
        if self.clients.changes != changes and self.clients.alive:
            self.resolution.refresh(now_ns)
        self.resolution.turn(now_ns)
        self.send(self.resolution.take())

    def send(self, packets: list[bytes]) -> None:
        """Through the daemons."""
        for packet in packets:
            self.clients.send(packet)
        for packet, to in self.clients.take():
            with contextlib.suppress(ConnectionRefusedError):
                self.socket.sendto(packet, cast("tuple[str, int]", to))

    @property
    def topics(self) -> set[str]:
        """What others publish."""
        return {each.topic for topics in self.resolution.sources().values() for each in topics.values()}


def drive(nodes: list[Node], condition: Callable[[], object], what: str) -> None:
    """Drives them until the condition holds."""
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        select.select([node.socket for node in nodes], [], [], 0.01)
        for node in nodes:
            node.drive()
