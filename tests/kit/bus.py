"""Contexts, sources and receivers of one test, on any transport and in any mode."""

from __future__ import annotations

import os
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

import ipcbus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipcbus import Context, Message, Receiver, Source, SourceEvent

GIVE_UP_S = 30.0
"""After so long a test that waits for something has hung."""

_ID_OPTIONS = {"lbtru": "port", "lbtrm": "multicast_address", "lbttcp": "port"}

TURN_S = 0.0005
"""How long a context that is driven may sleep, so that it hears what others tell it."""

MODES = ("embedded", "sequential", "split")
"""Split: embedded, but the rings are left to the application."""


def mode_options(mode: str) -> dict[str, object]:
    """Context options that choose a mode."""
    if mode == "split":
        return {"transport_lbtipc_receiver_operational_mode": "sequential"}
    return {"operational_mode": mode}


@dataclass(frozen=True)
class Kind:
    """A transport with its pacing.

    Attributes:
        name: for the names of tests.
        transport: value of option `transport`.
        options: source options that choose it.
        first_id: first id of its pool.
        smallest: source options of the smallest ring, and the context options that it needs.
        datagram_max: most bytes of a datagram in the smallest ring.
        window: bytes of the smallest ring.
    """

    name: str
    transport: str
    first_id: int
    window: int
    datagram_max: int
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its name."""
        titles = {"lbtipc": "LBT-IPC", "lbtsmx": "LBT-SMX", "lbtru": "LBT-RU", "lbtrm": "LBT-RM", "lbttcp": "LBT-TCP"}
        return titles[self.transport]

    @property
    def scheme(self) -> str:
        """Its name in source strings."""
        return "TCP" if self.transport == "lbttcp" else self.title

    @property
    def prefix(self) -> str:
        """The beginning of the names of its options."""
        return "transport_tcp" if self.transport == "lbttcp" else f"transport_{self.transport}"

    @property
    def context_options(self) -> dict[str, object]:
        """Context options that it needs, and those that make its datagrams short."""
        needs: dict[str, object] = {"transport_lbtipc_datagram_max_size": 8192}
        if self.over_udp:
            needs[f"{self.prefix}_datagram_max_size"] = 8192
        if self.transport == "lbtrm":
            needs["resolver_multicast_interface"] = "127.0.0.1"
        return needs

    @property
    def over_udp(self) -> bool:
        """Whether no receiver reads the source's ring."""
        return self.transport in ("lbtru", "lbtrm", "lbttcp")

    @property
    def id_option(self) -> str:
        """The source option that names a session."""
        return f"{self.prefix}_{_ID_OPTIONS.get(self.transport, 'id')}"

    @property
    def batches(self) -> bool:
        """Whether messages wait for others in a datagram."""
        return self.transport != "lbtsmx"

    @property
    def source_paced(self) -> bool:
        """Whether a slow receiver loses messages instead of holding the source up."""
        return self.transport in ("lbtru", "lbtrm") or "transport_lbtipc_behavior" in self.options

    def id(self, number: int) -> dict[str, object]:
        """The option for an explicit session: a number below 1000 means the same one throughout a test."""
        named: object = number
        if self.transport in ("lbtru", "lbttcp"):
            named = _port(number)
        elif self.transport == "lbtrm":
            named = f"239.192.{number >> 8}.{number & 255}"
        return {self.id_option: named}

    def small(self) -> dict[str, object]:
        """Source options of the smallest ring; contexts of `Bus` allow for it."""
        if self.over_udp:
            return {}  # all have the same one, which is no window
        small: dict[str, object] = {f"transport_{self.transport}_transmission_window_size": self.window}
        if self.transport == "lbtsmx":
            small["transport_lbtsmx_datagram_max_size"] = self.datagram_max
        return small


