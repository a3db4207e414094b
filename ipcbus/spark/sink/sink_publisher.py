"""The bus in a process of Spark: a context that stays open between tasks, so that receivers stay joined."""

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
    from ipcbus.spark.sink.write_options import BusOptions


_ONE_SESSION: Final = Config(
    {
        "context": {
            f"transport_{kind}_id_high": ContextOptions.rows[f"transport_{kind}_id_low"].default
            for kind in ("lbtipc", "lbtsmx")
        }
    }
)
"""Without a config, all topics of a process share a ring, as there are many processes and /dev/shm may be small."""


class Publisher:
    """Sends messages; for one thread at a time."""

    def __init__(self, bus: BusOptions) -> None:
        """Opens a context.

        Raises:
            ipcbus.ConfigError: an option of the bus, or its config file, is invalid.
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
        """Whether the context was closed."""
        return is_closed(self._context)

    def begin(self) -> None:
        """Begins a task or batch: its first message on each topic waits for receivers."""
        self._ready = {}

    def ready(self, topic: str) -> Source:
        """Returns the source of a topic; waits for receivers at the first call since `begin`.

        Raises:
            SinkError: too few receivers have joined.
            ipcbus.IpcBusError: the source cannot be made.
        """
        return self._ready.get(topic) or self._open(topic)

    def flush(self) -> None:
        """Publishes the messages that were sent."""
        for source in self._ready.values():
            source.flush()

    def close(self) -> None:
        """Closes the context; joined receivers can still read what was published."""
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
                f"{bus.domain!r} had joined after {bus.timeout_s:g} s; start the receivers before the write, or change "
                "the options waitForReceivers (0 does not wait) and receiverTimeout"
            ) from None
        self._ready[topic] = source
        return source


@dataclass(slots=True)
class _PooledPublisher:
    publisher: Publisher
    users: int = 0
    until: float = 0.0


class PublisherPool:
    """The publishers of a process: opened on demand, and closed when they have been idle for a while."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._publishers: dict[BusOptions, _PooledPublisher] = {}
        self._watches = False
        self._closing = 0
        """Publishers that the thread of the pool closes now."""

    @contextlib.contextmanager
    def publisher(self, bus: BusOptions) -> Iterator[Publisher]:
        """Yields the publisher for these settings, for one task or batch."""
        with self._changed:
            pooled = self._publishers.get(bus)
            if pooled is None or pooled.publisher.closed:
                pooled = self._publishers[bus] = _PooledPublisher(Publisher(bus))
            pooled.users += 1
        try:
            pooled.publisher.begin()
            yield pooled.publisher
        finally:
            with self._changed:
                pooled.users -= 1
                pooled.until = time.monotonic() + bus.linger_s
                if not self._watches:
                    self._watches = True
                    threading.Thread(target=self._watch, name="ipcbus spark sink", daemon=True).start()
                self._changed.notify_all()

    def close(self) -> None:
        """Closes all publishers, also those in use; waits for those that the thread of the pool closes already."""
        with self._changed:
            pooled, self._publishers = self._publishers, {}
            self._changed.notify_all()
        for each in pooled.values():
            each.publisher.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._closing)

    def _watch(self) -> None:
        """Closes publishers that are idle for too long; ends when there are no publishers left."""
        while True:
            with self._changed:
                now = time.monotonic()
                idle = [bus for bus, pooled in self._publishers.items() if not pooled.users and pooled.until <= now]
                over = [self._publishers.pop(bus).publisher for bus in idle]
                if not over:
                    if not self._publishers:
                        self._watches = False
                        return
                    self._changed.wait(self._next(now))
                self._closing += len(over)
            try:
                for publisher in over:
                    publisher.close()
            finally:
                with self._changed:
                    self._closing -= len(over)
                    self._changed.notify_all()

    def _next(self, now: float) -> float | None:
        ends = [pooled.until - now for pooled in self._publishers.values() if not pooled.users]
        return min(ends) if ends else None


_pool = PublisherPool()


def publisher(bus: BusOptions) -> contextlib.AbstractContextManager[Publisher]:
    """Returns the publisher of this process for these settings, for one task or batch."""
    return _pool.publisher(bus)


def close_all() -> None:
    """Closes the publishers of this process."""
    _pool.close()


def _after_fork() -> None:
    global _pool
    _pool = PublisherPool()  # the contexts are the parent's


os.register_at_fork(after_in_child=_after_fork)
