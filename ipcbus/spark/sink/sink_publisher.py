"""The bus in a process of Spark: a context that stays from one task to the next, so that receivers stay joined."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ipcbus.config import Config, ContextOptions
from ipcbus.context import Context
from ipcbus.embedding import is_closed
from ipcbus.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.source import Source
    from ipcbus.spark.sink.write_options import Bus


_ONE_SESSION: Final = Config(
    {
        "context": {
            f"transport_{kind}_id_high": ContextOptions.rows[f"transport_{kind}_id_low"].default
            for kind in ("lbtipc", "lbtsmx")
        }
    }
)
"""Without a config all topics of a process share a ring: there are many processes, and /dev/shm may be small."""


class Publisher:
    """Sends messages; one thread at a time."""

    def __init__(self, bus: Bus) -> None:
        """Opens a context.

        Raises:
            ipcbus.ConfigError: an option of the bus, or its config file, does not fit.
            ipcbus.TransportError: the context cannot be made.
        """
        self._bus = bus
        config = Config.load(bus.config)
        self._config = config if config.sections or config.topics else _ONE_SESSION
        self._context = Context(self._config, name="spark sink", domain=bus.domain)
        self._sources: dict[str, Source] = {}
        self._ready: dict[str, Source] = {}

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return is_closed(self._context)

    def begin(self) -> None:
        """A task or batch begins: receivers have to be there before its first message on each topic."""
        self._ready = {}

    def ready(self, topic: str) -> Source:
        """Returns the source of a topic; the first time since `begin` it waits for the receivers.

        Raises:
            SinkError: too few receivers have joined.
            ipcbus.IpcBusError: the source cannot be made.
        """
        return self._ready.get(topic) or self._open(topic)

    def flush(self) -> None:
        """Publishes what was sent."""
        for source in self._ready.values():
            source.flush()

    def close(self) -> None:
        """Leaves the bus; what was published stays readable by those who joined."""
        self._context.close()

    def _open(self, topic: str) -> Source:
        bus = self._bus
        source = self._sources.get(topic)
        if source is None:
            bus.check(self._config, topic)
            options: dict[str, Any] = dict(bus.source)
            source = self._sources[topic] = self._context.source(topic, **options)
        try:
            source.wait_for_receivers(bus.receivers, bus.timeout_s)
        except TimeoutError:
            raise SinkError(
                f"sink ipcbus: {source.receivers} of {bus.receivers} receiving contexts of topic {topic!r} in domain "
                f"{bus.domain!r} had joined after {bus.timeout_s:g} s; start them before the write, or change the "
                "options waitForReceivers (0 sends to whoever is there) and receiverTimeout"
            ) from None
        self._ready[topic] = source
        return source


@dataclass(slots=True)
class _Kept:
    publisher: Publisher
    users: int = 0
    until: float = 0.0


class Keeper:
    """The publishers of a process: made when they are needed, closed when they have not been for a while."""

    def __init__(self) -> None:
        """There are none."""
        self._changed = threading.Condition()
        self._kept: dict[Bus, _Kept] = {}
        self._watches = False

    @contextlib.contextmanager
    def publisher(self, bus: Bus) -> Iterator[Publisher]:
        """The publisher for these settings, for one task or batch."""
        with self._changed:
            kept = self._kept.get(bus)
            if kept is None or kept.publisher.closed:
                kept = self._kept[bus] = _Kept(Publisher(bus))
            kept.users += 1
        try:
            kept.publisher.begin()
            yield kept.publisher
        finally:
            with self._changed:
                kept.users -= 1
                kept.until = time.monotonic() + bus.linger_s
                if not self._watches:
                    self._watches = True
                    threading.Thread(target=self._watch, name="ipcbus spark sink", daemon=True).start()
                self._changed.notify()

    def close(self) -> None:
        """Closes them all, used or not."""
        with self._changed:
            kept, self._kept = self._kept, {}
            self._changed.notify()
        for each in kept.values():
            each.publisher.close()

    def _watch(self) -> None:
        """Closes what is idle for too long; ends when there is nothing."""
        while True:
            with self._changed:
                now = time.monotonic()
                idle = [bus for bus, kept in self._kept.items() if not kept.users and kept.until <= now]
                over = [self._kept.pop(bus).publisher for bus in idle]
                if not over:
                    if not self._kept:
                        self._watches = False
                        return
                    self._changed.wait(self._next(now))
            for publisher in over:
                publisher.close()

    def _next(self, now: float) -> float | None:
        ends = [kept.until - now for kept in self._kept.values() if not kept.users]
        return min(ends) if ends else None


_keeper = Keeper()


def publisher(bus: Bus) -> contextlib.AbstractContextManager[Publisher]:
    """Returns the publisher of this process for these settings, for one task or batch."""
    return _keeper.publisher(bus)


def close_all() -> None:
    """Closes the publishers of this process."""
    _keeper.close()


def _after_fork() -> None:
    global _keeper
    _keeper = Keeper()  # the contexts are the parent's


os.register_at_fork(after_in_child=_after_fork)