LBTIPC = Kind("lbtipc", "lbtipc", 20001, 65536, 8192)
LBTIPC_SOURCE_PACED = Kind(
    "lbtipc-source-paced",
    "lbtipc",
    20001,
    65536,
    8192,
    {"transport_lbtipc_behavior": "source_paced"},
)
LBTSMX = Kind("lbtsmx", "lbtsmx", 30001, 4096, 1024)

LBTRU = Kind("lbtru", "lbtru", 14380, 65536, 8192)
LBTRM = Kind("lbtrm", "lbtrm", 0, 65536, 8192)
LBTTCP = Kind("lbttcp", "lbttcp", 14371, 65536, 8192)

RINGS = (LBTIPC, LBTIPC_SOURCE_PACED, LBTSMX)
KINDS = (*RINGS, LBTRU, LBTTCP)
"""What every test of the suite runs on that says nothing else."""
RECEIVER_PACED = (LBTIPC, LBTSMX)

on_rings = pytest.mark.parametrize("kind", RINGS, ids=lambda kind: str(kind.name))
"""For tests of what only a ring has."""
on_all = pytest.mark.parametrize("kind", [*KINDS, LBTRM], ids=lambda kind: str(kind.name))
"""For tests that run over multicast too, each in a network of its own."""

_ports: dict[int, int] = {}


def _port(number: int) -> int:
    """A port for a number: the same one in this process, and hardly one of another process."""
    if number not in _ports:
        _ports[number] = 15_000 + os.getpid() % 340 * 50 + len(_ports) % 50
    return _ports[number]


class Bus:
    """Makes contexts in one domain and mode, and closes them at the end."""

    def __init__(self, domain: str, kind: Kind, mode: str) -> None:
        self.domain, self.kind, self.mode = domain, kind, mode
        self.contexts: list[Context] = []
        self.sequential = mode != "embedded"
        self._pause = threading.Event()

    def context(self, name: str = "", *, mode: str = "", **options: object) -> Context:
        """One more context; `options` are of scope context."""
        given = {**self.kind.context_options, **mode_options(mode or self.mode), **options}
        context = ipcbus.Context({"context": given}, name=name, domain=self.domain)
        self.contexts.append(context)
        return context

    def source(
        self,
        topic: str = "t",
        context: Context | None = None,
        *,
        on_event: Callable[[SourceEvent], object] | None = None,
        **options: object,
    ) -> Source:
        """A source of the transport under test, in a context of its own unless one is given."""
        given: dict[str, object] = {"transport": self.kind.transport, **self.kind.options, **options}
        return (context or self.context("sending")).source(topic, on_event=on_event, **given)

    def receiver(
        self,
        topic: str = "t",
        on_message: Callable[[Message], object] | None = None,
        context: Context | None = None,
        **options: object,
    ) -> Receiver:
        """A receiver, in a context of its own unless one is given."""
        return (context or self.context("receiving")).receiver(topic, on_message, **options)

    def turn(self) -> None:
        """Processes the events of every context that does not deliver by itself."""
        driven = [context for context in self.contexts if is_processed(context) and not is_closed(context)]
        for context in driven:
            context.process_events(TURN_S)
        if not driven:
            self._pause.wait(TURN_S)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Drives until the condition holds."""
        deadline = time.monotonic() + GIVE_UP_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            self.turn()

    def joined(self, source: Source, receivers: int = 1) -> None:
        """Waits until so many contexts have joined the source's topic."""
        self.until(lambda: source.receivers >= receivers, f"{receivers} receivers of {source}")

    def close(self) -> None:
        """Closes every context."""
        # Those that only receive first: a source waits a while for who has to answer that it has everything.
        for context in sorted(self.contexts, key=lambda context: bool(context._sources)):
            context.close()
        self.contexts.clear()


def is_processed(context: Context) -> bool:
    """Whether messages are delivered by whoever calls `process_events`."""
    return context._processes


def is_closed(context: Context) -> bool:
    """Whether it was closed."""
    return context._closed


def fresh_domain() -> str:
    """A domain that nobody else uses, for tests that need many; plain and short, so that it stands in names."""
    return f"t{secrets.token_hex(3)}"
