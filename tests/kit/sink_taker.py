"""Receivers of what the sink publishes: everything that comes, and what is no double."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import ipcbus
from ipcbus import MessageType
from ipcbus.resolution.local import object_names
from ipcbus.spark.identity import POSSIBLE_DUPLICATE, Deduplicator
from tests.kit.look import objects

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

GIVE_UP_S = 60.0
"""After so long a test that waits for Spark has hung."""


def until(condition: Callable[[], bool], found: Callable[[], object]) -> None:
    """Waits until the condition holds; else tells what was found instead."""
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {found()}"
        threading.Event().wait(0.005)


def alone(context: ipcbus.Context) -> None:
    """Waits until no other context is left in the domain of this one."""
    own = object_names.registry(context.domain, context._id).rpartition(".")[0]

    def others() -> list[str]:
        return [name for name in objects(context.domain) if not name.startswith(own)]

    until(lambda: not others(), others)


class Taker:
    """A receiving context for all topics of a domain, with every message and with those that are no doubles."""

    def __init__(self, domain: str) -> None:
        """Receives from now on."""
        self.every: list[ipcbus.Message] = []
        self.once: list[ipcbus.Message] = []
        self._fresh = Deduplicator(self._new)
        self._began = self._ended = 0
        self._context = ipcbus.Context({"context": {"liveness_check_interval": 20}}, domain=domain)
        self._context.wildcard_receiver(".*", self._take)

    def _take(self, message: ipcbus.Message) -> None:
        self._began += message.type == MessageType.BOS
        self._ended += message.type == MessageType.EOS
        if message.type == MessageType.DATA:
            self.every.append(message)
        self._fresh(message)

    def _new(self, message: ipcbus.Message) -> None:
        if message.type == MessageType.DATA:
            self.once.append(message)

    def settled(self, count: int) -> list[bytes]:
        """Values without doubles, when so many have come and all who sent have left the bus."""
        until(
            lambda: len(self.once) >= count and self._began == self._ended,
            lambda: f"{len(self.once)} of {count} messages came, {self._ended} of {self._began} sessions ended",
        )
        alone(self._context)
        return [message.data for message in self.once]

    def of(self, topic: str) -> list[bytes]:
        """Values of a topic without doubles."""
        return [message.data for message in self.once if message.topic == topic]

    @property
    def flagged(self) -> list[ipcbus.Message]:
        """What may be a double."""
        return [message for message in self.every if (POSSIBLE_DUPLICATE, b"1") in message.headers]

    def forget(self) -> None:
        """Begins anew, without the memory of what came."""
        self.every.clear()
        self.once.clear()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *args: object) -> None:
        """Leaves the bus."""
        self._context.close()
